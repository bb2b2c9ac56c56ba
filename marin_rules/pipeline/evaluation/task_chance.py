"""What chance gets in a task of lm-eval, and standard errors that lm-eval does not give.

Chance is a guess among the answers of a question, or a model that gives all tokens (or all answers) the same
probability, whichever a score is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from marin_rules.pipeline.evaluation.statistics import estimate_of_items, guessing, sums_of_items
from marin_rules.pipeline.evaluation.task_files import stated_chance

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

type Aggregate = Callable[[Sequence[Any]], Any]
"""How lm-eval makes a score of the values of items."""

_RATIOS = ("bits_per_byte", "byte_perplexity", "perplexity", "word_perplexity")
"""Scores of log-probabilities for bytes, words or items."""


class Chance(NamedTuple):
    score: float | None
    standard_error: float | None


UNKNOWN = Chance(None, None)


def chance_of(
    metric: str,
    values: Mapping[Any, Any],
    samples: Sequence[Mapping[str, Any]],
    task: Any,
    blind: Mapping[Any, float],
    resamples: int,
    seed: int,
) -> Chance:
    """Of a metric with these values by item. `blind` is the log-probability of each item for a model that gives all
    tokens the same."""
    stated = None if metric in _RATIOS else stated_chance(task)
    if stated is not None:
        return Chance(*guessing([stated] * len(samples)))
    if task.OUTPUT_TYPE == "generate_until":
        return Chance(0.0, 0.0) if metric == "exact_match" else UNKNOWN
    if task.OUTPUT_TYPE == "multiple_choice" and metric.startswith("acc"):
        answers = _answers(samples)
        return Chance(*guessing([_right(sample["target"]) / answers[number] for number, sample in enumerate(samples)]))
    if task.config.process_results:  # Which may make anything of the answers.
        return UNKNOWN
    if task.OUTPUT_TYPE == "multiple_choice":
        aggregate = task.aggregation().get(metric)
        return _of_pairs(metric, list(values.values()), _answers(samples), aggregate, resamples, seed)
    if not blind.keys() >= values.keys():
        return UNKNOWN
    if metric == "acc":
        return Chance(*guessing([math.exp(blind[id]) for id in values]))
    weights = {id: value[1] if isinstance(value, list | tuple) else 1 for id, value in values.items()}
    return _ratio(metric, [(blind[id], weight) for id, weight in weights.items()], resamples, seed)


def error_of(
    metric: str, values: Sequence[Any], aggregate: Aggregate | None, resamples: int, seed: int
) -> float | None:
    """The standard error of a score for which lm-eval gives none, by resampling items."""
    import numpy

    if len(values) < 2 or any(value is None for value in values):
        return None
    if metric in _RATIOS:
        return _ratio(metric, values, resamples, seed).standard_error
    if aggregate is None:
        return None
    generator = numpy.random.default_rng(seed)
    draws = (generator.integers(0, len(values), len(values)) for _ in range(resamples))
    scores = [float(aggregate([values[number] for number in draw])) for draw in draws]
    # Resamples spread around the mean of the items that there are, and those around the true one.
    error = float(numpy.std(scores, ddof=1)) * math.sqrt(len(values) / (len(values) - 1))
    return error if math.isfinite(error) else None


def _answers(samples: Sequence[Mapping[str, Any]]) -> list[int]:
    """How many there are for each question. For `acc_mutual_info` lm-eval asks for each answer twice: with the
    question, and without."""
    times = 2 if any("acc_mutual_info" in sample["metrics"] for sample in samples) else 1
    return [len(sample["arguments"]) // times for sample in samples]


def _right(target: Any) -> int:
    """How many answers of a question are right: the target is a number, or a list of numbers."""
    return len(set(target)) if isinstance(target, list | tuple) else 1


def _of_pairs(
    metric: str,
    values: Sequence[Any],
    answers: Sequence[int],
    aggregate: Aggregate | None,
    resamples: int,
    seed: int,
) -> Chance:
    """Of a score of pairs of the right answer and what a model says of it."""
    import numpy

    is_pair = all(isinstance(value, list | tuple) and isinstance(value[0], int) for value in values)
    if aggregate is None or not is_pair or not values:
        return UNKNOWN
    right = [value[0] for value in values]
    if metric == "brier_score":
        equal = [(one, numpy.full(count, 1 / count)) for one, count in zip(right, answers, strict=True)]
        return Chance(float(aggregate(equal)), error_of(metric, equal, aggregate, resamples, seed))
    if metric not in ("f1", "mcc"):
        return UNKNOWN
    generator = numpy.random.default_rng(seed)
    guesses = (generator.integers(0, answers) for _ in range(resamples))
    scores = [float(aggregate(list(zip(right, guess.tolist(), strict=True)))) for guess in guesses]
    return Chance(float(numpy.mean(scores)), float(numpy.std(scores, ddof=1)))


def _ratio(metric: str, values: Sequence[Any], resamples: int, seed: int) -> Chance:
    """A score of whole texts and its standard error, from pairs: a log-probability, and a number of words or bytes."""
    import numpy

    if metric not in _RATIOS or not all(isinstance(value, list | tuple) for value in values):
        return UNKNOWN

    def score(sums: Array) -> Array:
        mean = -sums[..., 0, 0] / sums[..., 0, 1]
        return mean / math.log(2) if metric == "bits_per_byte" else numpy.exp(mean)

    with numpy.errstate(over="ignore", invalid="ignore"):  # What cannot be written down is left out.
        found = estimate_of_items(score, [sums_of_items(numpy.array(values, numpy.float64), metric, resamples, seed)])
    known = [None if one is None or not math.isfinite(one) else one for one in (found.value, found.standard_error)]
    return Chance(*known)
