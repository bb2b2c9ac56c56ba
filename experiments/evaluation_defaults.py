"""Evaluations, comparisons, scaling laws and speedruns, one line each, with what changes results in the versions.

    scores = default_eval(model, held_out={"news": held_out_documents})
    table = default_compare("compared/news", {"small": scores_of_small, "large": scores})

docs/evaluation.md has the configs behind these helpers and the files that they write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.making_steps import Data, data_step, input_of, levanter_step, name_of, plain, sets_of, small_step
from marin_rules import ExecutorStep, ResourceConfig, output_path_of, versioned
from marin_rules.pipeline.compare import CompareConfig, baseline_of, compare
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluate import EvaluateConfig, check_evaluation, evaluate
from marin_rules.pipeline.evaluation.isoflops import refuse_few_sizes
from marin_rules.pipeline.evaluation.law import refuse_few_runs
from marin_rules.pipeline.evaluation.loaded_model import Precision
from marin_rules.pipeline.evaluation.task_files import EvalTask, near_matches, refuse_twins, refuse_unknown_here
from marin_rules.pipeline.make_tasks import MakeTasksConfig, check_tasks, make_tasks
from marin_rules.pipeline.scaling_laws import ScalingLawConfig, check_scaling_law, scaling_law
from marin_rules.pipeline.speedrun import (
    LeaderboardConfig,
    SpeedrunConfig,
    check_leaderboard,
    leaderboard,
    record_speedrun,
    refuse_other_settings,
    refuse_other_weights,
)
from marin_rules.pipeline.training.config import DpoConfig, TrainConfig


def default_tasks(name: str, documents: Data, *, items: int = 200, seed: int = 0) -> ExecutorStep[Any]:
    """Tasks for `default_eval` made of held-out documents; `marin_rules/pipeline/make_tasks.py` says which."""
    config = MakeTasksConfig(input_of(documents), items, seed)
    check_tasks(config)
    return data_step(name, make_tasks, replace(config, items=versioned(items), seed=versioned(seed)))


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
    if not isinstance(evals, Sequence) or isinstance(evals, str):
        raise DataError(
            f"evals is a {type(evals).__name__}: after the model, default_eval takes a list of tasks, then resources"
        )
    tasks = [EvalTask(one) if isinstance(one, str) else one for one in evals]
    refuse_twins(tasks)
    refuse_unknown_here(tasks)
    config = EvaluateConfig(
        input_of(step),
        sets_of("held_out", held_out),
        tasks,
        model_step=model_step,
        max_length=max_length,
        max_documents=max_documents,
        max_items=max_items,
        chat_template=chat_template,
        precision=precision,
        offline=offline,
    )
    check_evaluation(config)
    config = replace(
        config,
        tasks=[_versioned_task(one) for one in tasks],
        model_step=versioned(model_step),
        max_length=versioned(max_length),
        max_documents=versioned(max_documents),
        max_items=versioned(max_items),
        chat_template=versioned(chat_template),
        precision=versioned(precision),
    )
    return levanter_step(name or f"evaluation/{name_of(step)}", evaluate, config, resources)


def default_compare(
    name: str, evaluations: Mapping[str, Data], *, baseline: str | None = None, resources: ResourceConfig | None = None
) -> ExecutorStep[Any]:
    """The models of several evaluations in one table."""
    paths = {model: input_of(data) for model, data in evaluations.items()}
    config = CompareConfig(paths, baseline)
    return levanter_step(name, compare, replace(config, baseline=versioned(baseline_of(config))), resources)


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
        sets_of("held_out", held_out),
        metric,
        fit_law=law,
        fit_isoflops=isoflops,
        budgets=list(budgets),
    )
    check_scaling_law(config)
    if law:
        refuse_few_runs(len(runs))
    if isoflops:
        refuse_few_sizes(len(runs))
    config = replace(
        config,
        metric=versioned(metric),
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
    evaluated = evaluation.config if isinstance(evaluation, ExecutorStep) else None
    if isinstance(evaluated, EvaluateConfig) and set_name not in evaluated.held_out:
        raise DataError(
            f"speedrun {name!r}: {name_of(evaluation)} has no held-out set {set_name!r}:"
            f" {near_matches(set_name, list(evaluated.held_out)) or 'it has none at all'}"
        )
    if isinstance(evaluated, EvaluateConfig):
        refuse_other_settings(name, {what: plain(getattr(evaluated, what)) for what in ("max_documents", "overlap")})
    trained = training.config if isinstance(training, ExecutorStep) else None
    if isinstance(trained, TrainConfig | DpoConfig):
        for field in ("initialize_from_hf", "initialize_from_checkpoint_path"):
            refuse_other_weights(name, plain(getattr(trained, field, None)))
    config = SpeedrunConfig(
        versioned(name),
        input_of(training),
        input_of(evaluation),
        versioned(set_name),
        versioned(author),
        versioned(description),
    )
    return small_step(f"speedruns/{name}", record_speedrun, config, report=())


def default_leaderboard(
    name: str, records: Sequence[ExecutorStep[Any]], *, title: str = "Speedruns"
) -> ExecutorStep[Any]:
    """A page with all records."""
    names = [record.name for record in records]
    if twins := sorted({one for one in names if names.count(one) > 1}):
        raise DataError(f"two records are called {', '.join(twins)}: give one of them another name")
    paths = {record.name: output_path_of(record) for record in records}
    config = LeaderboardConfig(paths, versioned(title))
    check_leaderboard(config)
    return small_step(name, leaderboard, config)


def _versioned_task(task: EvalTask) -> EvalTask:
    return replace(
        task,
        name=versioned(task.name),
        num_fewshot=versioned(task.num_fewshot),
        folder=None if task.folder is None else input_of(task.folder),
        alias=versioned(task.alias),
    )
