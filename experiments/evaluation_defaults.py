"""Evaluations, comparisons, scaling laws and speedruns in a line each, with what changes results in the versions.

    scores = default_eval(model, held_out={"news": held_out_documents})
    table = default_compare("compared/news", {"small": scores_of_small, "large": scores})

docs/evaluation.md has the configs behind these helpers and the files that they write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.making_steps import Data, data_step, input_of, levanter_step, name_of, small_step
from marin_rules import ExecutorStep, ResourceConfig, output_path_of, versioned
from marin_rules.pipeline.compare import CompareConfig, compare
from marin_rules.pipeline.evaluate import EvaluateConfig, evaluate
from marin_rules.pipeline.evaluation.loaded_model import Precision
from marin_rules.pipeline.evaluation.task_files import EvalTask, refuse_twins, refuse_unknown_here
from marin_rules.pipeline.make_tasks import MakeTasksConfig, make_tasks
from marin_rules.pipeline.scaling_laws import ScalingLawConfig, scaling_law
from marin_rules.pipeline.speedrun import LeaderboardConfig, SpeedrunConfig, leaderboard, record_speedrun


def default_tasks(name: str, documents: Data, *, items: int = 200, seed: int = 0) -> ExecutorStep[Any]:
    """Tasks for `default_eval` made of held-out documents; `marin_rules/pipeline/make_tasks.py` says which."""
    config = MakeTasksConfig(input_of(documents), versioned(items), versioned(seed))
    return data_step(name, make_tasks, config)


def default_eval(
    step: Data,
    evals: Sequence[EvalTask | str] = (),
    resources: ResourceConfig | None = None,
    *,
    name: str | None = None,
    held_out: Mapping[str, Data] | None = None,
    model_step: int | None = None,
    max_length: int | None = None,
    max_documents: int | None = None,
    max_items: int | None = None,
    chat_template: bool = False,
    precision: Precision = "float32",
    offline: bool = False,
) -> ExecutorStep[Any]:
    """Scores of a trained model on tasks and on held-out sets."""
    tasks = [EvalTask(one) if isinstance(one, str) else one for one in evals]
    refuse_twins(tasks)
    refuse_unknown_here(tasks)
    config = EvaluateConfig(
        input_of(step),
        {set_name: input_of(data) for set_name, data in (held_out or {}).items()},
        [_versioned_task(one) for one in tasks],
        model_step=versioned(model_step),
        max_length=versioned(max_length),
        max_documents=versioned(max_documents),
        max_items=versioned(max_items),
        chat_template=versioned(chat_template),
        precision=versioned(precision),
        offline=offline,
    )
    return levanter_step(name or f"evaluation/{name_of(step)}", evaluate, config, resources)


def default_compare(
    name: str, evaluations: Mapping[str, Data], *, baseline: str | None = None, resources: ResourceConfig | None = None
) -> ExecutorStep[Any]:
    """The models of several evaluations in one table."""
    paths = {model: input_of(data) for model, data in evaluations.items()}
    return levanter_step(name, compare, CompareConfig(paths, versioned(baseline or next(iter(paths)))), resources)


def default_scaling_law(
    name: str,
    runs: Mapping[str, Data],
    *,
    held_out: Mapping[str, Data] | None = None,
    metric: str = "eval/loss",
    isoflops: bool = False,
    law: bool = True,
    budgets: Sequence[float] = (),
    resources: ResourceConfig | None = None,
) -> ExecutorStep[Any]:
    """The law behind several trainings, checked with those that are held out."""
    config = ScalingLawConfig(
        {run: input_of(data) for run, data in runs.items()},
        {run: input_of(data) for run, data in (held_out or {}).items()},
        versioned(metric),
        fit_law=versioned(law),
        fit_isoflops=versioned(isoflops),
        budgets=versioned(list(budgets)),
    )
    return levanter_step(name, scaling_law, config, resources)


def default_speedrun(
    name: str,
    training: Data,
    evaluation: Data,
    set_name: str,
    *,
    author: str = "",
    description: str = "",
) -> ExecutorStep[Any]:
    """A training and its evaluation as a checked record for `default_leaderboard`."""
    config = SpeedrunConfig(
        versioned(name),
        input_of(training),
        input_of(evaluation),
        versioned(set_name),
        versioned(author),
        versioned(description),
    )
    return small_step(f"speedruns/{name}", record_speedrun, config)


def default_leaderboard(
    name: str, records: Sequence[ExecutorStep[Any]], *, title: str = "Speedruns"
) -> ExecutorStep[Any]:
    """A page with all records."""
    paths = {record.name: output_path_of(record) for record in records}
    return small_step(name, leaderboard, LeaderboardConfig(paths, versioned(title)))


def _versioned_task(task: EvalTask) -> EvalTask:
    return replace(
        task,
        name=versioned(task.name),
        num_fewshot=versioned(task.num_fewshot),
        folder=None if task.folder is None else input_of(task.folder),
        alias=versioned(task.alias),
    )
