"""An object that grows: additions to a local file are appended to it, in pieces, from any thread.

For logs. Memory is bounded by a piece, and each piece is visible once it is there. Nobody's lines are lost: a piece
goes to the end of whatever the object holds, on condition that it is as it was last seen; if somebody else has appended
meanwhile, the piece goes after that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.objects.open import open_objects
from marin_rules.storage.objects.store import ObjectState

PIECE_BYTES = 8 << 20
"""More than the smallest part of a multipart upload on S3, 5 MiB; a slow link takes some seconds for it."""

_RACES = 5
_COMPARED_BYTES = 1 << 12


class GrowingObject:
    """One object and how much of its local file is in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.published = 0
        """How many bytes of the file the object has."""

        self._state: ObjectState | None = None
        self._is_known = False

    def publish(self, descriptor: int, check: Callable[[], bool]) -> bool:
        """Append what the file has gained; False if `check`, called before each piece, stopped that early."""
        size = os.fstat(descriptor).st_size
        while self.published < size:
            if not check():
                return False
            piece = os.pread(descriptor, min(PIECE_BYTES, size - self.published), self.published)
            self._append(piece)
            self.published += len(piece)
        return True

    def _append(self, piece: bytes) -> None:
        for _ in range(_RACES):
            objects = open_objects(self.url)
            if not self._is_known:
                self._state, self._is_known = objects.state(self.url), True
            try:
                written = objects.append(self.url, piece, self._state)
            except BaseException:
                if self._was_appended(piece):
                    return
                raise
            if written is not None:
                size = len(piece) + (0 if self._state is None else self._state.size)
                self._state = ObjectState(written, size)
                return
            if self._was_appended(piece):
                return
        raise UnansweredError(errno.EAGAIN, f"cannot append to {self.url}: others change it all the time", self.url)

    def _was_appended(self, piece: bytes) -> bool:
        """Whether the piece is there although its answer was lost; otherwise the object is looked at again next
        time."""
        before = 0 if self._state is None else self._state.size
        self._is_known = False
        try:
            state = open_objects(self.url).state(self.url)
            if state is None or state.size != before + len(piece):
                return False
            length = min(len(piece), _COMPARED_BYTES)
            if open_objects(self.url).read_part(self.url, -length, length) != piece[-length:]:
                return False
        except OSError:
            return False
        self._state, self._is_known = state, True
        return True
