"""What `--until` and `--omit-from` leave out, of what a run has to deal with."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from marin_rules.engine.cut import Cut, left_out
from support.small_plans import plan_of, step

UNTIL = "--until {} stops before it"


@pytest.mark.parametrize(
    ("done", "cut", "reasons"),
    [
        ((), Cut(), {}),
        ((), Cut(until=["clean"]), dict.fromkeys(("side", "model", "end"), UNTIL.format("clean"))),
        ((), Cut(until=["side", "clean"]), dict.fromkeys(("model", "end"), UNTIL.format("clean side"))),
        (("clean",), Cut(until=["model"]), dict.fromkeys(("raw", "side", "end"), UNTIL.format("model"))),
        (
            (),
            Cut(omit_from=["clean"]),
            {
                "clean": "--omit-from clean leaves it out",
                "model": "it depends on clean, which --omit-from leaves out",
                "end": "it depends on clean, which --omit-from leaves out",
            },
        ),
        (("clean",), Cut(omit_from=["raw"]), {"raw": "--omit-from raw leaves it out"}),
        (
            (),
            Cut(until=["model"], omit_from=["model"]),
            {
                "model": "--omit-from model leaves it out",
                "side": UNTIL.format("model"),
                "end": "it depends on model, which --omit-from leaves out",
            },
        ),
    ],
)
def test_what_is_left_out(tmp_path: Path, done: Collection[str], cut: Cut, reasons: dict[str, str]) -> None:
    """raw <- clean <- model <- end, and side <- end."""
    raw, side = step("raw"), step("side")
    clean = step("clean", raw)
    model = step("model", clean)
    plan = plan_of(tmp_path, step("end", model, side))
    left = left_out([one for one in plan.steps if one.name not in done], lambda one: [one.name], cut)
    assert {plan.steps[index].name: reason for index, reason in left.items()} == reasons


def test_a_rule_that_is_no_steps_is_left_to_snakemake() -> None:
    cut = Cut(until=["fetch", "clean"], omit_from=["model"])
    assert cut.among(["clean", "model"]) == Cut(omit_from=["model"])
    assert cut.among(["clean", "model", "fetch"]) == cut
