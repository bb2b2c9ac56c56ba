"""The fixtures, as a pytest plugin: `tests/conftest.py` loads it.

Processes are started once in each worker that needs them; a test gets them as if just started.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.emulators import outside
from support.emulators.batch.emulator import BatchEmulator
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.metadata_server import MetadataServer
from support.emulators.s3.emulator import S3Emulator
from support.emulators.tpu.emulator import TpuEmulator

# gcsfs reads this once, when it is imported: by then it must be set, whichever test comes first.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

# Nor does gRPC read this again. In a copy of this process that is to become another program, it would start its threads
# anew, and abort the copy when their descriptors are closed: 9 of 400, while others call.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

BUCKET = "bucket"
"""The bucket of `gcs_here` and `s3_here`."""


@pytest.fixture(scope="session")
def gcs_process() -> Iterator[GcsEmulator]:
    emulator = outside.gcs()
    yield emulator
    emulator.close()


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Emulator]:
    emulator = outside.s3()
    yield emulator
    emulator.close()


@pytest.fixture
def gcs(gcs_process: GcsEmulator) -> Iterator[GcsEmulator]:
    """An empty Google Cloud Storage."""
    gcs_process.reset()
    yield gcs_process
    # Calls that hang would otherwise hang on while later tests run.
    gcs_process.reset()


@pytest.fixture
def s3(s3_process: S3Emulator) -> Iterator[S3Emulator]:
    """An empty S3."""
    s3_process.reset()
    yield s3_process
    s3_process.reset()


@pytest.fixture(scope="session")
def batch_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchEmulator]:
    emulator = BatchEmulator(tmp_path_factory.mktemp("batch"))
    yield emulator
    emulator.close()


@pytest.fixture
def batch(batch_process: BatchEmulator) -> Iterator[BatchEmulator]:
    """Google Batch without jobs; what a test leaves running is ended."""
    batch_process.reset()
    yield batch_process
    objections = batch_process.take_objections()
    batch_process.reset()
    assert objections == [], "what Google's own documents have against requests of this test"


@pytest.fixture(scope="session")
def tpu_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TpuEmulator]:
    emulator = TpuEmulator(tmp_path_factory.mktemp("tpu"))
    yield emulator
    emulator.close()


@pytest.fixture
def tpu(tpu_process: TpuEmulator) -> Iterator[TpuEmulator]:
    """Cloud TPU without slices; what a test leaves running is ended."""
    tpu_process.reset()
    yield tpu_process
    objections = tpu_process.take_objections()
    tpu_process.reset()
    assert objections == [], "what Google's own documents have against requests of this test"


@pytest.fixture
def gcs_here(gcs: GcsEmulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GcsEmulator]:
    """Google Cloud Storage with the bucket `bucket`, for clients in this process."""
    gcs.create_bucket(BUCKET)
    with _here(gcs.environment, monkeypatch, tmp_path):
        yield gcs


@pytest.fixture
def s3_here(s3: S3Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Emulator]:
    """S3 with the bucket `bucket`, for clients in this process."""
    s3.create_bucket(BUCKET)
    with _here(s3.environment, monkeypatch, tmp_path):
        yield s3


@pytest.fixture
def metadata_server() -> Iterator[MetadataServer]:
    """The metadata server of a Google virtual machine; give clients its `environment`."""
    server = MetadataServer()
    yield server
    server.close()


@contextlib.contextmanager
def _here(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, state: Path) -> Iterator[None]:
    """Clients in this process see the environment, and none outlives it: fsspec keeps instances by their arguments,
    which name no endpoint. What was learnt of a store is forgotten as well."""
    _forget_file_systems()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(state / "state"))
    if "marin_rules.storage.objects.promises" in sys.modules:
        sys.modules["marin_rules.storage.objects.promises"]._known.clear()
    yield
    _forget_file_systems()


def _forget_file_systems() -> None:
    for module, name in (
        ("gcsfs", "GCSFileSystem"),
        ("marin_rules.storage.guarded_gcs", "GuardedGCSFileSystem"),
        ("s3fs", "S3FileSystem"),
    ):
        # Only what was imported can have instances.
        if module in sys.modules:
            getattr(sys.modules[module], name).clear_instance_cache()
