"""Object stores, each with the emulator that it talks to."""

import pytest

from marin_rules.storage.objects.gcs import GcsObjects
from marin_rules.storage.objects.s3 import S3Objects
from support.lease_models.remote import Remote


@pytest.fixture(params=["gs", "s3"])
def remote(request: pytest.FixtureRequest) -> Remote:
    if request.param == "gs":
        return Remote(request.getfixturevalue("gcs_here"), "gs", lambda: GcsObjects("gs://bucket"))
    return Remote(request.getfixturevalue("s3_here"), "s3", lambda: S3Objects("s3://bucket"))
