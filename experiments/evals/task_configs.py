"""Named sets of tasks for `default_eval`.

    default_eval(model, CORE_TASKS, resources)
    default_eval(model, made_tasks(tasks_step), resources)      # no network

Names and numbers of examples are those under which results of other models are published; most come from Marin's own
sets. The data of tasks that lm-eval ships comes from the Hugging Face hub when the evaluation runs, or from a cache.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from marin_rules import ExecutorStep, InputName, output_path_of
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.task_files import EvalTask, near_matches
from marin_rules.pipeline.make_tasks import TASKS

CORE_TASKS = (
    EvalTask("agieval_lsat_ar", 3),
    EvalTask("arc_easy", 10),
    EvalTask("arc_challenge", 10),
    EvalTask("boolq", 10),
    EvalTask("commonsense_qa", 10),
    EvalTask("copa", 0),
    EvalTask("hellaswag", 0, alias="hellaswag_0shot"),
    EvalTask("hellaswag", 10, alias="hellaswag_10shot"),
    EvalTask("lambada_openai", 0),
    EvalTask("openbookqa", 0),
    EvalTask("piqa", 10),
    EvalTask("wsc273", 0),
    EvalTask("winogrande", 0),
)
"""Choices and endings that distinguish small models: a part of the core tasks of DCLM."""

MMLU_TASKS = (EvalTask("mmlu", 0, alias="mmlu_0shot"), EvalTask("mmlu", 5, alias="mmlu_5shot"))

GENERATION_TASKS = (
    EvalTask("gsm8k_cot", 8),
    EvalTask("nq_open", 0),
    EvalTask("triviaqa", 0),
)
"""Tasks whose answers the model writes."""

TASK_SETS: Mapping[str, tuple[EvalTask, ...]] = {
    "core": CORE_TASKS,
    "mmlu": MMLU_TASKS,
    "core_and_mmlu": CORE_TASKS + MMLU_TASKS,
    "generation": GENERATION_TASKS,
}


def task_set(name: str) -> tuple[EvalTask, ...]:
    """A set by its name."""
    if name not in TASK_SETS:
        raise DataError(f"no set of tasks {name!r}: {near_matches(name, list(TASK_SETS))}")
    return TASK_SETS[name]


def made_tasks(tasks: ExecutorStep[Any] | InputName | str, names: Sequence[str] = TASKS) -> tuple[EvalTask, ...]:
    """Tasks that `default_tasks` makes of held-out text. They need no network."""
    folder = output_path_of(tasks) if isinstance(tasks, ExecutorStep) else tasks
    for name in names:
        if name not in TASKS:
            raise DataError(f"no task {name!r} is made of text: {near_matches(name, TASKS)}")
    return tuple(EvalTask(name, folder=folder) for name in names)
