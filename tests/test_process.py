"""Which process of its step a process is, as its environment tells it."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from marin_rules import MarinRulesError, ThisProcess, this_process

OF_FOUR = {
    "MARIN_PROCESS_RANK": "3",
    "MARIN_PROCESS_COUNT": "4",
    "MARIN_PROCESS_LOCAL_RANK": "1",
    "MARIN_PROCESS_LOCAL_COUNT": "2",
    "MARIN_PROCESS_COORDINATOR_ADDRESS": "gpu1:61234",
    "MARIN_PROCESS_TASK": "0",
    "MARIN_PROCESS_TASKS": "1",
}
THIRD_OF_FOUR = ThisProcess(3, 4, 1, 2, "gpu1:61234", 0, 1)


@pytest.fixture(autouse=True)
def outside_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_FOUR:
        monkeypatch.delenv(name, raising=False)


def test_outside_of_steps_there_is_one_process() -> None:
    assert this_process() == ThisProcess(
        rank=0, count=1, local_rank=0, local_count=1, coordinator_address=None, task=0, tasks=1
    )


def test_the_variables_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert THIRD_OF_FOUR.to_variables() == OF_FOUR
    for name, value in OF_FOUR.items():
        monkeypatch.setenv(name, value)
    assert this_process() == THIRD_OF_FOUR


def test_a_step_of_one_process_has_no_address_to_meet_at() -> None:
    variables = ThisProcess().to_variables()
    assert sorted(OF_FOUR.keys() - variables.keys()) == ["MARIN_PROCESS_COORDINATOR_ADDRESS"]
    assert ThisProcess.from_variables(variables) == ThisProcess()


@pytest.mark.processes
def test_programs_that_a_process_starts_get_the_same_answer() -> None:
    script = "import json; from dataclasses import asdict; from marin_rules import this_process;"
    script += "print(json.dumps(asdict(this_process())))"
    answer = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **OF_FOUR}, capture_output=True, text=True, check=True
    )
    assert json.loads(answer.stdout) == asdict(THIRD_OF_FOUR)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MARIN_PROCESS_COUNT", None, "MARIN_PROCESS_COUNT is not set"),
        ("MARIN_PROCESS_COORDINATOR_ADDRESS", None, "MARIN_PROCESS_COORDINATOR_ADDRESS is not set"),
        ("MARIN_PROCESS_RANK", "-1", "MARIN_PROCESS_RANK=-1 is not a number"),
        ("MARIN_PROCESS_RANK", "", "MARIN_PROCESS_RANK= is not a number"),
        ("MARIN_PROCESS_RANK", "\u0663", "is not a number"),
        ("MARIN_PROCESS_RANK", "4", "MARIN_PROCESS_RANK=4 and MARIN_PROCESS_COUNT=4 contradict each other"),
        ("MARIN_PROCESS_LOCAL_RANK", "2", "MARIN_PROCESS_LOCAL_RANK=2 and"),
        ("MARIN_PROCESS_TASKS", "0", "MARIN_PROCESS_TASK=0 and"),
    ],
)
def test_half_of_the_variables_are_no_answer(name: str, value: str | None, words: str) -> None:
    """Rather than rank 0 of 1: two processes that both believe to be the first would overwrite each other's work."""
    variables = {key: text for key, text in {**OF_FOUR, name: value}.items() if text is not None}
    with pytest.raises(MarinRulesError, match="cannot tell which process") as raised:
        ThisProcess.from_variables(variables)
    assert words in str(raised.value)
