"""Resampling against formulas that are known."""

from __future__ import annotations

import math

import numpy
import pytest

from marin_rules.pipeline.evaluation.statistics import estimate, few_items, guessing, resampled_sums


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
