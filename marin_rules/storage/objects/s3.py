"""Objects on S3 and its kin. A version is an ETag: a hash of the content, which comes back with the content."""

from __future__ import annotations

from typing import Any

from marin_rules.storage.explain import explained_store_errors, http_code, missing_client
from marin_rules.storage.objects.store import ObjectVersion, StoredObject
from marin_rules.storage.urls import split_url

_CONNECT_SECONDS, _READ_SECONDS = 5.0, 6.0
_ATTEMPTS = 4
"""As in `gcs`: a lease must hear of trouble while there is time to try once more."""


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

        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        )
        with explained_store_errors("use", url):
            self._client: Any = botocore.session.get_session().create_client("s3", config=config)

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
        if expected is None:
            return self._write(url, data, IfNoneMatch="*")
        written = None if self._wants_bare else self._write(url, data, IfMatch=expected)
        if written is None and (self._wants_bare or self._is_at(url, expected)):
            # Some services (Ceph's radosgw 16) refuse an ETag as they tell it, in quotes, and take it without.
            written = self._write(url, data, IfMatch=expected.strip('"'))
            self._wants_bare = self._wants_bare or written is not None
        return written

    def _write(self, url: str, data: bytes, **condition: str) -> ObjectVersion | None:
        with explained_store_errors("write", url):
            try:
                answer = self._client.put_object(**self._place(url), Body=data, **condition)
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

    def delete(self, url: str, expected: ObjectVersion) -> bool:
        with explained_store_errors("delete", url):
            try:
                condition = expected.strip('"') if self._wants_bare else expected
                self._client.delete_object(**self._place(url), IfMatch=condition)
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
        """What the store tells of an object, `None` when there is none."""
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
