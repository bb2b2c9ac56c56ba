"""Whether the bytes that arrived are those that the source says it has.

GCS reports a CRC32C for every object, S3 an MD5 for most: the ETag, unless the object was written in parts or
encrypted. So an ETag that matches proves something, and one that does not match proves nothing.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Protocol

from marin_rules.storage.explain import StorageError


class SourceChangedError(StorageError):
    """The source was written or removed while it was being copied. Nothing was kept or charged."""


class _Sum(Protocol):
    def update(self, data: bytes) -> None: ...
    def digest(self) -> bytes: ...


class Checksum:
    """Takes the bytes in order, and compares them with what the source reported before."""

    def __init__(self, details: dict[str, Any]) -> None:
        self.size = 0
        self._sum: _Sum | None = None
        self._expected = b""
        self._is_proof = True
        try:
            self._choose(details)
        except (ImportError, ValueError):
            self._sum = None

    def update(self, data: bytes) -> None:
        self.size += len(data)
        if self._sum is not None:
            self._sum.update(data)

    def fits(self) -> bool | None:
        """None if it cannot be said."""
        if self._sum is None:
            return None
        return True if self._sum.digest() == self._expected else (False if self._is_proof else None)

    def _choose(self, details: dict[str, Any]) -> None:
        etag = str(details.get("ETag", "")).strip('"')
        if details.get("crc32c"):
            import google_crc32c

            self._expected = base64.b64decode(details["crc32c"])
            self._sum = google_crc32c.Checksum()  # type: ignore[no-untyped-call, unused-ignore]
        elif details.get("md5Hash"):
            self._expected = base64.b64decode(details["md5Hash"])
            self._sum = hashlib.md5(usedforsecurity=False)
        elif len(etag) == 32:
            self._is_proof = False
            self._expected = bytes.fromhex(etag)
            self._sum = hashlib.md5(usedforsecurity=False)


def identity(details: dict[str, Any]) -> tuple[Any, ...]:
    """Distinguishes one content of an object from the next, as well as its store allows."""
    for name in ("generation", "ETag", "etag"):
        if details.get(name):
            return (str(details[name]),)
    return (details.get("size"), str(details.get("created") or details.get("mtime") or ""))
