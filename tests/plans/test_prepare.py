"""The one way from steps and settings to a frozen plan, and the two doors to it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import Executor, ExecutorStep, SettingsError, identity, versioned
from marin_rules.driver import executor as executor_module
from marin_rules.errors import MarinRulesError
from marin_rules.identity import IdentityGraph
from marin_rules.plans import prepare as prepare_module
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import read_plan, write_plan
from marin_rules.plans.prepare import PlanSettings, prepare, prepare_experiment
from marin_rules.settings.run_settings import Settings

EXPERIMENT = """
from marin_rules import ExecutorStep, ExecutorMainConfig, executor_main, versioned

def compute(config):
    pass

data = ExecutorStep(name="data", fn=compute, config={"rows": versioned(3)})
stats = ExecutorStep(name="stats", fn=compute, config={"input": data / "rows"})
if __name__ == "__main__":
    executor_main(CONFIG, steps=[stats], description="Rows and what they say.")
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARIN_PREFIX", raising=False)
    monkeypatch.delenv("MARIN_CLUSTER", raising=False)
    path = tmp_path / "x.py"
    path.write_text(EXPERIMENT.replace("CONFIG", "ExecutorMainConfig()"))
    return path


def compute(config: Any) -> None:
    """A step's function; never called here."""


def chain(length: int = 3) -> list[ExecutorStep[Any]]:
    steps: list[ExecutorStep[Any]] = []
    for number in range(length):
        below = [steps[-1] / "x"] if steps else []
        steps.append(ExecutorStep(name=f"step{number}", fn=compute, config=[versioned(number), *below]))
    return steps


def settings(tmp_path: Path, **choices: Any) -> PlanSettings:
    return PlanSettings(prefix=str(tmp_path / "out"), caller_path=str(tmp_path / "x.py"), **choices)


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[FrozenPlan]:
    """The plans that an `Executor` gives to the engine, which does not start."""
    plans: list[FrozenPlan] = []
    monkeypatch.setattr(executor_module, "run_in_engine", lambda plan, **options: plans.append(plan))
    return plans


def test_both_doors_make_the_same_plan(experiment: Path, handed_over: list[FrozenPlan]) -> None:
    prefix = str(experiment.parent / "out")
    configured = prepare_experiment(Settings(experiment=str(experiment), prefix=prefix, force=("^stats$",)))
    namespace: dict[str, Any] = {"__name__": "x"}
    exec(experiment.read_text(), namespace)
    executor = Executor(prefix, f"{prefix}/experiments", "Rows and what they say.")
    executor.run([namespace["stats"]], force=["^stats$"])
    (called,) = handed_over
    assert [step.name for step in configured.steps] == ["data", "stats"]
    assert [replace(step, function="") for step in called.steps] == [
        replace(step, function="") for step in configured.steps
    ]
    assert called.forced == configured.forced == (1,)
    same = ("prefix", "executor_info_base_path", "description", "force_run_failed", "working_directory")
    for name in same:
        assert getattr(called.run, name) == getattr(configured.run, name), name


def test_an_executor_identifies_each_step_once(
    tmp_path: Path, handed_over: list[FrozenPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    identified: list[str] = []
    original = identity.identify

    def counting(name: str, *details: Any) -> Any:
        identified.append(name)
        return original(name, *details)

    monkeypatch.setattr(identity, "identify", counting)
    steps = chain()
    executor = Executor(str(tmp_path), str(tmp_path / "experiments"))
    paths = executor.run([steps[-1]])
    assert identified == ["step0", "step1", "step2"]
    assert list(paths.values()) == [step.output_path for step in handed_over[0].steps]
    assert executor.steps == steps
    assert [info.name for info in executor.step_infos] == ["step0", "step1", "step2"]
    assert identified == ["step0", "step1", "step2"], "a description needs no identity anew"


def test_an_executor_knows_the_steps_of_all_its_runs(tmp_path: Path, handed_over: list[FrozenPlan]) -> None:
    first, second, third = chain()
    executor = Executor(str(tmp_path), str(tmp_path / "experiments"))
    executor.compute_version(second, is_pseudo_dep=True)
    assert list(executor.run([first])) == [first, second]
    assert list(executor.run([third])) == [first, second, third]
    assert [len(plan.steps) for plan in handed_over] == [1, 3], "a plan has what was asked for, and no more"
    assert [info.name for info in executor.step_infos] == ["step0", "step1", "step2"]


def test_a_run_that_is_refused_leaves_an_executor_as_it_was(tmp_path: Path, handed_over: list[FrozenPlan]) -> None:
    executor = Executor(str(tmp_path), str(tmp_path / "experiments"))
    with pytest.raises(SettingsError, match="force: 'nothing' matches no step"):
        executor.run(chain(), force=["nothing"])
    assert (executor.steps, executor.output_paths, executor.executor_info) == ([], {}, None)
    assert handed_over == []


def test_git_is_asked_once(tmp_path: Path, handed_over: list[FrozenPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\necho "$@" >> {asked}\necho 0123456789abcdef\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{git.parent}:/usr/bin:/bin")
    executor = Executor(str(tmp_path / "out"), str(tmp_path / "out" / "experiments"))
    executor.run(chain())
    assert executor.executor_info is not None
    assert executor.executor_info.git_commit == handed_over[0].run.git_commit == "0123456789abcdef"
    assert len(asked.read_text().splitlines()) == 1


def test_nothing_is_written(experiment: Path) -> None:
    before = sorted(experiment.parent.rglob("*"))
    prepare_experiment(Settings(experiment=str(experiment), prefix=str(experiment.parent / "out")))
    assert sorted(experiment.parent.rglob("*")) == before


def test_configuration_wins_over_what_the_file_says_and_the_file_over_defaults(experiment: Path) -> None:
    folder = experiment.parent
    config = 'ExecutorMainConfig(prefix="a", run_only=["data"], force_run_failed=False)'
    experiment.write_text(EXPERIMENT.replace("CONFIG", config))
    of_file = prepare_experiment(Settings(experiment=str(experiment)))
    assert (of_file.run.prefix, of_file.run.force_run_failed) == ("a", False)
    assert [step.needed for step in of_file.steps] == [True, False]
    given = Settings(experiment=str(experiment), prefix=str(folder / "b"), run_only=("stats",), force_run_failed=True)
    of_configuration = prepare_experiment(given)
    assert (of_configuration.run.prefix, of_configuration.run.force_run_failed) == (str(folder / "b"), True)
    assert [step.needed for step in of_configuration.steps] == [True, True]


def test_code_after_executor_main_is_reported(experiment: Path) -> None:
    experiment.write_text(experiment.read_text() + "print()\n")
    plan = prepare_experiment(Settings(experiment=str(experiment), prefix="out"))
    assert plan.warnings == (
        f"{experiment} continues after executor_main (line 11): `snakemake` runs that code before the steps,"
        f" `python {experiment}` after them",
    )


def test_a_configuration_without_an_experiment_is_refused() -> None:
    with pytest.raises(SettingsError, match="no experiment is named"):
        prepare_experiment(Settings())


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"must_have": ["step2", "stp1"]}, "x.py has no step 'stp1'. Did you mean 'step1'?"),
        ({"must_have": ["stp1"], "force": ["^stp1$"]}, "x.py has no step 'stp1'"),
        ({"must_have": ["step1-abcdef"]}, "As the file is now, the step has another version: step1-"),
        ({"must_have": ["other"]}, "name that with --experiment FILE"),
        ({"only": ["other"]}, "name that with --experiment FILE"),
        ({"force": ["stp1"]}, "force: 'stp1' matches no step that this run needs. Did you mean 'step1'?"),
        ({"force": ["step2"], "run_only": ["step1"]}, "force: 'step2' matches no step that this run needs"),
    ],
)
def test_what_is_named_must_be_there(tmp_path: Path, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(MarinRulesError) as refused:
        prepare(chain(), settings(tmp_path, **choices))
    assert message in str(refused.value)


def test_only_what_is_named_and_what_it_needs_is_run(tmp_path: Path) -> None:
    plan = prepare(chain(), settings(tmp_path, only=["step1"], run_only=["step2"], again=True))
    assert [step.needed for step in plan.steps] == [True, True, False]
    assert [step.root for step in plan.steps] == [False, True, False]
    assert plan.forced == (1,)
    assert prepare(chain(), settings(tmp_path, only=["step1"], force=["step0"])).forced == (0,)


def test_warnings_of_planning_and_of_the_settings_are_kept(tmp_path: Path) -> None:
    plan = prepare(chain(), settings(tmp_path, run_only=["nothing"], warnings=["mind the gap"]))
    assert plan.warnings == ("run_only: 'nothing' matches no step", "mind the gap")


def test_a_plan_that_will_not_run_asks_no_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *address: pytest.fail(f"asked {address}"))
    described = PlanSettings(prefix="gs://no-such-bucket/x", caller_path="x.py", asks_stores=False)
    plan = prepare(chain(1), described)
    assert plan.steps[0].output_path.startswith("gs://no-such-bucket/x/step0-")
    assert plan.steps[0].regions is None


def test_the_identities_are_there_for_the_caller(tmp_path: Path) -> None:
    steps = chain(2)
    graph = IdentityGraph()
    plan = prepare([steps[-1]], settings(tmp_path), graph)
    assert [identity.digest for identity in graph.identities.values()] == [step.digest for step in plan.steps]


CLUSTER = "data:\n  region_buckets: {us-east5: near-bucket, europe-west4: far-bucket}\n  root: gs://near-bucket/marin\n"


@pytest.fixture
def two_clusters(experiment: Path) -> Path:
    folder = experiment.parent / "config" / "clusters"
    folder.mkdir(parents=True)
    (folder / "near.yaml").write_text(CLUSTER)
    (folder / "far.yaml").write_text(CLUSTER.replace("root: gs://near", "root: gs://far"))
    return experiment


@pytest.mark.parametrize(
    ("configured", "variable", "chosen", "region"),
    [
        ("near", None, "near", "us-east5"),
        ("near", "far", "near", "us-east5"),
        (None, "far", "far", "europe-west4"),
    ],
)
def test_the_cluster_is_in_the_run_and_decides_prefix_and_regions(
    two_clusters: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: str | None,
    variable: str | None,
    chosen: str,
    region: str,
) -> None:
    monkeypatch.setattr(prepare_module, "check_stores", lambda plan: None)  # There are no such buckets.
    if variable is not None:
        monkeypatch.setenv("MARIN_CLUSTER", variable)
    plan = prepare_experiment(Settings(experiment=str(two_clusters), cluster=configured))
    assert (plan.run.cluster, plan.run.prefix) == (chosen, f"gs://{chosen}-bucket/marin")
    assert {step.regions for step in plan.steps} == {(region,)}
    assert os.environ.get("MARIN_CLUSTER") == variable, "a user's variable is left as it is"
    write_plan(plan, str(two_clusters.parent / "private" / "plan"))
    assert read_plan(str(two_clusters.parent / "private" / "plan")).run == plan.run


def test_an_executor_takes_the_cluster_from_the_users_variable(
    two_clusters: Path, handed_over: list[FrozenPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = str(two_clusters.parent / "out")
    Executor(prefix, f"{prefix}/experiments").run(chain(1))
    monkeypatch.setenv("MARIN_CLUSTER", "far")
    Executor(prefix, f"{prefix}/experiments").run(chain(1))
    assert [plan.run.cluster for plan in handed_over] == [None, "far"]


def test_a_cluster_that_is_misspelt_is_refused_at_both_doors(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, handed_over: list[FrozenPlan]
) -> None:
    refusal = r"^cluster 'nope': there is no nope\.yaml in .* There are: "
    with pytest.raises(SettingsError, match=refusal):
        prepare_experiment(Settings(experiment=str(experiment), prefix="out", cluster="nope"))
    monkeypatch.setenv("MARIN_CLUSTER", "nope")
    with pytest.raises(SettingsError, match=refusal):
        Executor("out", "out/experiments").run(chain(1))
    assert handed_over == []
