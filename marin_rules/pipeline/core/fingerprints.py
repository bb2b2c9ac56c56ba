"""What is kept of a document to find its duplicates: digests of its id and text, and a MinHash signature.

All of it is a function of the document alone. So is its rank, by which one of several equal documents is kept:
neither the number nor the order of shards can change which.

Shingles are runs of words (text divided at white space, in lower case), or of characters for languages that have no
spaces. A word is hashed once; a shingle's hash is computed from those of its words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from marin_rules.pipeline.core.files import into_place, open_to_read

if TYPE_CHECKING:
    import numpy

DIGEST_BYTES = 16
_MOST_WORDS = 1 << 20
"""Words whose hashes are cached. A few tens of megabytes; then it starts over."""

_FACTOR = 0x9E3779B97F4A7C15
"""Odd, so that multiplication modulo 2^64 loses nothing; otherwise arbitrary (2^64 divided by the golden ratio)."""


@dataclass(frozen=True)
class ShingleSettings:
    """How a text becomes a set of shingles, and that a signature."""

    unit: Literal["word", "character"] = "word"
    size: int = 5
    """Words (or characters) of a shingle. A text with fewer is filled up to one shingle."""

    permutations: int = 128
    """Numbers of a signature. More estimate similarity better: its standard error is 1 / (2 * sqrt(this)) at most."""

    seed: int = 1


class Shingler:
    """Makes signatures, for many texts at a time."""

    def __init__(self, settings: ShingleSettings) -> None:
        self._settings = settings
        self._words = _WordHashes()

    def signatures(self, texts: Sequence[str]) -> numpy.ndarray[Any, Any]:
        """A row of `permutations` numbers for each text."""
        import numpy
        from rensa import RMinHash

        hashes, ends = self._hashes(texts)
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(
            hashes, ends, num_perm=self._settings.permutations, seed=self._settings.seed
        )
        return numpy.array(matrix.to_rows(), dtype=numpy.uint32)

    def shingles(self, text: str) -> list[int]:
        """The hashes of a text's shingles, in their order."""
        hashes: list[int] = self._hashes([text])[0].tolist()
        return hashes

    def _hashes(self, texts: Sequence[str]) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        """The shingles of texts one after the other, and where each text's begin (and the last one's end).

        Computed for all texts as if they were one: what reaches from one into the next is left out at the end.
        """
        import numpy

        size = self._settings.size
        units, lengths = self._words_of(texts) if self._settings.unit == "word" else self._characters_of(texts)
        hashes = numpy.zeros(len(units) - size + 1, numpy.uint64)
        for place in range(size):
            hashes += units[place : place + len(hashes)]
            hashes *= numpy.uint64(_FACTOR)
            hashes ^= hashes >> numpy.uint64(29)
        ends = numpy.cumsum(lengths)
        is_within = numpy.ones(len(hashes), bool)
        for back in range(1, size):
            is_within[ends[:-1] - back] = False
        starts = numpy.zeros(len(texts) + 1, numpy.uint64)
        starts[1:] = numpy.cumsum(lengths - (size - 1))
        return hashes[is_within], starts

    def _words_of(self, texts: Sequence[str]) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        import numpy

        words = [text.lower().split() for text in texts]
        for of_text in words:
            of_text.extend([""] * (self._settings.size - len(of_text)))
        lengths = numpy.fromiter(map(len, words), numpy.int64, len(words))
        hashes = map(self._words.__getitem__, chain.from_iterable(words))
        units = numpy.fromiter(hashes, numpy.uint64, lengths.sum())
        self._words.forget()
        return units, lengths

    def _characters_of(self, texts: Sequence[str]) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        import numpy

        padded = [text.lower().ljust(self._settings.size, "\0") for text in texts]
        units = numpy.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), numpy.uint32)
        return units.astype(numpy.uint64), numpy.fromiter(map(len, padded), numpy.int64, len(padded))


class _WordHashes(dict[str, int]):
    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = value = int.from_bytes(digest, "little")
        return value

    def forget(self) -> None:
        if len(self) > _MOST_WORDS:
            self.clear()


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


class DocumentsDigest:
    """A digest of documents in order, which reveals that they have changed."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, id: str, text: str) -> None:
        self._hash.update(digest(id) + digest(text))

    def as_array(self) -> numpy.ndarray[Any, Any]:
        return as_digests([self._hash.digest()])


def as_digests(digests: Sequence[bytes]) -> numpy.ndarray[Any, Any]:
    """As pairs of numbers, which sort and compare quickly."""
    import numpy

    return numpy.frombuffer(b"".join(digests), dtype=">u8").astype(numpy.uint64).reshape(-1, 2)


def paragraphs_of(text: str, shortest: int) -> list[tuple[int, int]]:
    """Where the lines of a text with at least this many characters begin and end, line ends included."""
    found, start = [], 0
    for line in text.splitlines(keepends=True):
        if len(line.strip()) >= shortest:
            found.append((start, start + len(line)))
        start += len(line)
    return found


def write_arrays(path: str, arrays: dict[str, Any]) -> None:
    import numpy

    with into_place(path) as file:
        numpy.savez(file, **arrays)


def read_arrays(path: str) -> dict[str, Any]:
    import numpy

    with open_to_read(path) as file, numpy.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
