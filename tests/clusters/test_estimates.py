"""What steps may cost, in words, and when that is too much."""

from __future__ import annotations

import pytest

from marin_rules.clusters.estimates import Estimate, refusal, summary
from marin_rules.clusters.prices import UNKNOWN, Price

PRICE = Price(1.23, "2026-02-12", "a page")

TRAIN = Estimate("train", PRICE, 240)  # 4.92
EVALUATE = Estimate("evaluate", Price(0.5, "2026-08-21", "a page"), 30)  # 0.25
TOKENIZE = Estimate("tokenize", PRICE, 60, tasks=64)  # 78.72
ENDLESS = Estimate("endless", PRICE, None)
ODD = Estimate("odd", UNKNOWN, 60)


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (TRAIN, "$1.23 an hour, at most $4.92 an attempt"),
        (TOKENIZE, "$1.23 an hour, at most $1.23 an attempt, $78.72 for all tasks"),
        (ENDLESS, "$1.23 an hour, without a time limit"),
        (ODD, "price unknown"),
        (Estimate("tiny", Price(0.002, "d"), 60), "less than $0.01 an hour, less than $0.01 an attempt"),
    ],
)
def test_a_step(estimate: Estimate, words: str) -> None:
    assert str(estimate) == words


def test_the_sum_says_what_is_not_in_it() -> None:
    assert summary([]) is None
    assert summary([TRAIN, EVALUATE]) == "cost: at most $5.17 at list prices of 2026-02-12, if each step runs once"
    assert summary([TRAIN, ODD, ENDLESS, EVALUATE]) == (
        "cost: at most $5.17 at list prices of 2026-02-12, if each step runs once; 2 steps without a known price or"
        " time limit not included"
    )
    assert summary([ODD]) == "cost: unknown, for 1 step without a known price or time limit"


@pytest.mark.parametrize("limit", [5.17001, 6, 1000])
def test_what_may_be_spent(limit: float) -> None:
    assert refusal([TRAIN, EVALUATE], limit) is None


def test_nothing_costs_nothing() -> None:
    assert refusal([], 0) is None


def test_too_expensive() -> None:
    assert refusal([EVALUATE, TRAIN, TOKENIZE], 80) == (
        "max_usd=80 cannot be kept: the steps may cost $83.89 at list prices of 2026-02-12: tokenize ($78.72), train"
        " ($4.92), evaluate ($0.25). Raise max_usd, lower the time limits of the steps, or choose some of them with"
        " run_only."
    )


def test_what_is_unknown_may_cost_anything() -> None:
    assert refusal([TRAIN, ODD, ENDLESS], 1000) == (
        "max_usd=1000 cannot be kept: the price of odd is unknown: ask for other machines, or add their price to"
        " config/machine_prices.yaml; endless may run forever: set `runtime` in the cluster's file, or --set-resources"
        " RULE:runtime=MINUTES."
    )


def test_of_many_steps_a_few_are_named() -> None:
    odd = [Estimate(f"s{number}", UNKNOWN, 60) for number in range(8)]
    assert "the price of s0, s1, s2, s3, s4 and 3 more is unknown" in (refusal(odd, 1) or "")
