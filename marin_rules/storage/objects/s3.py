"""Objects on S3 and the like. A version is an ETag: a hash of the content, so it recurs with the content."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

from marin_rules.storage.explain import explained_store_errors, http_code, missing_client
from marin_rules.storage.objects.store import ObjectState, ObjectVersion, StoredObject
from marin_rules.urls import split_url

_CONNECT_SECONDS, _READ_SECONDS = 5.0, 6.0
_ATTEMPTS = 4
"""As in `gcs`: a lease must learn of trouble while there is time to try once more."""


_LONG_READ_SECONDS = 60.0
"""For the pieces of a log, which nothing waits for."""

_LITTLE_BYTES = 1 << 20
_SMALLEST_PART = 5 << 20
_LARGEST_COPY = 1 << 30
"""The size of each part of an upload on S3, except the last, and of what one call copies here (5 GiB are allowed)."""


class S3Objects:
    """`s3://` URLs."""

    repeats_versions = True

    def __init__(self, url: str) -> None:
        try:
            import botocore.session
            from botocore.config import Config
            from botocore.exceptions import ClientError
        except ImportError as error:
            raise missing_client(url, error) from error
        self._client_error = ClientError
        self._wants_bare = False
        """Whether the service has turned out to want ETags without their quotes."""

        def client(read_seconds: float) -> Any:
            config = Config(
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=read_seconds,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            )
            with explained_store_errors("use", url):
                return botocore.session.get_session().create_client("s3", config=config)

        self._client = client(_READ_SECONDS)
        self._make_patient_client: Callable[[], Any] = lambda: client(_LONG_READ_SECONDS)

    @property
    def service(self) -> str:
        return str(self._client.meta.endpoint_url)

    def read(self, url: str) -> StoredObject | None:
        with explained_store_errors("read", url):
            try:
                answer = self._client.get_object(**self._place(url))
            except self._client_error as error:
                if _reason(error) in ("NoSuchKey", "404"):
                    return None
                raise
            return StoredObject(answer["Body"].read(), answer["ETag"])

    def read_part(self, url: str, start: int, size: int) -> bytes | None:
        part = f"bytes={start}-{start + size - 1}" if start >= 0 else f"bytes={start}"
        with explained_store_errors("read", url):
            try:
                answer = self._client.get_object(**self._place(url), Range=part)
            except self._client_error as error:
                if _reason(error) in ("NoSuchKey", "404"):
                    return None
                if http_code(error) == 416:
                    return b""
                raise
            return bytes(answer["Body"].read(size))

    def write(self, url: str, data: bytes, expected: ObjectVersion | None) -> ObjectVersion | None:
        return self._write(self._client, url, data, expected)

    def _write(self, client: Any, url: str, data: bytes, expected: ObjectVersion | None) -> ObjectVersion | None:
        if expected is None:
            return self._put_if(client, url, data, IfNoneMatch="*")
        written = None if self._wants_bare else self._put_if(client, url, data, IfMatch=expected)
        if written is None and (self._wants_bare or self._is_at(url, expected)):
            # Some services (Ceph's radosgw 16) refuse an ETag as they return it, in quotes, and accept it without.
            written = self._put_if(client, url, data, IfMatch=expected.strip('"'))
            self._wants_bare = self._wants_bare or written is not None
        return written

    def _put_if(self, client: Any, url: str, data: bytes, **condition: str) -> ObjectVersion | None:
        with explained_store_errors("write", url):
            try:
                answer = client.put_object(**self._place(url), Body=data, **condition)
            except self._client_error as error:
                # An object that is gone is answered with 404 where a version was expected.
                if http_code(error) == 412 or _reason(error) == "NoSuchKey":
                    return None
                raise
        return str(answer["ETag"])

    def _is_at(self, url: str, version: ObjectVersion) -> bool:
        head = self._head(url)
        return head is not None and head["ETag"] == version

    def put(self, url: str, data: bytes) -> None:
        with explained_store_errors("write", url):
            self._client.put_object(**self._place(url), Body=data)

    def state(self, url: str) -> ObjectState | None:
        head = self._head(url)
        return None if head is None else ObjectState(str(head["ETag"]), int(head["ContentLength"]))

    def append(self, url: str, data: bytes, state: ObjectState | None) -> ObjectVersion | None:
        if state is None:
            return self._write(self._client_for(data), url, data, None)
        if state.size < _SMALLEST_PART:
            found = self.read(url)
            if found is None or found.version != state.version:
                return None
            whole = found.data + data
            return self._write(self._client_for(whole), url, whole, state.version)
        with explained_store_errors("append to", url):
            try:
                return self._append_by_copying(url, data, state)
            except self._client_error as error:
                if http_code(error) == 412 or _reason(error) == "NoSuchKey":
                    return None
                raise

    def _append_by_copying(self, url: str, data: bytes, state: ObjectState) -> ObjectVersion:
        """An upload in parts, of which the store copies the first ones from the object itself."""
        client, place = self._patient_client, self._place(url)
        upload = {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}
        etag = self._condition(state.version)
        try:
            parts = []
            for number, (first, last) in enumerate(_ranges(state.size), 1):
                copied = client.upload_part_copy(
                    **upload,
                    PartNumber=number,
                    CopySource=place,
                    CopySourceRange=f"bytes={first}-{last}",
                    CopySourceIfMatch=etag,
                )
                parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
            number = len(parts) + 1
            parts.append(
                {"PartNumber": number, "ETag": client.upload_part(**upload, PartNumber=number, Body=data)["ETag"]}
            )
            done = client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, IfMatch=etag)
            return str(done["ETag"])
        except BaseException:
            with contextlib.suppress(Exception):
                client.abort_multipart_upload(**upload)
            raise

    def _client_for(self, data: bytes) -> Any:
        # Creating another client takes longer than sending a little.
        return self._client if len(data) <= _LITTLE_BYTES else self._patient_client

    @cached_property
    def _patient_client(self) -> Any:
        return self._make_patient_client()

    def _condition(self, version: ObjectVersion) -> str:
        return version.strip('"') if self._wants_bare else version

    def delete(self, url: str, expected: ObjectVersion) -> bool:
        with explained_store_errors("delete", url):
            try:
                self._client.delete_object(**self._place(url), IfMatch=self._condition(expected))
            except self._client_error as error:
                if http_code(error) == 412 or _reason(error) == "NoSuchKey":
                    return False
                raise
        return True

    def size(self, url: str) -> int | None:
        head = self._head(url)
        return None if head is None else int(head["ContentLength"])

    def modified(self, url: str) -> float | None:
        head = self._head(url)
        return None if head is None else float(head["LastModified"].timestamp())

    def _head(self, url: str) -> Any:
        """The metadata of an object, `None` when there is none."""
        with explained_store_errors("look at", url):
            try:
                return self._client.head_object(**self._place(url))
            except self._client_error as error:
                if http_code(error) == 404:
                    return None
                raise

    @staticmethod
    def _place(url: str) -> dict[str, str]:
        _, bucket, key = split_url(url)
        return {"Bucket": bucket, "Key": key}


def _reason(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _ranges(size: int) -> list[tuple[int, int]]:
    """The first and the last byte of each part of an object of this size, none of them too small or too large."""
    starts = list(range(0, size, _LARGEST_COPY))
    if len(starts) > 1 and size - starts[-1] < _SMALLEST_PART:
        starts.pop()
    return [(start, end - 1) for start, end in zip(starts, [*starts[1:], size], strict=True)]
