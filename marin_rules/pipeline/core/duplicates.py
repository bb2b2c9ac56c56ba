"""Which of many documents are duplicates: pure functions of their fingerprints.

Decided in this order, each among what the previous ones have left: the same id, the same text, nearly the same text. Of
each group the document with the lowest rank is kept.

Near-duplicates are found by locality-sensitive hashing: of the documents whose signatures agree in a whole band, each
is compared with the first and with the one before it. Two belong together if their signatures agree in at least
`threshold` of all places (an estimate of the Jaccard similarity of their shingles). Groups are connected: a chain of
near-duplicates is one group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.signature_bands import SignatureBands

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

KEPT, SAME_ID, SAME_TEXT, NEAR = range(4)

_PAIRS_AT_ONCE = 1 << 14


def decide(ids: Array, texts: Array, rank: Array) -> Array:
    """For each document one of KEPT, SAME_ID, SAME_TEXT."""
    import numpy

    verdicts = numpy.full(len(ids), KEPT, numpy.uint8)
    verdicts[repeated(ids, rank)] = SAME_ID
    left = numpy.flatnonzero(verdicts == KEPT)
    verdicts[left[repeated(texts[left], rank[left])]] = SAME_TEXT
    return verdicts


def decide_near(verdicts: Array, signatures: SignatureBands, rank: Array, threshold: float) -> None:
    """Change KEPT to NEAR for documents that are nearly the same as one of lower rank."""
    import numpy

    left = numpy.flatnonzero(verdicts == KEPT)
    verdicts[left[_near(signatures, left, rank[left], threshold)]] = NEAR


def ranks(ids: Array, texts: Array) -> Array:
    """The order in which documents are preferred: by what they are, not by where they are."""
    import numpy

    order = numpy.lexsort((texts[:, 1], texts[:, 0], ids[:, 1], ids[:, 0]))
    rank = numpy.empty(len(order), numpy.int64)
    rank[order] = numpy.arange(len(order))
    return rank


def repeated(digests: Array, rank: Array) -> Array:
    """Which digests occur earlier, at a lower rank."""
    import numpy

    order = numpy.lexsort((rank, digests[:, 1], digests[:, 0]))
    same = numpy.ones(max(len(order) - 1, 0), bool)
    for half in (0, 1):
        ordered = digests[order, half]
        same &= ordered[1:] == ordered[:-1]
    found: Array = order[1:][same]
    return found


def _near(signatures: SignatureBands, left: Array, rank: Array, threshold: float) -> list[int]:
    """Among the documents that are left. Each band is read twice: for pairs to compare, and to compare them."""
    import numpy

    pairs = numpy.zeros((0, 2), numpy.int64)
    for number in range(signatures.count):
        keys = numpy.concatenate([_keys(piece) for piece in signatures.pieces(number)])
        pairs = numpy.unique(numpy.concatenate((pairs, _candidates(keys[left], rank))), axis=0)
    members, places = numpy.unique(pairs, return_inverse=True)
    places = places.reshape(-1, 2)
    agreeing = numpy.zeros(len(pairs), numpy.uint16)
    for number in range(signatures.count):
        band = signatures.rows(number, left[members])
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            some = places[start : start + _PAIRS_AT_ONCE]
            agreeing[start : start + _PAIRS_AT_ONCE] += (band[some[:, 0]] == band[some[:, 1]]).sum(1, numpy.uint16)
    groups = _Groups(rank)
    for first, second in pairs[agreeing / signatures.permutations >= threshold].tolist():
        groups.join(first, second)
    return groups.not_first()


def _keys(band: Array) -> Array:
    """A number for each row; equal rows have equal ones."""
    import numpy

    keys = numpy.zeros(len(band), numpy.uint64)
    for column in band.T:
        keys = (keys ^ column) * numpy.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> numpy.uint64(29)
    return keys


def _candidates(keys: Array, rank: Array) -> Array:
    """Pairs of documents with equal keys: each with the first of its group, and with the one before it."""
    import numpy

    order = numpy.lexsort((rank, keys))
    begins = numpy.ones(len(order), bool)
    begins[1:] = keys[order[1:]] != keys[order[:-1]]
    others = numpy.flatnonzero(~begins)
    first = order[numpy.flatnonzero(begins)[numpy.cumsum(begins)[others] - 1]]
    pairs = [numpy.stack((first, order[others]), 1), numpy.stack((order[others - 1], order[others]), 1)]
    return numpy.concatenate(pairs)


class _Groups:
    """Union-find. The root of a group is its member of lowest rank."""

    def __init__(self, rank: Array) -> None:
        self._rank = rank
        self._parents: dict[int, int] = {}

    def join(self, first: int, second: int) -> None:
        one, other = self._root(first), self._root(second)
        if one != other:
            low, high = sorted((one, other), key=self._rank.__getitem__)
            self._parents[high] = low

    def not_first(self) -> list[int]:
        return list(self._parents)

    def _root(self, member: int) -> int:
        path = []
        while (parent := self._parents.get(member)) is not None:
            path.append(member)
            member = parent
        for passed in path:
            self._parents[passed] = member
        return member
