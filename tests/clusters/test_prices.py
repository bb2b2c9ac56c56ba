"""Prices of jobs, on their way from the driver into the books of a step and out of them again."""

from __future__ import annotations

from typing import Any

import pytest

from marin_rules.clusters.prices import (
    UNKNOWN,
    Cost,
    Price,
    cost_of_tasks,
    price_fields,
    price_variables,
    recorded_cost,
    total,
)

OLD, NEW = Price(2.0, "2026-01-01", "a page"), Price(0.5, "2026-06-01", "another")


def ran(seconds: Any, variables: dict[str, str]) -> dict[str, Any]:
    """What a worker writes down of a job that was given these variables."""
    return {"id": "x", "seconds": seconds, "gcp": {"job_id": "7", **price_fields(variables)}}


def test_a_sum_is_as_old_as_its_oldest_part() -> None:
    whole = OLD * 3 + NEW
    assert whole == Price(6.5, "2026-01-01", "a page; another")
    assert (OLD + OLD).source == "a page"


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert UNKNOWN == OLD + UNKNOWN == UNKNOWN + OLD == UNKNOWN * 2


def test_a_job_costs_its_price_for_the_time_it_ran() -> None:
    cost = recorded_cost(ran(558, price_variables(OLD)))
    assert cost == Cost(0.31, "2026-01-01")
    assert str(cost) == "about $0.31 (list price of 2026-01-01)"
    assert str(recorded_cost(ran(1, price_variables(NEW)))) == "less than $0.01 (list price of 2026-06-01)"


@pytest.mark.parametrize("price", [None, UNKNOWN])
def test_a_job_without_a_price_writes_none_down(price: Price | None) -> None:
    assert price_variables(price) == {}
    assert recorded_cost(ran(558, price_variables(price))) is None


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"seconds": 3},
        {"seconds": None, "gcp": {"job_id": "7", "usd_an_hour": 1.0, "price_date": "d"}},
        {"seconds": True, "gcp": {"job_id": "7", "usd_an_hour": 1.0, "price_date": "d"}},
        {"seconds": 3, "gcp": {"job_id": "7", "usd_an_hour": "1", "price_date": "d"}},
        {"seconds": 3, "gcp": {"job_id": "7", "usd_an_hour": 1.0}},
        {"cost": {"usd": "much"}},
        ran(558, {"MARIN_RULES_JOB_PRICE": "cheap"}),
    ],
)
def test_what_is_not_written_down_is_not_known(run: dict[str, Any]) -> None:
    assert recorded_cost(run) is None


def test_an_array_step_costs_what_its_tasks_do() -> None:
    tasks = [ran(1800, price_variables(OLD)), ran(3600, price_variables(NEW))]
    cost = cost_of_tasks(tasks)
    assert cost == Cost(1.5, "2026-01-01")
    assert recorded_cost({"seconds": 9999, **cost.to_fields()}) == cost
    assert cost_of_tasks([*tasks, ran(3600, {})]) is None
    assert cost_of_tasks([]) is None


def test_no_costs_have_no_sum() -> None:
    assert total([]) is None
    assert total([Cost(1.0, "b"), Cost(2.0, "a")]) == Cost(3.0, "a")
