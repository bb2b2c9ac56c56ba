"""What the rules of an experiment are called: short, telling, never the same for two kinds of steps."""

from __future__ import annotations

import re

import pytest

from marin_rules.engine.names import rule_names
from marin_rules.machines import MachineRequest
from marin_rules.plans.frozen import FrozenStep

MACHINES = MachineRequest(cpu=2, memory_mb=100, disk_mb=0)


def a_step(function: str, *, remote: bool = False, rule: str | None = None) -> FrozenStep:
    return FrozenStep(
        0, "s-1", "s", "/out/s-1", "1", 0, function, (), True, True, rule=rule, machines=MACHINES if remote else None
    )


def named(*functions: str, rules: tuple[str, ...] = (), reserved: tuple[str, ...] = ("all",)) -> list[str]:
    """The names of these functions' rules; a function with a `>` before it has its steps sent away."""
    steps = [a_step(function.removeprefix(">"), remote=function.startswith(">")) for function in functions]
    found = rule_names([*steps, *(a_step("", rule=rule) for rule in rules)], reserved)
    return [found[step.function, step.machines is not None] for step in steps]


@pytest.mark.parametrize(
    ("functions", "names"),
    [
        (["x.train"], ["train"]),
        (["train"], ["train"]),
        (["x.train", "x.tokenize", "x.train"], ["train", "tokenize", "train"]),
        # Two of the same name: as much of the modules as tells them apart.
        (["a.train", "b.train"], ["a_train", "b_train"]),
        (["p.a.train", "q.a.train"], ["a_train", "q_a_train"]),
        (["train", "b.train"], ["train_2", "b_train"]),
        # One that is called what another would have been lengthened to.
        (["x.a_train", "a.train", "b.train"], ["a_train", "train_2", "b_train"]),
        # What is no identifier for Snakemake.
        (["x.<lambda>"], ["lambda"]),
        (["x.make.<locals>.train"], ["train"]),
        # A lambda is called after the function that makes it: most StepSpecs have one.
        (["x.tokenize_step.<locals>.<lambda>", "x.train"], ["tokenize_step", "train"]),
        (["a.make.<locals>.<lambda>", "b.make.<locals>.<lambda>"], ["a_make", "b_make"]),
        (["x.3d"], ["_3d"]),
        (["x.größe"], ["gr_e"]),
        (["x.訓練"], ["x"]),
        (["訓練"], ["step"]),
        (["訓練", "数"], ["step", "step_2"]),
        # The rule `all` is Snakemake's entry.
        (["x.all"], ["x_all"]),
        (["all"], ["all_2"]),
        # Steps that are sent away have a rule of their own.
        ([">x.train"], ["train"]),
        (["x.train", ">x.train"], ["train_here", "train"]),
        ([">x.train", "x.train"], ["train", "train_here"]),
        (["x.train", ">x.train", "x.train_here"], ["train_here_", "train", "train_here"]),
    ],
)
def test_the_rule_of_each_kind_of_step(functions: list[str], names: list[str]) -> None:
    assert named(*functions) == names


def test_hand_written_rules_keep_their_names() -> None:
    assert named("x.train", rules=("train",)) == ["x_train"]
    assert named("x.train", ">x.train", rules=("train_here",)) == ["train_here_", "train"]
    assert rule_names([a_step("", rule="train")]) == {}


def test_any_functions_have_different_names_that_snakemake_takes() -> None:
    parts = ["a", "b", "a_b", "<lambda>", "2", "_", "ü", "here", "all"]
    functions = [f"{one}.{two}" for one in parts for two in parts] + parts
    names = named(*functions, *(f">{function}" for function in functions), rules=("a_b", "here_here"))
    assert len(set(names)) == len(names)
    assert not {"all", "a_b", "here_here"} & set(names)
    for name in names:
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
