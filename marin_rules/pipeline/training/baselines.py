"""What a model has to beat: n-gram models of the same training tokens, on the same held-out tokens, in bits per byte.

The counts are those of single tokens, of pairs and of triples, each interpolated with the shorter one (Witten-Bell):
a token that nobody has seen still has a probability. Bytes are those of the text behind the tokens; special tokens have
none, but cost bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

NAMES = ("unigram", "bigram", "trigram")
LARGEST_SAMPLE = 20_000_000
"""Training tokens that are counted; about 16 bytes of memory for each of them are in use at a time."""


@dataclass(frozen=True)
class _Counts:
    """How often each n-gram was seen, by the number that stands for it; sorted."""

    keys: Array
    counts: Array

    def of(self, keys: Array) -> Array:
        import numpy

        if not len(self.keys):
            return numpy.zeros(len(keys))
        places = numpy.minimum(numpy.searchsorted(self.keys, keys), len(self.keys) - 1)
        return numpy.where(self.keys[places] == keys, self.counts[places], 0).astype(float)


@dataclass(frozen=True)
class _Contexts:
    """What followed each context: how many tokens, and how many different ones."""

    tokens: _Counts
    kinds: _Counts


class NgramModel:
    """Counted from rows of tokens; an n-gram never reaches from one row into the next."""

    def __init__(self, rows: Array, vocabulary: int) -> None:
        import numpy

        self._vocabulary = vocabulary
        self._grams: list[_Counts] = []
        self._contexts: list[_Contexts] = []
        for order in range(1, len(NAMES) + 1):
            keys, counts = numpy.unique(_keys(rows, order, vocabulary), return_counts=True)
            self._grams.append(_Counts(keys, counts))
            contexts = keys // vocabulary
            different, first, kinds = numpy.unique(contexts, return_index=True, return_counts=True)
            sums = numpy.add.reduceat(counts, first) if len(first) else counts
            self._contexts.append(_Contexts(_Counts(different, sums), _Counts(different, kinds)))

    def nats(self, rows: Array) -> dict[str, float]:
        """What the rows cost, apart from their first tokens, by each model. The second token of a row has one token
        before it, so that a trigram model treats it as a bigram model does."""
        import numpy

        total = self._grams[0].counts.sum()
        probability = (self._grams[0].of(_keys(rows[:, 1:], 1, self._vocabulary)) + 1) / (total + self._vocabulary)
        costs = {NAMES[0]: float(-numpy.log(probability).sum())}
        probability = probability.reshape(len(rows), -1)
        for order in range(2, len(NAMES) + 1):
            keys = _keys(rows, order, self._vocabulary)
            contexts = self._contexts[order - 1]
            seen, kinds = (counts.of(keys // self._vocabulary) for counts in (contexts.tokens, contexts.kinds))
            shorter = probability[:, order - 2 :].reshape(-1)
            mixed = (self._grams[order - 1].of(keys) + kinds * shorter) / numpy.maximum(seen + kinds, 1)
            longer = numpy.where(seen > 0, mixed, shorter).reshape(len(rows), -1)
            probability = numpy.concatenate([probability[:, : order - 2], longer], axis=1)
            costs[NAMES[order - 1]] = float(-numpy.log(probability).sum())
        return costs


def _keys(rows: Array, order: int, vocabulary: int) -> Array:
    """A number for each n-gram of the rows, row by row."""
    import numpy

    width = rows.shape[1] - order + 1
    keys = numpy.zeros((len(rows), max(width, 0)), numpy.int64)
    for place in range(order):
        keys = keys * vocabulary + rows[:, place : place + width]
    return keys.reshape(-1)


@dataclass(frozen=True)
class HeldOut:
    """Rows of held-out tokens, and how many bytes of text they stand for, apart from their first tokens."""

    rows: Array
    text_bytes: int

    @property
    def predicted(self) -> int:
        return int(self.rows.shape[0] * (self.rows.shape[1] - 1))

    def bits_per_byte(self, nats: float) -> float:
        """Of all predicted tokens together."""
        return nats / math.log(2) / self.text_bytes if self.text_bytes else math.nan


def baselines(train_rows: Array, held_out: HeldOut, vocabulary: int) -> dict[str, dict[str, float]]:
    """Loss and bits per byte of each n-gram model."""
    costs = NgramModel(train_rows, vocabulary).nats(held_out.rows)
    return {
        name: {"loss": nats / held_out.predicted, "bits_per_byte": held_out.bits_per_byte(nats)}
        for name, nats in costs.items()
    }
