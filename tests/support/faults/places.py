"""Where steps write in these tests: a local disk, GCS or S3, each with a history that the project has no hand in."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from support.emulators.common.emulator import Emulator
from support.emulators.gcs.clients import bucket_of
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.s3.clients import client_of
from support.emulators.s3.emulator import S3Emulator

STATUS, LEASE, INFO = ".executor_status", ".executor_status.lock", ".executor_info"
LOG, ARTIFACT = ".executor_log", ".artifact.json"
BUCKET = "bucket"


class Place(Protocol):
    """A prefix and what is below it. Paths are whole: they begin with the prefix."""

    prefix: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What processes need to find the place."""

    def read(self, path: str) -> bytes | None: ...

    def write(self, path: str, data: bytes) -> None: ...

    def delete(self, path: str) -> None: ...

    def names(self) -> list[str]:
        """All that is there, as paths."""

    def statuses(self, folder: str) -> list[bytes]:
        """Every content that the status of a step has had, oldest first."""

    def history(self, path: str) -> list[bytes]:
        """The same for a file: a status, or the record of a task."""

    def state(self, folder: str) -> dict[str, object]:
        """Files of a step with something that changes at each write, even of the same bytes."""


class Disk:
    """A folder. Its history is the journal of the nursery's workers."""

    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self.prefix = str(folder / "out")
        self._journal = folder / "journal"

    def read(self, path: str) -> bytes | None:
        file = Path(path)
        return file.read_bytes() if file.exists() else None

    def write(self, path: str, data: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)

    def delete(self, path: str) -> None:
        Path(path).unlink()

    def names(self) -> list[str]:
        return [str(path) for path in Path(self.prefix).rglob("*") if path.is_file()]

    def statuses(self, folder: str) -> list[bytes]:
        return self.history(f"{folder}/{STATUS}")

    def history(self, path: str) -> list[bytes]:
        lines = map(json.loads, self._journal.read_text().splitlines()) if self._journal.exists() else ()
        return [base64.b64decode(data) for written, data in lines if written == path]

    def state(self, folder: str) -> dict[str, object]:
        files = ((path, path.stat()) for path in Path(folder).iterdir())
        return {path.name: (found.st_ino, found.st_mtime_ns, found.st_size) for path, found in files}


class Objects:
    """A bucket of an emulator."""

    def __init__(self, emulator: Emulator, scheme: str) -> None:
        self.emulator = emulator
        emulator.create_bucket(BUCKET)
        self._root = f"{scheme}://{BUCKET}/"
        self.prefix = f"{self._root}out"

    @property
    def environment(self) -> Mapping[str, str]:
        return self.emulator.environment

    def read(self, path: str) -> bytes | None:
        return self.emulator.get(BUCKET, path.removeprefix(self._root))

    def write(self, path: str, data: bytes) -> None:
        self.emulator.put(BUCKET, path.removeprefix(self._root), data)

    def delete(self, path: str) -> None:
        name = path.removeprefix(self._root)
        if isinstance(self.emulator, GcsEmulator):
            bucket_of(self.emulator, BUCKET).blob(name).delete()
        else:
            assert isinstance(self.emulator, S3Emulator)
            client_of(self.emulator).delete_object(Bucket=BUCKET, Key=name)

    def names(self) -> list[str]:
        return [self._root + name for name in self.emulator.names(BUCKET)]

    def statuses(self, folder: str) -> list[bytes]:
        return self.history(f"{folder}/{STATUS}")

    def history(self, path: str) -> list[bytes]:
        history = self.emulator.history(BUCKET, path.removeprefix(self._root))
        return [data for data in history if data is not None]

    def state(self, folder: str) -> dict[str, object]:
        names = self.emulator.names(BUCKET, f"{folder}/".removeprefix(self._root))
        return {name.rpartition("/")[2]: len(self.emulator.history(BUCKET, name)) for name in names}
