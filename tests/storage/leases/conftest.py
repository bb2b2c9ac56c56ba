"""The stores that every test of the contract runs over, and a clock that stands still."""

import uuid
from pathlib import Path

import pytest

from lease_models.backends import Backend, fenced_backend, local_backend, numbered_backend, objects_backend
from lease_models.clock import ManualClock
from lease_models.memory import RepeatingObjects

BACKENDS = ("fenced memory", "numbered versions", "repeating versions", "local", "gcs", "s3", "advisory")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """One lease, on each kind of store in turn."""
    return make_backend(request.param, request, tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def make_backend(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if kind == "fenced memory":
        return fenced_backend()
    if kind == "numbered versions":
        return numbered_backend()
    if kind == "repeating versions":
        return objects_backend(RepeatingObjects(), "model://bucket/step-123456")
    if kind == "local":
        return local_backend(tmp_path / "step-123456")
    if kind == "gcs":
        from marin_rules.storage.objects.gcs import GcsObjects

        request.getfixturevalue("gcs_here")
        return objects_backend(GcsObjects("gs://bucket"), "gs://bucket/step-123456")
    if kind == "s3":
        from marin_rules.storage.objects.s3 import S3Objects

        request.getfixturevalue("s3_here")
        return objects_backend(S3Objects("s3://bucket"), "s3://bucket/step-123456")
    from marin_rules.storage.objects.advisory import AdvisoryObjects

    return objects_backend(AdvisoryObjects("memory://bucket"), f"memory://bucket/{uuid.uuid4().hex}/step-123456")
