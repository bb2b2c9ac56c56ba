"""What machines of a cluster cost: an hour of a job, and the cost of an ended job.

List prices, with their date and source. A price that is not known stays unknown: a sum with one unknown part is unknown
as a whole. The price of a job's hour is recorded with the job, so that its cost can be stated later, at the prices of
its day.

The folder of each cluster knows which machine costs what (see `protocol.Site.price`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from marin_rules.state.recorded_job import recorded_job
from marin_rules.units import about_dollars

PRICE_VARIABLE = "MARIN_RULES_JOB_PRICE"
"""Tells a job what an hour of it costs: `<dollars> <date>`."""

_DOLLARS_FIELD, _DATE_FIELD = "usd_an_hour", "price_date"
"""Of the job in an info file."""

_COST = "cost"
"""In the `run` block of an info file: what all tasks of an array step cost."""

_SECONDS_IN_AN_HOUR = 3600


@dataclass(frozen=True)
class Price:
    """What an hour costs."""

    dollars: float | None
    """US dollars; None if that is not known."""

    date: str = ""
    """When it was the price; of a sum, the earliest day of its parts."""

    source: str = ""
    """Where it was read."""

    def __mul__(self, number: float) -> Price:
        return UNKNOWN if self.dollars is None else Price(self.dollars * number, self.date, self.source)

    def __add__(self, other: Price) -> Price:
        if self.dollars is None or other.dollars is None:
            return UNKNOWN
        sources = dict.fromkeys([self.source, other.source])
        return Price(self.dollars + other.dollars, min(self.date, other.date), "; ".join(sources))


UNKNOWN = Price(None)


@dataclass(frozen=True)
class Cost:
    """Roughly what was spent."""

    dollars: float
    date: str
    """The date of the earliest price that it is based on."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.dollars + other.dollars, min(self.date, other.date))

    def __str__(self) -> str:
        return f"{about_dollars(self.dollars)} (list price of {self.date})"

    def to_fields(self) -> dict[str, Any]:
        """As recorded in the `run` block of an info file."""
        return {_COST: {"usd": round(self.dollars, 6), _DATE_FIELD: self.date}}


def total(costs: Iterable[Cost]) -> Cost | None:
    """All of them together; None if there are none."""
    found = list(costs)
    return reduce(add, found) if found else None


# --- from the driver to the job, and into its books


def price_variables(price: Price | None) -> dict[str, str]:
    """What a job is given so that it can record its price."""
    return {} if price is None or price.dollars is None else {PRICE_VARIABLE: f"{price.dollars:.6f} {price.date}"}


def price_fields(variables: Mapping[str, str]) -> dict[str, Any]:
    """What a job records about its price, with what else is known; nothing if it was not given."""
    dollars, _, date = variables.get(PRICE_VARIABLE, "").partition(" ")
    try:
        return {_DOLLARS_FIELD: float(dollars), _DATE_FIELD: date}
    except ValueError:
        return {}


# --- out of the books


def recorded_cost(run: Mapping[str, Any]) -> Cost | None:
    """What an attempt at a step cost, by its `run` block; None if that is not known.

    An array step has the cost of its tasks, any other the price of its job and the seconds that it ran.
    """
    spent = run.get(_COST)
    if isinstance(spent, Mapping):
        return _cost(spent.get("usd"), spent.get(_DATE_FIELD))
    job = recorded_job(run)
    return None if job is None else _cost_of_job(job.fields, run.get("seconds"))


def cost_of_tasks(records: Iterable[Mapping[str, Any]]) -> Cost | None:
    """What the tasks of an array step cost, by the fields of their records; None if one of them does not say."""
    found = [recorded_cost(fields) for fields in records]
    known = [cost for cost in found if cost is not None]
    return total(known) if len(known) == len(found) else None


def _cost_of_job(job: Mapping[str, Any], seconds: object) -> Cost | None:
    hourly, ran = _cost(job.get(_DOLLARS_FIELD), job.get(_DATE_FIELD)), _number(seconds)
    return None if hourly is None or ran is None else Cost(hourly.dollars * ran / _SECONDS_IN_AN_HOUR, hourly.date)


def _cost(dollars: object, date: object) -> Cost | None:
    amount = _number(dollars)
    return None if amount is None or not isinstance(date, str) else Cost(amount, date)


def _number(value: object) -> float | None:
    """Anybody may have edited the file."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
