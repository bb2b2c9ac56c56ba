"""N-gram models, against the same models written as loops over dictionaries."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy
import pytest

from marin_rules.pipeline.training.baselines import HeldOut, NgramModel, baselines


def oracle(train: list[list[int]], held_out: list[list[int]], vocabulary: int) -> dict[str, float]:
    grams: dict[int, Counter[tuple[int, ...]]] = {n: Counter() for n in (1, 2, 3)}
    for row in train:
        for n, counter in grams.items():
            counter.update(tuple(row[i : i + n]) for i in range(len(row) - n + 1))
    total = sum(grams[1].values())
    followers: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for n in (2, 3):
        for gram, count in grams[n].items():
            followers[gram[:-1]][gram[-1]] = count

    def probability(context: tuple[int, ...], token: int) -> float:
        if not context:
            return (grams[1][(token,)] + 1) / (total + vocabulary)
        shorter, seen = probability(context[1:], token), followers.get(context)
        if not seen:
            return shorter
        return (seen.get(token, 0) + len(seen) * shorter) / (sum(seen.values()) + len(seen))

    return {
        name: -sum(
            math.log(probability(tuple(row[max(0, i - n + 1) : i]), row[i]))
            for row in held_out
            for i in range(1, len(row))
        )
        for n, name in ((1, "unigram"), (2, "bigram"), (3, "trigram"))
    }


@pytest.mark.parametrize("length", [2, 3, 9])
def test_costs_are_those_of_the_oracle(length: int) -> None:
    generator = numpy.random.default_rng(3)
    train, held_out = (generator.zipf(1.5, (rows, length)) % 11 for rows in (40, 7))
    found = NgramModel(train.astype(numpy.int32), 13).nats(held_out.astype(numpy.int32))
    assert found == pytest.approx(oracle(train.tolist(), held_out.tolist(), 13))


def test_probabilities_add_up() -> None:
    train = numpy.array([[0, 1, 2, 1, 2, 0]])
    model = NgramModel(train, 4)
    for context in ([0, 1], [1, 2], [3, 3], [2, 0]):
        rest = model.nats(numpy.array([context]))
        sums = dict.fromkeys(rest, 0.0)
        for token in range(4):
            nats = model.nats(numpy.array([[*context, token]]))
            for name in sums:
                sums[name] += math.exp(rest[name] - nats[name])
        assert sums == pytest.approx(dict.fromkeys(sums, 1.0))


def test_bits_per_byte() -> None:
    rows = numpy.array([[0, 1, 2], [2, 1, 0]])
    held_out = HeldOut(rows, text_bytes=8)
    assert held_out.predicted == 4
    assert held_out.bits_per_byte(8 * math.log(2)) == pytest.approx(1.0)
    found = baselines(rows, held_out, 3)["unigram"]
    assert found["loss"] * 4 / math.log(2) / 8 == pytest.approx(found["bits_per_byte"])
