"""What has arrived of a file so far, kept where the next attempt finds it, even after kill -9.

A partial file is in the hidden folder `.partial` of the output; for output at a URL, in a folder of this user below
the machine's temporary folder. Beside it is the *validator*, by which the server identifies the version that these
bytes belong to. Bytes without a validator are not used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import is_url, join, read_json, write_json

_CHUNK = 1 << 20


def partial_folder(output_path: str) -> str:
    if not is_url(output_path):
        return join(output_path, ".partial")
    ours = os.path.join(tempfile.gettempdir(), f"marin-rules-partial-{os.getuid()}")
    os.makedirs(ours, mode=0o700, exist_ok=True)
    if os.stat(ours, follow_symlinks=False).st_uid != os.getuid() or os.path.islink(ours):
        raise DataError(f"{ours} belongs to somebody else: set TMPDIR to a folder of your own")
    return os.path.join(ours, hashlib.sha256(output_path.encode()).hexdigest()[:24])


class Partial:
    """One partial file, open for one process."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self.path = path
        self._file = file
        self._state_path = f"{path}.json"
        state = read_json(self._state_path)
        self.validator: str = state["validator"] if isinstance(state, dict) else ""
        self.total: int | None = state["total"] if isinstance(state, dict) else None
        """Bytes of the whole file, as announced with this version."""

        self._sha256 = hashlib.sha256()
        self.size = 0
        if not self.validator:
            self.start_over("")
            return
        file.seek(0)
        while chunk := file.read(_CHUNK):
            self._sha256.update(chunk)
            self.size += len(chunk)

    @property
    def is_whole(self) -> bool:
        return self.size == self.total

    def start_over(self, validator: str, total: int | None = None) -> None:
        """Forget the bytes; those to come belong to the version that `validator` names, or to an unknown one if it is
        empty."""
        self._file.truncate(0)
        self._file.seek(0)
        self._sha256, self.size = hashlib.sha256(), 0
        self.validator, self.total = validator, total
        write_json(self._state_path, {"validator": validator, "total": total})

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._sha256.update(chunk)
        self.size += len(chunk)

    def flush(self) -> None:
        self._file.flush()

    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def git_sha1(self) -> str:
        digest = hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
        with open(self.path, "rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()


@contextlib.contextmanager
def opened_partial(output_path: str, name: str) -> Iterator[Partial]:
    """The partial file of `name`, refused while another process has it: two would write over each other."""
    folder = partial_folder(output_path)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, hashlib.sha256(name.encode()).hexdigest()[:24])
    with open(path, "a+b", buffering=_CHUNK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{name} is being fetched by another process ({path} is locked): wait for it") from None
        yield Partial(path, file)


def forget_partial(partial: Partial) -> None:
    """After its file is in place, or is known to be wrong."""
    for path in (partial.path, f"{partial.path}.json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
