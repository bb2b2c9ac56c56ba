"""What jobs may cost before they run, and whether that is more than a run may spend: pure.

A job costs its price an hour until its time limit at most, and so does each attempt: one that fails, or loses its
machine, still costs something. A step that is divided into tasks has a job for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marin_rules.clusters.prices import Price
from marin_rules.units import dollars_text

_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Estimate:
    """What a step may cost."""

    step: str
    price: Price
    """For an hour of its job, or of the job of one task."""

    minutes: int | None
    """The time limit of a job; None if it has none."""

    tasks: int = 1

    @property
    def most(self) -> float | None:
        """What an attempt costs in dollars if it takes its full time; None if that is not known."""
        one = self._most_of_one
        return None if one is None else one * self.tasks

    @property
    def _most_of_one(self) -> float | None:
        return None if self.price.dollars is None or self.minutes is None else self.price.dollars * self.minutes / 60

    def __str__(self) -> str:
        """`$1.23 an hour, at most $4.92 an attempt`"""
        if self.price.dollars is None:
            return "price unknown"
        words = f"{dollars_text(self.price.dollars)} an hour"
        one, most = self._most_of_one, self.most
        if one is None or most is None:
            return f"{words}, without a time limit"
        words += f", {_at_most(one)} an attempt"
        return words if self.tasks == 1 else f"{words}, {dollars_text(most)} for all tasks"


def summary(estimates: Sequence[Estimate]) -> str | None:
    """One line about all steps that cost something; None if there are none."""
    if not estimates:
        return None
    known = [estimate for estimate in estimates if estimate.most is not None]
    unknown = len(estimates) - len(known)
    if not known:
        return f"cost: unknown, for {_steps(unknown)} without a known price or time limit"
    words = f"cost: {_at_most(_most(known))} at list prices of {_date(known)}, if each step runs once"
    return f"{words}; {_steps(unknown)} without a known price or time limit not included" if unknown else words


def refusal(estimates: Sequence[Estimate], limit: float) -> str | None:
    """Why these steps must not run if no more than `limit` dollars may be spent; None if they may."""
    reasons = []
    if unpriced := [estimate.step for estimate in estimates if estimate.price.dollars is None]:
        reasons.append(
            f"the price of {_names(unpriced)} is unknown: ask for other machines, or add their price to"
            " config/machine_prices.yaml"
        )
    if endless := [item.step for item in estimates if item.price.dollars is not None and item.minutes is None]:
        reasons.append(
            f"{_names(endless)} may run forever: set `runtime` in the cluster's file, or --set-resources"
            " RULE:runtime=MINUTES"
        )
    known = sorted((item for item in estimates if item.most is not None), key=lambda item: -(item.most or 0.0))
    if _most(known) > limit:
        shares = [f"{item.step} ({dollars_text(item.most or 0.0)})" for item in known]
        reasons.append(
            f"the steps may cost {dollars_text(_most(known))} at list prices of {_date(known)}: {_names(shares)}. Raise"
            " max_usd, lower the time limits of the steps, or choose some of them with run_only"
        )
    return f"max_usd={limit:g} cannot be kept: {'; '.join(reasons)}." if reasons else None


def _at_most(dollars: float) -> str:
    text = dollars_text(dollars)
    return f"at most {text}" if text.startswith("$") else text


def _most(known: Sequence[Estimate]) -> float:
    return sum(estimate.most or 0.0 for estimate in known)


def _date(known: Sequence[Estimate]) -> str:
    return min(estimate.price.date for estimate in known)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _steps(count: int) -> str:
    return f"{count} {'step' if count == 1 else 'steps'}"
