"""Variables of steps: any number of them reaches the steps of this machine, a job elsewhere gets only its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from marin_rules.clusters.protocol import STEP_VARIABLE
from marin_rules.errors import MarinRulesError
from marin_rules.worker.variables import (
    exported,
    for_driver_without_files,
    for_job_elsewhere,
    one_by_one,
    passed_on,
    set_step_variables,
)
from support.lab import Lab

MANY = [{"TOKEN": f"{number:04}" + "x" * 106, "SAME": "ä\n="} for number in range(1200)]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Put variables into this process's environment, as the driver does."""

    def publish(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return publish


def seen_by_child(number: int | None, variables: dict[str, str]) -> dict[str, str]:
    """The environment of a step's process, in a Python of its own."""
    code = (
        "import json, os, sys\n"
        "from marin_rules.worker.variables import set_step_variables\n"
        "set_step_variables(json.loads(sys.argv[1]))\n"
        "print(json.dumps(dict(os.environ)))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, json.dumps(number)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(answer.stdout)
    return found


@pytest.mark.processes
def test_more_variables_than_an_environment_holds_reach_their_steps() -> None:
    variables = exported(MANY)
    assert sum(len(value) for value in variables.values()) < 100
    last = seen_by_child(1199, variables)
    assert (last["TOKEN"], last["SAME"]) == (MANY[1199]["TOKEN"], "ä\n=")
    none = seen_by_child(None, variables)
    assert not {"TOKEN", "SAME"} & none.keys()
    for found in (last, none):
        assert not [name for name in found if name.startswith("MARIN_RULES_")]


def test_nothing_is_published_for_steps_without_variables() -> None:
    assert exported([]) == {}
    assert passed_on() == {}
    assert for_job_elsewhere([None]) == {}


@pytest.mark.processes
def test_a_process_keeps_what_another_one_kept_for_it(published: Any) -> None:
    """The engine outlives a `python x.py` that is killed."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", "import json; from marin_rules.worker.variables import exported\n"
         "print(json.dumps(exported([{'A': 'one'}, {'A': 'two'}])), flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert keeper.stdout is not None
    theirs = json.loads(keeper.stdout.readline())
    published(theirs)
    ours = passed_on()
    keeper.kill()
    keeper.communicate()
    with pytest.raises(subprocess.CalledProcessError):
        seen_by_child(1, theirs)
    assert seen_by_child(1, ours)["A"] == "two"


@pytest.mark.processes
def test_a_job_elsewhere_gets_only_its_own_variables(published: Any) -> None:
    published(exported([{"A": "one"}, {"B": "two"}, {"C": "three"}]))
    job = for_job_elsewhere([1])
    assert not any("one" in value or "three" in value for value in job.values())
    assert seen_by_child(1, job)["B"] == "two"
    group = for_job_elsewhere([0, None, 2])  # Several steps in one job.
    assert seen_by_child(0, group)["A"] == "one"
    assert seen_by_child(2, group)["C"] == "three"


SETS = [{"A": "one", "TOKEN": "first"}, {"A": "two"}, {}]


@pytest.mark.parametrize(
    ("number", "gained"),
    [(0, {"A": "one", "TOKEN": "first"}), (1, {"A": "two"}), (2, {}), (None, {})],
)
@pytest.mark.parametrize("way", ["in memory", "in one variable", "passed on", "for a job elsewhere"])
def test_a_step_gets_its_own_set_and_nothing_that_steers_the_run(
    way: str, number: int | None, gained: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way the sets have come, they are the same, and leave no trace."""
    found = {"HOME": "/home/me", "A": "before", "MARIN_RULES_WARM": "7"}
    monkeypatch.setattr(os, "environ", found)
    if way == "in one variable":
        monkeypatch.delattr(os, "memfd_create")
    found |= exported(SETS)
    if way == "passed on":
        found |= passed_on()
    if way == "for a job elsewhere":
        job = for_job_elsewhere([number])
        del found["MARIN_RULES_STEP_VARIABLES"]
        found |= job
    set_step_variables(number)
    assert found == {"HOME": "/home/me", "A": "before"} | gained


def test_a_set_that_is_not_there_is_not_another_one(published: Any) -> None:
    published(exported(SETS))
    with pytest.raises(MarinRulesError, match="did not reach this process"):
        for_job_elsewhere([len(SETS)])
    published(for_job_elsewhere([1]))
    published({"MARIN_RULES_STEP_VARIABLES": ""})
    with pytest.raises(MarinRulesError, match="did not reach this process"):
        set_step_variables(0)


@pytest.mark.parametrize("lost", ["/proc/1/nothing mark", "/proc/self/status mark", ""])
def test_variables_that_are_lost_are_told_and_no_others_taken(lost: str, published: Any) -> None:
    published({"MARIN_RULES_STEP_VARIABLES": lost})
    with pytest.raises(MarinRulesError, match="did not reach this process"):
        set_step_variables(0)


@pytest.mark.processes
def test_a_system_without_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert seen_by_child(1, exported([{"A": "one"}, {"A": "two"}]))["A"] == "two"
    with pytest.raises(MarinRulesError, match=r"1200 step\(s\) take \d+ bytes.*keeps no files in memory"):
        exported(MANY)


def test_too_much_for_a_job_elsewhere_is_refused(published: Any) -> None:
    published(exported([{"A": "x" * 200_000}]))
    with pytest.raises(MarinRulesError, match=r"1 step\(s\) take 2000\d\d bytes, and 100000 fit: a job on another"):
        for_job_elsewhere([0])


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_twelve_hundred_steps_with_variables(door: str, lab: Lab) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import ExecutorStep, executor_main, remote, versioned

        def work(number):
            assert os.environ["TOKEN"] == f"{number:04}" * 27, "the wrong variables"
            return len(os.environ["TOKEN"])

        steps = [
            ExecutorStep(f"s{number}", remote(work, env_vars={"TOKEN": f"{number:04}" * 27}), versioned(number))
            for number in range(1200)
        ]
        if __name__ == "__main__":
            executor_main(steps=steps)
        """
    )
    names = '["^s7$", "^s1199$"]'
    if door == "snakemake":
        result = lab.snakemake("--quiet", experiment=file, config={"run_only": names})
    else:
        result = lab.python(file, "--prefix", lab.prefix, "--run_only", names)
    assert result.code == 0, result.output
    for name in ("s7", "s1199"):
        assert json.loads((lab.folder_of(name) / ".artifact.json").read_text()) == 108


def test_a_driver_without_files_gets_each_value_under_a_name_of_its_own(
    published: Callable[[dict[str, str]], None],
) -> None:
    sets = [{"MODE": "slow", "TOKEN": "t"}, {}, {"MODE": "fast"}, {"MODE": "slow"}]
    given = for_driver_without_files(sets)
    values = {name: value for name, value in given.items() if name.startswith(STEP_VARIABLE)}
    assert values == {
        f"{STEP_VARIABLE}MODE": "slow",
        f"{STEP_VARIABLE}MODE__1": "fast",
        f"{STEP_VARIABLE}TOKEN": "t",
    }
    published(given)
    for number, variables in enumerate(sets):
        passed = {name.removeprefix(STEP_VARIABLE): value for name, value in one_by_one(number).items()}
        assert {name: passed[name] for name in passed if name in ("MODE", "TOKEN")} == variables
    assert for_driver_without_files([]) == {}


def test_a_driver_without_files_lacks_what_its_cluster_leaves_out(
    published: Callable[[dict[str, str]], None],
) -> None:
    given = for_driver_without_files([{"MODE": "slow", "TOKEN": "t"}])
    del given[f"{STEP_VARIABLE}TOKEN"]
    published(given)
    assert f"{STEP_VARIABLE}TOKEN" not in one_by_one(0)
