"""Objects on Google Cloud Storage. A version is a generation, which never comes back.

gcsfs has no compare-and-swap, and runs a thread with an event loop, which does not survive a fork: hence Google's own
client.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Any

from marin_rules.storage.explain import explained_store_errors, missing_client
from marin_rules.storage.objects.store import ObjectState, ObjectVersion, StoredObject
from marin_rules.urls import split_url

_TIMEOUT_SECONDS = (5.0, 10.0)
_RETRY_SECONDS = 15.0
"""How long the client retries on its own. A lease must learn of trouble while there is time to try once more."""


_LONG_TIMEOUT_SECONDS = (5.0, 60.0)
_LONG_RETRY_SECONDS = 120.0
"""For the pieces of a log, which nothing waits for."""

_SMALL_BYTES = 1 << 20
"""Up to this size an object is fetched and rewritten, which takes fewer calls than composing it."""


class GcsObjects:
    """`gs://` URLs."""

    repeats_versions = False

    def __init__(self, url: str) -> None:
        try:
            from google.api_core import exceptions
            from google.cloud import storage
            from google.cloud.storage.retry import DEFAULT_RETRY
        except ImportError as error:
            raise missing_client(url, error) from error
        self._exceptions = exceptions
        # Without it the client asks about the bucket, time and again, from threads of its own.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        with explained_store_errors("use", url):
            self._client = storage.Client()
        self._long_options: dict[str, Any] = {
            "timeout": _LONG_TIMEOUT_SECONDS,
            "retry": DEFAULT_RETRY.with_timeout(_LONG_RETRY_SECONDS),
        }
        self._options: dict[str, Any] = {
            "timeout": _TIMEOUT_SECONDS,
            "retry": DEFAULT_RETRY.with_timeout(_RETRY_SECONDS),
        }

    @property
    def service(self) -> str:
        return str(self._client.api_endpoint)

    def read(self, url: str) -> StoredObject | None:
        blob = self._blob(url)
        with explained_store_errors("read", url):
            try:
                data = blob.download_as_bytes(**self._options)
            except self._exceptions.NotFound:
                return None
        # The response to the download has the generation of what was downloaded.
        return StoredObject(data, str(blob.generation))

    def read_part(self, url: str, start: int, size: int) -> bytes | None:
        blob = self._blob(url)
        end = start + size - 1 if start >= 0 else None
        with explained_store_errors("read", url):
            try:
                return bytes(blob.download_as_bytes(start=start, end=end, **self._options)[:size])
            except self._exceptions.NotFound:
                return None
            except self._exceptions.RequestRangeNotSatisfiable:
                return b""

    def write(self, url: str, data: bytes, expected: ObjectVersion | None) -> ObjectVersion | None:
        blob = self._blob(url)
        with explained_store_errors("write", url):
            try:
                blob.upload_from_string(data, if_generation_match=int(expected or 0), **self._options)
            except self._exceptions.PreconditionFailed:
                return None
        return str(blob.generation)

    def put(self, url: str, data: bytes) -> None:
        with explained_store_errors("write", url):
            self._blob(url).upload_from_string(data, **self._options)

    def state(self, url: str) -> ObjectState | None:
        blob = self._described(url)
        return None if blob is None else ObjectState(str(blob.generation), int(blob.size))

    def append(self, url: str, data: bytes, state: ObjectState | None) -> ObjectVersion | None:
        generation = 0 if state is None else int(state.version)
        with explained_store_errors("append to", url):
            try:
                if state is None or state.size <= _SMALL_BYTES:
                    before = b"" if state is None else self._blob(url).download_as_bytes(**self._options)
                    whole = self._blob(url)
                    whole.upload_from_string(before + data, if_generation_match=generation, **self._long_options)
                    return str(whole.generation)
                return self._append_by_composing(url, data, generation)
            except (self._exceptions.PreconditionFailed, self._exceptions.NotFound):
                return None

    def _append_by_composing(self, url: str, data: bytes, generation: int) -> ObjectVersion:
        """The store joins the object and an object with the new part."""
        part = self._blob(f"{url}.part-{secrets.token_hex(8)}")
        try:
            part.upload_from_string(data, **self._long_options)
            whole = self._blob(url)
            whole.compose([self._blob(url), part], if_generation_match=generation, **self._long_options)
            return str(whole.generation)
        finally:
            with contextlib.suppress(self._exceptions.GoogleAPIError, OSError):
                part.delete(**self._options)

    def delete(self, url: str, expected: ObjectVersion) -> bool:
        with explained_store_errors("delete", url):
            try:
                self._blob(url).delete(if_generation_match=int(expected), **self._options)
            except (self._exceptions.PreconditionFailed, self._exceptions.NotFound):
                return False
        return True

    def size(self, url: str) -> int | None:
        blob = self._described(url)
        return None if blob is None else int(blob.size)

    def modified(self, url: str) -> float | None:
        blob = self._described(url)
        return None if blob is None else float(blob.updated.timestamp())

    def _described(self, url: str) -> Any:
        """The object with its metadata, `None` when there is none."""
        blob = self._blob(url)
        with explained_store_errors("look at", url):
            try:
                blob.reload(**self._options)
            except self._exceptions.NotFound:
                return None
        return blob

    def _blob(self, url: str) -> Any:
        _, bucket, key = split_url(url)
        return self._client.bucket(bucket).blob(key)
