"""Metrics of classifiers against counts of all pairs and bins worked out by hand."""

from __future__ import annotations

import random

import numpy
import pytest

from marin_rules.pipeline.core.classifier_metrics import area_under_curve, judged


def area_of_all_pairs(is_label: list[bool], scores: list[float]) -> float:
    known = list(zip(scores, is_label, strict=True))
    pairs = [(a, b) for a, has_it in known if has_it for b, has_it_too in known if not has_it_too]
    return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("levels", [3, 1000])
def test_the_area_is_the_share_of_pairs_in_the_right_order(levels: int) -> None:
    chance = random.Random(levels)
    is_label = [chance.random() < 0.3 for _ in range(200)]
    scores = [min(chance.randrange(levels) / levels + 0.2 * one, 1.0) for one in is_label]
    area, interval = area_under_curve(numpy.array(is_label), numpy.array(scores), seed=1)
    assert area == pytest.approx(area_of_all_pairs(is_label, scores), abs=1e-6)
    assert interval is not None
    low, high = interval
    assert low < area < high
    assert area_under_curve(numpy.array(is_label), numpy.array(scores), seed=1) == (area, interval)


def test_the_interval_holds_the_true_area_about_as_often_as_it_says() -> None:
    """Normal scores one apart: the true area is 0.760."""
    chance = numpy.random.default_rng(0)
    held = 0
    for trial in range(60):
        is_label = numpy.arange(200) % 2 == 0
        _, interval = area_under_curve(is_label, chance.normal(size=200) + is_label, seed=trial)
        assert interval is not None
        held += interval[0] <= 0.7602 <= interval[1]
    assert held >= 52, "0.95 of 60 are 57"


def test_metrics_of_four_documents() -> None:
    truth = ["good", "good", "bad", "bad"]
    scores = [{"good": g, "bad": round(1 - g, 6)} for g in (0.95, 0.45, 0.05, 0.65)]
    metrics, table = judged(truth, scores, seed=0)
    good = metrics["labels"]["good"]
    assert (metrics["documents"], metrics["accuracy"], metrics["accuracy_of_the_most_frequent_label"]) == (4, 0.5, 0.5)
    assert (good["precision"], good["recall"], good["auc"]) == (0.5, 0.5, 0.75)
    assert good["expected_calibration_error"] == pytest.approx((0.05 + 0.55 + 0.05 + 0.65) / 4)
    assert good["brier_score"] == pytest.approx((0.05**2 + 0.55**2 + 0.05**2 + 0.65**2) / 4)
    assert [tuple(row) for row in table if row.label == "good"] == [
        ("good", 0.0, 0.1, 1, 0.05, 0.0),
        ("good", 0.4, 0.5, 1, 0.45, 1.0),
        ("good", 0.6, 0.7, 1, 0.65, 0.0),
        ("good", 0.9, 1.0, 1, 0.95, 1.0),
    ]


def test_what_cannot_be_known_is_none() -> None:
    metrics, _ = judged(["good", "good"], [{"good": 0.9, "bad": 0.1}, {}], seed=0)
    assert metrics["accuracy"] == 0.5, "a document without scores is one that was not recognised"
    assert metrics["labels"]["good"]["auc"] is None
    assert metrics["labels"]["bad"]["recall"] is None
    assert metrics["labels"]["bad"]["precision"] is None
