"""Which configs and numbers are put side by side."""

from typing import Any

import pytest

from marin_rules.views.sweep import Variant, as_written, sweeps


def variants(*pairs: tuple[Any, Any], function: str = "m.fit", **more: Any) -> list[Variant]:
    return [Variant(number, function, config, returned, **more) for number, (config, returned) in enumerate(pairs)]


def test_what_differs_against_what_was_returned() -> None:
    (sweep,) = sweeps(
        variants(
            ({"lr": 0.1, "seed": 0, "model": {"layers": 2}}, {"loss": 0.5, "eval": {"accuracy": 0.75}, "note": "x"}),
            ({"lr": 0.2, "seed": 0, "model": {"layers": 4}}, None),
        )
    )
    assert sweep.function == "m.fit"
    assert sweep.fields == ["lr", "model.layers"]
    assert sweep.numbers == ["loss", "eval.accuracy"]
    assert sweep.rows == [(0, [0.1, 2], [0.5, 0.75]), (1, [0.2, 4], [None, None])]


@pytest.mark.parametrize(
    "pairs",
    [
        [({"lr": 1}, {"loss": 1})],
        [({"lr": 1}, {"loss": 1}), ({"lr": 1}, {"loss": 2})],
        [({"lr": 1}, None), ({"lr": 2}, None)],
        [({"lr": 1}, {"ok": True}), ({"lr": 2}, {"ok": False})],
        [({"lr": 1}, ["a", 1]), ({"lr": 2}, "text")],
        [({"lr": 1}, {"lr": 1}), ({"lr": 2}, {"lr": 2})],
    ],
    ids=["one step", "same config", "nothing returned", "no numbers", "lists and text", "only an echo"],
)
def test_what_is_no_sweep(pairs: list[tuple[Any, Any]]) -> None:
    assert sweeps(variants(*pairs)) == []


def test_output_paths_are_no_settings() -> None:
    pairs = [({"o": f"out/fit-{n}", "d": f"out/data-{n}/x.txt", "lr": n}, {"loss": n}) for n in range(2)]
    paths = frozenset({"out/fit-0", "out/fit-1", "out/data-0", "out/data-1"})
    (sweep,) = sweeps(variants(*pairs, paths=paths))
    assert sweep.fields == ["lr"]


def test_an_echo_is_left_out_but_a_different_number_is_not() -> None:
    pairs = [({"lr": n, "bs": n}, {"lr": n, "bs": 2 * n, "loss": n}) for n in (1, 2)]
    (sweep,) = sweeps(variants(*pairs))
    assert sweep.numbers == ["bs", "loss"]


def test_a_number_alone_and_a_plain_config() -> None:
    (sweep,) = sweeps(variants((1, 0.5), (2, 0.25)))
    assert (sweep.fields, sweep.numbers) == (["config"], ["returned"])
    assert sweep.rows == [(0, [1], [0.5]), (1, [2], [0.25])]


def test_functions_are_kept_apart() -> None:
    found = sweeps([*variants((1, 1), (2, 2)), *variants((1, 1), (2, 2), function="m.eval")])
    assert [sweep.function for sweep in found] == ["m.fit", "m.eval"]


def test_a_table_has_an_end() -> None:
    pairs = [({f"x{n}": step for n in range(100)}, {f"y{n}": step for n in range(50)}) for step in (1, 2)]
    (sweep,) = sweeps(variants(*pairs))
    assert (len(sweep.fields), len(sweep.numbers), sweep.left_out) == (12, 12, 126)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.1 + 0.2, "0.3"), (1e-9, "1e-09"), (123456789, "123456789"), (True, "True"), ("adam", "adam")],
)
def test_how_cells_are_written(value: Any, text: str) -> None:
    assert as_written(value) == text


def test_what_is_not_a_number_is_written_so() -> None:
    assert as_written(float("nan")) == "nan"
    assert as_written(float("inf")) == "inf"
