"""How good a classifier is on documents that it has not seen: pure functions of its probabilities and the truth.

Each label is judged against all others. An area under the curve (AUC) is the chance that a document with the label gets
a higher score than one without; equal scores count half. Its interval is that of a bootstrap over documents. The
expected calibration error is the mean distance between the scores of a bin and the share of documents that have the
label, weighted by the size of bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

BINS = 10
_RESAMPLES = 500
_LEVEL = 0.95
_DIGITS = 6


class Bin(NamedTuple):
    """Documents whose scores for a label are within limits."""

    label: str
    lower: float
    upper: float
    documents: int
    mean_score: float
    share: float
    """Of its documents that have the label."""


def judged(truth: Sequence[str], scores: Sequence[Mapping[str, float]], seed: int) -> tuple[dict[str, Any], list[Bin]]:
    """Metrics of a classifier, and its reliability table."""
    import numpy

    labels = sorted({*truth, *(label for one in scores for label in one)})
    guesses = [max(sorted(one), key=one.__getitem__) if one else None for one in scores]
    right = numpy.array([guess == label for guess, label in zip(guesses, truth, strict=True)])
    by_label: dict[str, Any] = {}
    table: list[Bin] = []
    for label in labels:
        is_label = numpy.array([one == label for one in truth])
        is_guess = numpy.array([one == label for one in guesses])
        of_label = numpy.array([one.get(label, 0.0) for one in scores])
        hits = int((is_label & is_guess).sum())
        bins = _bins(label, is_label, of_label)
        area, interval = area_under_curve(is_label, of_label, seed)
        by_label[label] = {
            "documents": int(is_label.sum()),
            "precision": _ratio(hits, int(is_guess.sum())),
            "recall": _ratio(hits, int(is_label.sum())),
            "auc": area,
            "auc_interval": interval,
            "expected_calibration_error": _rounded(
                sum(one.documents * abs(one.mean_score - one.share) for one in bins) / len(truth)
            ),
            "brier_score": _rounded(float(((of_label - is_label) ** 2).mean())),
        }
        table += bins
    most = max(one["documents"] for one in by_label.values())
    metrics = {
        "documents": len(truth),
        "accuracy": _rounded(float(right.mean())),
        "accuracy_of_the_most_frequent_label": _rounded(most / len(truth)),
        "interval_level": _LEVEL,
        "labels": by_label,
    }
    return metrics, table


def area_under_curve(is_label: Array, scores: Array, seed: int) -> tuple[float | None, list[float] | None]:
    """The area and its interval; None if all documents, or none, have the label."""
    import numpy

    if is_label.all() or not is_label.any():
        return None, None
    order = numpy.argsort(scores, kind="stable")
    ordered, positive = scores[order], is_label[order]
    starts = numpy.flatnonzero(numpy.concatenate(([True], ordered[1:] != ordered[:-1])))
    chance = numpy.random.default_rng(seed)
    areas = []
    for _ in range(_RESAMPLES):
        drawn = numpy.bincount(chance.integers(len(order), size=len(order)), minlength=len(order))
        areas.append(_area(drawn, positive, starts))
    known = [area for area in areas if area is not None]
    tail = (1 - _LEVEL) / 2
    interval = [_rounded(float(numpy.quantile(known, level))) for level in (tail, 1 - tail)] if known else None
    area = _area(numpy.ones(len(order), numpy.int64), positive, starts)
    return None if area is None else _rounded(area), interval


def _area(counts: Array, positive: Array, starts: Array) -> float | None:
    """Of documents in the order of their scores, each counted several times; equal scores begin at `starts`."""
    import numpy

    with_label = numpy.add.reduceat(counts * positive, starts)
    without = numpy.add.reduceat(counts * ~positive, starts)
    pairs = int(with_label.sum()) * int(without.sum())
    below = numpy.cumsum(without) - without
    return float((with_label * (below + without / 2)).sum() / pairs) if pairs else None


def _bins(label: str, is_label: Array, scores: Array) -> list[Bin]:
    import numpy

    places = numpy.minimum((scores * BINS).astype(int), BINS - 1)
    found = []
    for place in range(BINS):
        here = places == place
        if count := int(here.sum()):
            mean, share = float(scores[here].mean()), float(is_label[here].mean())
            found.append(Bin(label, place / BINS, (place + 1) / BINS, count, _rounded(mean), _rounded(share)))
    return found


def _ratio(part: int, whole: int) -> float | None:
    return _rounded(part / whole) if whole else None


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
