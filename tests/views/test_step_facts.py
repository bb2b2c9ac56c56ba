"""What a page shows of a log, and of what workers wrote down."""

from typing import Any

import pytest

from marin_rules.views.step_facts import StepFacts, log_end

EPOCHS = [f"epoch {number}" for number in range(500)]
TRACEBACK = ["Traceback (most recent call last):", *(f"  frame {number}" for number in range(100)), "ValueError: no"]


@pytest.mark.parametrize(
    ("lines", "failed", "first", "count"),
    [
        ([], True, None, 0),
        (EPOCHS[:5], False, "epoch 0", 5),
        (EPOCHS, False, "epoch 440", 60),
        (EPOCHS, True, "epoch 440", 60),
        ([*EPOCHS, *TRACEBACK], True, TRACEBACK[0], len(TRACEBACK)),
        ([*EPOCHS, *TRACEBACK], False, "  frame 41", 60),
        ([*EPOCHS, TRACEBACK[0], "E"], True, "epoch 442", 60),
        ([TRACEBACK[0], *EPOCHS], True, "epoch 200", 300),
    ],
)
def test_the_end_of_a_log(lines: list[str], failed: bool, first: str | None, count: int) -> None:
    shown = log_end(lines, failed=failed)
    assert len(shown) == count
    assert shown[:1] == ([] if first is None else [first])
    assert shown == lines[len(lines) - count :]


@pytest.mark.parametrize(
    "run",
    [{}, {"seconds": "long", "finished": 0, "error": None, "slurm": "?", "gpus": 3, "host": None}, {"seconds": True}],
)
def test_odd_notes_of_a_worker_are_no_facts(run: dict[str, Any]) -> None:
    facts = StepFacts("a", None, "m.f", "out/a", {}, {}, [], "SUCCESS", run)
    assert (facts.seconds, facts.runtime, facts.finished, facts.error, facts.place, facts.gpus) == (
        None,
        "",
        "",
        "",
        "",
        "",
    )
