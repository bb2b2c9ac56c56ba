"""A dry run makes no jobs where the table of steps is the answer; what it says and its exit code are the same.

The oracle is the same dry run in which Snakemake does make the jobs: `--set-threads` asks for them, and here gives a
rule the one thread that it has anyway.
"""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin_rules.engine import plan_in_process
from marin_rules.engine.invocation import Invocation
from marin_rules.plans.prepare import prepare_experiment
from marin_rules.settings.run_settings import Settings
from marin_rules.state.status import Status, status_bytes, status_path
from marin_rules.state.step_lease import open_lease
from marin_rules.storage.leases.owner import Owner
from support.emulators.common.emulator import Emulator
from support.lab import Lab

EXPERIMENT = """
    from dataclasses import dataclass

    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, output_path_of, remote

    @dataclass(frozen=True)
    class Config:
        sources: tuple = ()
        output_path: str = THIS_OUTPUT_PATH

    def prepare(config):
        pass

    def train(config):
        pass

    def step(name, *sources, fn=prepare):
        return ExecutorStep(name, fn, Config(tuple(map(output_path_of, sources))))

    deleted = step("deleted")
    cached = step("cached", deleted)
    failed = step("failed", cached, fn=train)
    after_failed = step("after_failed", failed)
    cancelled = step("cancelled", cached)
    abandoned = step("abandoned", cached)
    running = step("running", cached)
    after_running = step("after_running", running)
    new = step("new", cached)
    big = step("big", new, fn=remote(train, resources=ResourceConfig(cpu=1000, ram="9000g")))

    if __name__ == "__main__":
        executor_main(steps=[after_failed, cancelled, abandoned, after_running, big])
"""

STATUSES = {
    "cached": Status.SUCCESS,
    "failed": Status.FAILED,
    "after_failed": Status.DEP_FAILED,
    "cancelled": Status.CANCELLED,
    "abandoned": Status.RUNNING,
    "running": Status.RUNNING,
}

WITH_JOBS = ("--set-threads", "prepare=1")


def leave(path: str, status: Status) -> None:
    """What a worker leaves at the output path of a step that had this end, or is still held."""
    Path(path).mkdir(parents=True)
    Path(status_path(path)).write_bytes(status_bytes(status, path))


def _ageless(output: str) -> str:
    """What is said, but for the time since a heartbeat."""
    return re.sub(r"last heartbeat .*? ago", "last heartbeat ... ago", output)


@pytest.fixture
def dry_run(lab: Lab) -> Callable[..., tuple[int, list[str]]]:
    """`dry_run(*flags, **config)`: exit code and lines of a dry run, the same with jobs and without."""
    file = lab.experiment(EXPERIMENT)

    def run(*flags: str, **config: object) -> tuple[int, list[str]]:
        short, whole = (lab.snakemake("-n", *flags, *more, experiment=file, config=config) for more in ((), WITH_JOBS))
        assert (short.code, _ageless(short.output)) == (whole.code, _ageless(whole.output))
        return short.code, short.output.splitlines()

    return run


@pytest.fixture
def paths(lab: Lab) -> dict[str, str]:
    """Where each step of the experiment is."""
    plan = prepare_experiment(Settings(experiment=str(lab.experiment(EXPERIMENT)), prefix=str(lab.prefix)))
    return {step.name: step.output_path for step in plan.steps}


@pytest.fixture
def mixed(paths: dict[str, str]) -> None:
    """Steps in all states there are."""
    for name, status in STATUSES.items():
        leave(paths[name], status)
    assert open_lease(paths["running"], Owner.current()).try_acquire() is None


@pytest.mark.parametrize(
    ("flags", "config", "code", "says"),
    [
        ((), {}, 0, "10 steps: 7 would run, 1 running elsewhere, 1 cached, 1 not needed"),
        ((), {"force_run_failed": False}, 0, "10 steps: 5 would run, 1 running elsewhere, 2 blocked, 1 cached, 1 not"),
        (("-F",), {}, 0, "10 steps: 9 would run, 1 running elsewhere"),
        (("-R", "train"), {"run_only": "failed"}, 0, "10 steps: 2 would run, 1 cached, 7 not needed"),
        (("--quiet",), {}, 0, None),
        (("--quiet", "rules"), {}, 0, "10 steps: 7 would run, 1 running elsewhere, 1 cached, 1 not needed"),
        (("--until", "train"), {}, 0, "10 steps: 2 would run, 1 cached, 7 not needed"),
        (("--omit-from", "train"), {}, 0, "10 steps: 6 would run, 1 running elsewhere, 1 cached, 2 not needed"),
        (("--until", "no_such_rule"), {}, 1, None),
        (("-R", "failed"), {}, 1, None),
        (("-j", "0"), {}, 1, None),
    ],
)
def test_the_answer_is_the_same(
    flags: tuple[str, ...],
    config: dict[str, object],
    code: int,
    says: str | None,
    mixed: None,
    dry_run: Callable[..., tuple[int, list[str]]],
) -> None:
    ended, lines = dry_run(*flags, **config)
    assert ended == code
    if says is not None:
        assert any(line.startswith(says) for line in lines), lines


def test_damaged_states_are_refused_alike(paths: dict[str, str], dry_run: Callable[..., tuple[int, list[str]]]) -> None:
    leave(paths["cancelled"], Status.CANCELLED)
    Path(status_path(paths["cancelled"])).write_bytes(b"\0\xff")
    code, lines = dry_run()
    assert code == 1
    assert any(status_path(paths["cancelled"]) in line for line in lines), lines


def test_the_answer_is_the_same_on_an_object_store(gcs: Emulator, paths: dict[str, str], lab: Lab) -> None:
    gcs.create_bucket("bucket")
    file = lab.experiment(EXPERIMENT)
    for name, status in STATUSES.items():
        path = paths[name].replace(str(lab.prefix), "gs://bucket/x")
        gcs.put("bucket", status_path(path).removeprefix("gs://bucket/"), status_bytes(status, paths[name]))
    short, whole = (
        lab.snakemake("-n", *flags, experiment=file, prefix="gs://bucket/x", env=gcs.environment)
        for flags in ((), WITH_JOBS)
    )
    assert (short.code, short.output) == (whole.code, whole.output)
    assert "10 steps: 8 would run, 1 cached, 1 not needed" in short.output


PLAIN = {
    "output_settings.printshellcmds": False,
    "output_settings.verbose": False,
    "output_settings.debug_dag": False,
    "output_settings.log_handler_settings": {"marin": None},
    "dag_settings.allowed_rules": frozenset(),
    "dag_settings.batch": None,
    "scheduling_settings.prioritytargets": frozenset(),
    "deployment_settings.deployment_method": frozenset(),
    "resource_settings.overwrite_threads": {},
    "resource_settings.overwrite_resources": {},
    "executor_settings": None,
    "local_exec": True,
}
"""What Snakemake has for `snakemake -n` with our default profile."""


def workflow(**changed: object) -> Any:
    """Snakemake's workflow object with these settings."""
    found: dict[str, Any] = {}
    for name, value in {**PLAIN, **changed}.items():
        group, _, setting = name.rpartition(".")
        if group:
            vars(found.setdefault(group, SimpleNamespace()))[setting] = value
        else:
            found[name] = value
    return SimpleNamespace(**found)


def test_the_table_asks_for_no_jobs() -> None:
    assert not Invocation(workflow()).asks_for_jobs


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("output_settings.printshellcmds", True),
        ("output_settings.verbose", True),
        ("output_settings.debug_dag", True),
        ("output_settings.log_handler_settings", {}),
        ("output_settings.log_handler_settings", {"marin": None, "rich": None}),
        ("dag_settings.allowed_rules", frozenset({"train"})),
        ("dag_settings.batch", "1/2"),
        ("scheduling_settings.prioritytargets", frozenset({"x"})),
        ("deployment_settings.deployment_method", frozenset({"conda"})),
        ("resource_settings.overwrite_threads", {"train": 2}),
        ("resource_settings.overwrite_resources", {"train": {"mem_mb": 2}}),
        ("local_exec", False),
    ],
)
def test_what_asks_for_jobs(setting: str, value: object) -> None:
    assert Invocation(workflow(**{setting: value})).asks_for_jobs


def test_a_cluster_asks_for_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step goes there is known only of its job."""
    monkeypatch.setattr(plan_in_process, "chosen_cluster", "slurm")
    assert Invocation(workflow()).asks_for_jobs
