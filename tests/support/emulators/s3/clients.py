"""botocore's client as tests need it: one call for one call."""

from __future__ import annotations

from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

from support.emulators.s3.emulator import S3Emulator


def client_of(emulator: S3Emulator, attempts: int = 1, read_timeout: float = 30) -> Any:
    config = Config(retries={"total_max_attempts": attempts, "mode": "standard"}, read_timeout=read_timeout)
    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=emulator.url,
        region_name=emulator.default_location,
        aws_access_key_id="emulated",
        aws_secret_access_key="emulated",
        config=config,
    )


def outcome(call: Any, **arguments: Any) -> tuple[int, str | None]:
    """The call's status, and the code of its error."""
    try:
        return call(**arguments)["ResponseMetadata"]["HTTPStatusCode"], None
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
