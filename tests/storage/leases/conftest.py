"""The stores that every test of the contract runs over, and a clock that stands still."""

import functools
import uuid
from pathlib import Path
from typing import Any

import pytest

from marin_rules.storage.objects.advisory import AdvisoryObjects
from marin_rules.storage.objects.gcs import GcsObjects
from marin_rules.storage.objects.s3 import S3Objects
from marin_rules.storage.objects.store import ObjectStore
from support.lease_models.backends import Backend, fenced_backend, local_backend, numbered_backend, objects_backend
from support.lease_models.clock import ManualClock
from support.lease_models.memory import RepeatingObjects

FENCED = ("fenced memory", "local")
"""A commit compares the lease and writes in one go."""

COMPARING = ("numbered versions", "repeating versions", "gcs", "s3", "advisory")
"""A commit compares the file that it writes, too."""


def _stores(*names: str) -> list[Any]:
    """The parameters of a fixture; two of the stores are emulators, which are processes."""
    processes = {name: [pytest.mark.processes] if name in ("gcs", "s3") else [] for name in names}
    return [pytest.param(name, marks=marks) for name, marks in processes.items()]


@pytest.fixture(params=_stores(*FENCED, *COMPARING))
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """One lease, on each kind of store in turn."""
    return make_backend(request.param, request, tmp_path)


@pytest.fixture(params=_stores(*COMPARING))
def comparing_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
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
        return objects_backend(_client(GcsObjects, request.getfixturevalue("gcs_here").url), "gs://bucket/step-123456")
    if kind == "s3":
        return objects_backend(_client(S3Objects, request.getfixturevalue("s3_here").url), "s3://bucket/step-123456")
    return objects_backend(AdvisoryObjects("memory://bucket"), f"memory://bucket/{uuid.uuid4().hex}/step-123456")


@functools.cache
def _client(kind: type[GcsObjects | S3Objects], endpoint: str) -> ObjectStore:
    """One for all tests: to make a client of S3 takes longer than most of them."""
    return kind("gs://bucket" if kind is GcsObjects else "s3://bucket")
