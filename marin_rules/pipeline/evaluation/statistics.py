"""Uncertainty by resampling items (documents, questions): pure functions of numbers.

Every score here is a function of sums over items: bits per byte is a sum of bits over a sum of bytes, an accuracy a sum
of hits over a count. So items are rows, what is summed are columns, and a resample is a row of sums. Models that are
compared are columns of the same rows: each resample then draws the same items for all of them, and what makes an item
hard for everyone cancels out of their difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.errors import DataError

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

CONFIDENCE = 0.95
"""Of every interval in the project."""

RESAMPLES = 1000
_LEAST_RESAMPLES = 100

_NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Estimate:
    """A number and how sure it is."""

    value: float
    standard_error: float | None
    """None if there are too few items to tell."""

    low: float | None
    high: float | None
    """The ends of the interval."""

    def to_json(self) -> dict[str, float | None]:
        return {"value": self.value, "standard_error": self.standard_error, "low": self.low, "high": self.high}


def resampled_sums(columns: Array, name: str, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """For each resample of the rows, with replacement, the sums of the columns.

    The draw depends on the name of the set and on the number of its items, so that two sets are drawn independently and
    the same set is drawn alike each time.
    """
    import numpy

    rows = numpy.asarray(columns, numpy.float64)
    count = len(rows)
    generator = numpy.random.default_rng([seed, count, _number_of(name)])
    sums = numpy.empty((resamples, rows.shape[1]))
    for number in range(resamples):
        times = numpy.bincount(generator.integers(0, count, count), minlength=count)
        sums[number] = times @ rows
    return sums


def refuse_few_resamples(resamples: int) -> None:
    if resamples < _LEAST_RESAMPLES:
        raise DataError(f"{resamples} resamples say little about 95% intervals: use at least {_LEAST_RESAMPLES}")


def estimate(value: float, resampled: Array, items: int) -> Estimate:
    """A value with the standard deviation and the percentiles of its resamples. A single item says nothing of them."""
    import numpy

    if items < 2:
        return Estimate(float(value), None, None, None)
    tail = (1 - CONFIDENCE) / 2
    low, high = numpy.quantile(resampled, [tail, 1 - tail])
    return Estimate(float(value), float(numpy.std(resampled, ddof=1)), float(low), float(high))


@dataclass(frozen=True)
class ItemSums:
    """A set of items: the sums of its columns, and those of its resamples."""

    sums: Array
    resampled: Array
    items: int


def sums_of_items(columns: Array, name: str, resamples: int = RESAMPLES, seed: int = 0) -> ItemSums:
    import numpy

    rows = numpy.asarray(columns, numpy.float64)
    return ItemSums(rows.sum(axis=0), resampled_sums(rows, name, resamples, seed), len(rows))


def estimate_of_items(score: Callable[[Array], Array], sets: Sequence[ItemSums]) -> Estimate:
    """A score of sets of items, from an array of their sums whose last axes are the sets and the columns.

    Percentiles of resamples are too narrow for few items, whose spread is known from themselves only: of five
    documents, they hold the truth 8 times in 10, and 9 times if they are as wide as Student's. Of several sets, the
    smallest may be all that is uncertain, however many items the others have: degrees of freedom are those of Welch and
    Satterthwaite. A set of one item says nothing of how items differ, so neither does a score with it.
    """
    import numpy

    sums = numpy.stack([one.sums for one in sets])
    drawn = numpy.stack([one.resampled for one in sets], axis=1)
    value = float(score(sums))
    found = estimate(value, score(drawn), min(one.items for one in sets))
    if found.standard_error is None or found.low is None or found.high is None:
        return found
    freedoms = numpy.array([one.items - 1 for one in sets])
    variances = numpy.array([_variance_by(place, score, sums, drawn) for place in range(len(sets))])
    if not variances.any():
        return found
    # Resamples spread around the mean of the items that there are, and those around the true one.
    unbiased = variances * (freedoms + 1) / freedoms
    widening = float(numpy.sqrt(unbiased.sum() / variances.sum()))
    stretch = widening * few_items(float(unbiased.sum() ** 2 / (unbiased**2 / freedoms).sum()))
    return Estimate(
        value,
        widening * found.standard_error,
        value + stretch * (found.low - value),
        value + stretch * (found.high - value),
    )


def _variance_by(place: int, score: Callable[[Array], Array], sums: Array, drawn: Array) -> float:
    """Of the score if one of the sets were drawn again, and the others stayed as they are."""
    import numpy

    alone = numpy.broadcast_to(sums, drawn.shape).copy()
    alone[:, place] = drawn[:, place]
    return float(numpy.var(score(alone), ddof=1))


def few_items(freedom: float) -> float:
    """By how much resamples of residuals are to be stretched, because so few degrees of freedom are left to tell how
    large residuals are: Student's quantile over that of a normal distribution."""
    from scipy.stats import norm, t

    tail = (1 + CONFIDENCE) / 2
    return float(t.ppf(tail, freedom) / norm.ppf(tail))


def symmetric(value: float, resampled: Array, *, is_logarithm: bool = False) -> Estimate:
    """An interval of as many standard deviations to both sides as a normal distribution has: surer than percentiles of
    few resamples. Of a logarithm, the number itself and its interval."""
    import numpy
    from scipy.stats import norm

    width = float(norm.ppf((1 + CONFIDENCE) / 2) * numpy.std(resampled, ddof=1))
    if not is_logarithm:
        return Estimate(float(value), float(numpy.std(resampled, ddof=1)), value - width, value + width)
    natural = numpy.exp(numpy.array([value, value - width, value + width]))
    return Estimate(float(natural[0]), float(numpy.std(numpy.exp(resampled), ddof=1)), *natural[1:].tolist())


def agreeing(values: Array) -> float | None:
    """The standard error of a share of hits if all items hit, or all miss, where the textbook's and a bootstrap's are 0
    however few they are: that of Agresti and Coull's estimate, which adds two of each. None if items differ."""
    import numpy

    array = numpy.asarray(values, numpy.float64)
    if len(array) < 2 or array[0] not in (0.0, 1.0) or (array != array[0]).any():
        return None
    added = _NORMAL**2
    count = len(array) + added
    return float(numpy.sqrt((len(array) + added / 2) * (added / 2) / count**3))


def agreeing_difference(values: Array, others: Array) -> Estimate | None:
    """Of two shares of hits among the same items, if all items differ alike, so that no resample does otherwise: the
    interval of Agresti and Min, who add half an item of each kind. None if they do not."""
    import numpy

    one, other = numpy.asarray(values, numpy.float64), numpy.asarray(others, numpy.float64)
    differences = one - other
    is_share = bool(numpy.isin(one, (0.0, 1.0)).all() and numpy.isin(other, (0.0, 1.0)).all())
    if len(differences) < 2 or not is_share or (differences != differences[0]).any():
        return None
    count, sum_of_differences = len(differences) + 2, float(differences.sum())
    variance = (abs(sum_of_differences) + 1 - sum_of_differences**2 / count) / count**2
    middle, error = sum_of_differences / count, float(numpy.sqrt(variance))
    low, high = (min(1.0, max(-1.0, middle + side * _NORMAL * error)) for side in (-1, 1))
    return Estimate(float(differences[0]), error, low, high)


def guessing(chances: Sequence[float]) -> tuple[float, float]:
    """The expected score of guesses that are right with these probabilities, and the standard deviation of that
    score: a model within two of it may have guessed."""
    import numpy

    array = numpy.asarray(chances, numpy.float64)
    return float(array.mean()), float(numpy.sqrt((array * (1 - array)).sum()) / len(array))


def _number_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
