"""Objects on any other store that fsspec knows. Advisory: nothing here is atomic.

A comparison and the write after it are two calls, so two workers that take the same lease at the same moment may both
believe that they hold it. Steps that many machines share belong on GCS, S3 or a shared file system.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from marin_rules.storage.explain import explained_store_errors
from marin_rules.storage.filesystems import open_filesystem
from marin_rules.storage.objects.store import ObjectState, ObjectVersion, StoredObject


class AdvisoryObjects:
    """URLs of a scheme that has no store of its own. A version is a hash of the content."""

    repeats_versions = True
    service = "fsspec"

    def __init__(self, url: str) -> None:
        self._filesystem(url)  # Says at once what is missing.

    def read(self, url: str) -> StoredObject | None:
        filesystem, key = self._filesystem(url)
        with explained_store_errors("read", url):
            try:
                data = bytes(filesystem.cat_file(key))
            except FileNotFoundError:
                return None
        return StoredObject(data, _version(data))

    def read_part(self, url: str, start: int, size: int) -> bytes | None:
        filesystem, key = self._filesystem(url)
        with explained_store_errors("read", url):
            try:
                with filesystem.open(key, "rb") as file:
                    file.seek(max(start, -file.seek(0, os.SEEK_END)), os.SEEK_SET if start >= 0 else os.SEEK_END)
                    return bytes(file.read(size))
            except FileNotFoundError:
                return None

    def write(self, url: str, data: bytes, expected: ObjectVersion | None) -> ObjectVersion | None:
        found = self.read(url)
        if (None if found is None else found.version) != expected:
            return None
        self.put(url, data)
        return _version(data)

    def put(self, url: str, data: bytes) -> None:
        filesystem, key = self._filesystem(url)
        with explained_store_errors("write", url):
            filesystem.makedirs(filesystem._parent(key), exist_ok=True)
            filesystem.pipe_file(key, data)

    def state(self, url: str) -> ObjectState | None:
        found = self.read(url)
        return None if found is None else ObjectState(found.version, len(found.data))

    def append(self, url: str, data: bytes, state: ObjectState | None) -> ObjectVersion | None:
        # As a whole: fsspec has no way to append that works everywhere.
        found = self.read(url)
        if (None if found is None else found.version) != (None if state is None else state.version):
            return None
        whole = (b"" if found is None else found.data) + data
        self.put(url, whole)
        return _version(whole)

    def delete(self, url: str, expected: ObjectVersion) -> bool:
        found = self.read(url)
        if found is None or found.version != expected:
            return False
        filesystem, key = self._filesystem(url)
        with explained_store_errors("delete", url):
            filesystem.rm_file(key)
        return True

    def size(self, url: str) -> int | None:
        filesystem, key = self._filesystem(url)
        with explained_store_errors("look at", url):
            try:
                return int(filesystem.info(key)["size"])
            except FileNotFoundError:
                return None

    def modified(self, url: str) -> float | None:
        filesystem, key = self._filesystem(url)
        with explained_store_errors("look at", url):
            try:
                return float(filesystem.modified(key).timestamp())
            except FileNotFoundError:
                return None

    @staticmethod
    def _filesystem(url: str) -> tuple[Any, str]:
        return open_filesystem(url)


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
