"""The signatures of all documents on disk, a file for each band, of which a piece is in memory at a time.

They take the space of all signatures (512 bytes a document with 128 numbers) where temporary files go (TMPDIR).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from marin_rules.pipeline.core.errors import DataError

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

_DOCUMENTS = 1 << 15
"""Of which a band is in memory at a time."""


class SignatureBands:
    """Signatures of any number of documents, added in their order, read by band."""

    def __init__(self, bands: int) -> None:
        self.count = bands
        self.permutations = 0
        self._stack = contextlib.ExitStack()
        self._files: list[IO[bytes]] = []

    def __enter__(self) -> SignatureBands:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        for number in range(self.count):
            self._files.append(self._stack.enter_context(open(os.path.join(folder, str(number)), "w+b")))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, signatures: Array) -> None:
        """A row for each document."""
        import numpy

        self.permutations = signatures.shape[1]
        if self.count > self.permutations or self.permutations % self.count:
            raise DataError(
                f"{self.count} bands do not divide signatures of {self.permutations} numbers: use a divisor"
            )
        for file, band in zip(self._files, numpy.hsplit(signatures, self.count), strict=True):
            file.write(numpy.ascontiguousarray(band, numpy.uint32))

    def pieces(self, number: int) -> Iterator[Array]:
        """One band of all documents in their order, some thousands at a time: a row for each."""
        import numpy

        file = self._files[number]
        file.flush()
        file.seek(0)
        columns = self.permutations // self.count
        while len(numbers := numpy.fromfile(file, numpy.uint32, columns * _DOCUMENTS)):
            yield numbers.reshape(-1, columns)

    def rows(self, number: int, documents: Array) -> Array:
        """One band of some documents, whose numbers are in ascending order."""
        import numpy

        found, start = [numpy.zeros((0, self.permutations // self.count), numpy.uint32)], 0
        for piece in self.pieces(number):
            low, high = numpy.searchsorted(documents, (start, start + len(piece)))
            found.append(piece[documents[low:high] - start])
            start += len(piece)
        return numpy.concatenate(found)
