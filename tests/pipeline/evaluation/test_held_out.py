"""Summaries of sets whose documents have been scored."""

from __future__ import annotations

import math

import numpy
import pytest

from marin_rules.pipeline.evaluation.held_out import ScoredDocument, summarise_sets


def documents(count: int, seed: int) -> list[ScoredDocument]:
    generator = numpy.random.default_rng(seed)
    sizes = generator.integers(100, 1000, count)
    bits = sizes * generator.normal(1.5, 0.3, count)
    return [
        ScoredDocument(str(number), int(size), int(size), -float(some) * math.log(2), "")
        for number, (size, some) in enumerate(zip(sizes, bits, strict=True))
    ]


def test_averages_are_as_certain_as_their_sets() -> None:
    found = summarise_sets({"one": documents(300, 0), "other": documents(100, 1)}, 256, 2000, 0)
    errors = [found["held_out"][name]["bits_per_byte"]["standard_error"] for name in ("one", "other")]
    macro = found["averages"]["macro"]["bits_per_byte"]["standard_error"]
    assert macro == pytest.approx(math.hypot(*errors) / 2, rel=0.06)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 50)])
def test_an_average_with_a_set_of_one_document_is_of_unknown_certainty(sizes: tuple[int, int]) -> None:
    """However often it is drawn again, it is the same document."""
    sets = {str(number): documents(size, number) for number, size in enumerate(sizes)}
    found = summarise_sets(sets, 256, 200, 0)
    for average in ("macro", "micro"):
        score = found["averages"][average]["bits_per_byte"]
        assert score["value"] > 0
        assert (score["standard_error"], score["low"], score["high"]) == (None, None, None)


def test_an_interval_of_two_documents_is_wide_and_of_positive_numbers() -> None:
    found = summarise_sets({"one": documents(2, 0)}, 256, 200, 0)["held_out"]["one"]
    for score in (found["bits_per_byte"], found["perplexity"]):
        assert 0 <= score["low"] < score["value"] < score["high"]
        assert score["high"] - score["value"] > 5 * score["standard_error"], "two say little of each other"
