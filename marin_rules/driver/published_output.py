"""The output of this process and of those that it starts, in a file or object that others read while it grows."""

from __future__ import annotations

import os
import sys
import tempfile

from marin_rules.storage.objects.growing import GrowingObject
from marin_rules.storage.patience import patiently
from marin_rules.storage.regular_files import open_to_append
from marin_rules.urls import is_url

_OUTPUTS = (1, 2)


class PublishedOutput:
    """Captures standard output and error of this process until it is closed. For a single thread."""

    def __init__(self, path: str) -> None:
        self._object = GrowingObject(path) if is_url(path) else None
        self._descriptor = self._made() if self._object is not None else open_to_append(path)
        self._before = [os.dup(output) for output in _OUTPUTS]
        self._take(self._descriptor)

    def publish(self, patience_seconds: float = 0.0) -> None:
        """Publish what was printed so far. Trouble does not cost the run: the next call tries again."""
        found = self._object
        if found is None:
            return
        try:
            patiently(lambda: found.publish(self._descriptor, lambda: True), seconds=patience_seconds)
        except OSError as error:
            # Not to the published output: a look at the job itself shows why nothing arrives.
            os.write(self._before[1], f"marin-rules: {error}\n".encode())

    def close(self) -> None:
        """Give standard output and error back."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for output, before in zip(_OUTPUTS, self._before, strict=True):
            os.dup2(before, output)
            os.close(before)
        os.close(self._descriptor)

    @staticmethod
    def _made() -> int:
        """A file without a name, in the working directory."""
        with tempfile.TemporaryFile(dir=os.getcwd(), buffering=0) as file:
            return os.dup(file.fileno())

    @staticmethod
    def _take(descriptor: int) -> None:
        for output in _OUTPUTS:
            os.dup2(descriptor, output)
