"""A server that somebody else runs, in the place of an emulator: tests can be pointed at it by an address.

    MARIN_TEST_S3=http://127.0.0.1:9000 pytest tests/storage
    MARIN_TEST_GCS=http://127.0.0.1:9000 pytest tests/storage

Credentials are taken from the usual variables. The bucket `bucket` there is made, used and emptied. Tests that need to
steer the server (faults, histories, calls) are skipped; all others hold for it as for the emulator.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, NoReturn

import pytest

from support.emulators.common.emulator import Emulator
from support.emulators.common.messages import Call
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.s3.emulator import S3Emulator

S3_VARIABLE, GCS_VARIABLE = "MARIN_TEST_S3", "MARIN_TEST_GCS"


def s3() -> S3Emulator:
    """The S3 that the tests are to use."""
    address = os.environ.get(S3_VARIABLE)
    return OutsideS3(address) if address else S3Emulator()


def gcs() -> GcsEmulator:
    address = os.environ.get(GCS_VARIABLE)
    return OutsideGcs(address) if address else GcsEmulator()


class _Outside(Emulator):
    """What can be asked of any server, through its clients."""

    def __init__(self, address: str) -> None:
        self.url = address.rstrip("/")
        self._buckets: set[str] = set()

    def close(self) -> None:
        self.reset()

    def clear_faults(self) -> None:
        """There are none."""

    def forget_calls(self) -> None:
        """They are not known."""

    def set_quirks(self, *quirks: str) -> None:
        if quirks != ("takes bare line feeds",):  # It takes them, or the test that needs that fails.
            self._cannot()

    def inject(self, *args: Any, **kwargs: Any) -> None:
        self._cannot()

    def calls(self) -> list[Call]:
        self._cannot()

    def history(self, bucket: str, name: str) -> list[bytes | None]:
        self._cannot()

    @property
    def pid(self) -> int:
        self._cannot()

    def _cannot(self) -> NoReturn:
        pytest.skip(f"{self.url} is not the emulator: it cannot be steered")


class OutsideS3(_Outside, S3Emulator):
    """A server that speaks S3."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {name: os.environ[name] for name in _S3_SETTINGS if name in os.environ}

    def create_bucket(self, name: str, location: str | None = None) -> None:
        if name not in {bucket["Name"] for bucket in self._client.list_buckets()["Buckets"]}:
            self._client.create_bucket(Bucket=name)
        self._buckets.add(name)
        self.reset()  # A test run that was killed leaves something.

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=bucket, Key=name, Body=data)

    def get(self, bucket: str, name: str) -> bytes | None:
        try:
            return bytes(self._client.get_object(Bucket=bucket, Key=name)["Body"].read())
        except self._client.exceptions.NoSuchKey:
            return None

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))

    def reset(self) -> None:
        for bucket in self._buckets:
            for name in self.names(bucket):
                self._client.delete_object(Bucket=bucket, Key=name)

    @cached_property
    def _client(self) -> Any:
        import botocore.session

        environment = self.environment
        return botocore.session.Session().create_client(
            "s3",
            endpoint_url=self.url,
            region_name=environment["AWS_DEFAULT_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        )


_S3_SETTINGS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION")


class OutsideGcs(_Outside, GcsEmulator):
    """A server that speaks as Google Cloud Storage does."""

    def create_bucket(self, name: str, location: str | None = None) -> None:
        client = self._client
        if not client.bucket(name).exists():
            client.create_bucket(name, location=location or self.default_location)
        self._buckets.add(name)
        self.reset()  # A test run that was killed leaves something.

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self._client.bucket(bucket).blob(name).upload_from_string(data)

    def get(self, bucket: str, name: str) -> bytes | None:
        from google.api_core.exceptions import NotFound

        try:
            return bytes(self._client.bucket(bucket).blob(name).download_as_bytes())
        except NotFound:
            return None

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        return sorted(blob.name for blob in self._client.list_blobs(bucket, prefix=prefix))

    def reset(self) -> None:
        for bucket in self._buckets:
            for name in self.names(bucket):
                self._client.bucket(bucket).blob(name).delete()

    @cached_property
    def _client(self) -> Any:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        return storage.Client(
            project="emulated", credentials=AnonymousCredentials(), client_options={"api_endpoint": self.url}
        )
