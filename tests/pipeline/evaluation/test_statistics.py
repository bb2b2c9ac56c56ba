"""Resampling against formulas that are known."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

from marin_rules.pipeline.evaluation.statistics import (
    agreeing,
    agreeing_difference,
    estimate,
    estimate_of_items,
    few_items,
    guessing,
    resampled_sums,
    sums_of_items,
)


def test_the_error_of_a_mean_is_that_of_the_textbook() -> None:
    values = numpy.random.default_rng(1).normal(3.0, 2.0, 400)
    sums = resampled_sums(numpy.stack([values, numpy.ones(400)], axis=1), "set", 2000)
    found = estimate(values.mean(), sums[:, 0] / sums[:, 1], 400)
    assert found.standard_error == pytest.approx(values.std(ddof=1) / 20, rel=0.06)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std(ddof=1) / 20, rel=0.1)


def test_the_error_of_a_ratio_is_that_of_the_textbook() -> None:
    generator = numpy.random.default_rng(2)
    size = generator.integers(100, 5000, 300).astype(float)
    bits = size * generator.normal(1.2, 0.2, 300)
    sums = resampled_sums(numpy.stack([bits, size], axis=1), "set", 3000)
    ratio = bits.sum() / size.sum()
    linear = math.sqrt(((bits - ratio * size) ** 2).sum()) / size.sum()
    assert (sums[:, 0] / sums[:, 1]).std() == pytest.approx(linear, rel=0.06)


def test_what_all_models_find_hard_cancels_out_of_their_difference() -> None:
    generator = numpy.random.default_rng(3)
    hard = generator.normal(0.0, 5.0, 200)
    one, other = hard + generator.normal(0, 0.1, 200), hard + 0.05 + generator.normal(0, 0.1, 200)
    sums = resampled_sums(numpy.stack([one, other], axis=1), "set", 1000) / 200
    assert (sums[:, 1] - sums[:, 0]).std() == pytest.approx(0.01, rel=0.15)
    assert sums[:, 0].std() > 0.3


def test_draws_belong_to_a_set_and_not_to_a_call() -> None:
    rows = numpy.arange(50.0)[:, None]
    first = resampled_sums(rows, "a", 20)
    assert (resampled_sums(rows, "a", 20) == first).all()
    assert (resampled_sums(rows, "b", 20) != first).any()
    assert (resampled_sums(rows, "a", 20, seed=1) != first).any()


def test_one_item_says_nothing_about_its_error() -> None:
    found = estimate(2.0, numpy.full(10, 2.0), 1)
    assert (found.value, found.standard_error, found.low, found.high) == (2.0, None, None, None)


@pytest.mark.parametrize("chances", [[0.5] * 40, [0.25] * 100, [0.5, 0.25, 0.2] * 30])
def test_guessing_is_what_guessers_do(chances: list[float]) -> None:
    draws = numpy.random.default_rng(4).random((20_000, len(chances))) < numpy.array(chances)
    scores = draws.mean(axis=1)
    assert guessing(chances) == pytest.approx((scores.mean(), scores.std()), rel=0.02)


def test_few_items_widen_intervals() -> None:
    assert few_items(1) == pytest.approx(12.706 / 1.95996, rel=1e-3)
    assert few_items(15) == pytest.approx(2.1314 / 1.95996, rel=1e-3)
    assert few_items(100_000) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("count", [2, 7, 200])
def test_items_that_all_agree_are_not_certain(count: int) -> None:
    """Wilson's interval of n hits in n has its middle where Agresti and Coull estimate the share."""
    low = count / (count + 1.96**2)
    middle = (1 + low) / 2
    expected = math.sqrt(middle * (1 - middle) / (count + 1.96**2))
    for hit in (0.0, 1.0):
        assert agreeing(numpy.full(count, hit)) == pytest.approx(expected, rel=1e-3)
    assert agreeing(numpy.array([1.0, 0.0] * count)) is None, "the textbook knows"
    assert agreeing(numpy.full(count, 0.5)) is None, "no share of hits"


def test_one_item_agrees_with_nobody() -> None:
    assert agreeing(numpy.ones(1)) is None
    assert agreeing_difference(numpy.ones(1), numpy.zeros(1)) is None


def test_differences_that_are_all_alike_are_not_certain() -> None:
    """Two of each pair of shares, with half an item of each kind added: agreed right and wrong, gained, lost."""
    for count, gained in ((2, True), (5, True), (40, False)):
        one = numpy.ones(count)
        found = agreeing_difference(one, 1 - one if gained else one)
        cells = numpy.array([0.5, 0.5, 0.5 + count * gained, 0.5 + count * (not gained)])
        worth, shares = numpy.array([0.0, -1.0, 1.0, 0.0]), cells / cells.sum()
        mean = (worth * shares).sum()
        deviation = math.sqrt(((worth - mean) ** 2 * shares).sum() / (count + 2))
        assert found is not None
        assert (found.value, found.standard_error) == (float(gained), pytest.approx(deviation))
        assert found.low == pytest.approx(mean - 1.96 * deviation, abs=1e-4)
        assert found.high == pytest.approx(min(1.0, mean + 1.96 * deviation), abs=1e-4)
    two = agreeing_difference(numpy.ones(2), numpy.zeros(2))
    assert two is not None
    assert two.low is not None
    assert two.low < 0, "two items are no proof"
    assert agreeing_difference(numpy.array([1.0, 0.0]), numpy.array([0.0, 0.0])) is None


def ratio(sums: Any) -> Any:
    """Of the columns, the mean over sets."""
    return (sums[..., 0] / sums[..., 1]).mean(axis=-1)


@pytest.mark.parametrize("count", [4, 10])
def test_intervals_of_few_documents_hold_the_truth_about_as_often_as_they_say(count: int) -> None:
    """Documents of very different sizes; percentiles alone hold it 77 and 84 times in a hundred."""
    generator = numpy.random.default_rng(5)
    hits = 0
    for _ in range(400):
        size = generator.lognormal(6, 1, count)
        bits = size * generator.normal(1.3, 0.25, count)
        found = estimate_of_items(ratio, [sums_of_items(numpy.stack([bits, size], axis=1), "set", 200)])
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.3 <= found.high
    assert 360 <= hits <= 392


def test_intervals_of_many_documents_are_percentiles() -> None:
    values = numpy.random.default_rng(6).normal(2.0, 0.1, 5000)
    sums = sums_of_items(numpy.stack([values, numpy.ones(5000)], axis=1), "set", 200)
    many = estimate_of_items(ratio, [sums])
    plain = estimate(values.mean(), sums.resampled[:, 0] / sums.resampled[:, 1], 5000)
    assert (many.low, many.high) == pytest.approx((plain.low, plain.high), rel=1e-3)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_error_of_few_items_is_that_of_the_textbook(count: int) -> None:
    """Resamples alone spread as if the mean were known: for two items, by 0.7 of what they should."""
    values = numpy.random.default_rng(7).normal(2.0, 0.5, count)
    found = estimate_of_items(ratio, [sums_of_items(numpy.stack([values, numpy.ones(count)], axis=1), "set", 4000)])
    assert found.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(count), rel=0.06)


@pytest.mark.parametrize("counts", [(2, 300), (3, 3, 100)])
def test_an_average_is_no_surer_than_its_smallest_set(counts: tuple[int, ...]) -> None:
    """With the degrees of freedom of all items together, two of 302 would leave the truth in half of the intervals."""
    generator, hits, times = numpy.random.default_rng(8), 0, 100
    for _ in range(times):
        sets = [
            sums_of_items(numpy.stack([generator.normal(1.0, 0.4, count), numpy.ones(count)], axis=1), str(place), 200)
            for place, count in enumerate(counts)
        ]
        found = estimate_of_items(ratio, sets)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.0 <= found.high
    assert hits >= 0.86 * times
