"""A project of Google Cloud for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.clusters.gcp.site import GcpSite, read_site
from support.cloud import Cloud
from support.emulators.batch.emulator import BatchEmulator
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.tpu.emulator import TpuEmulator
from support.lab import Lab

FILE = """
gcp:
  project: emulated
  regions: [us-central1, us-east1]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], GcpSite]:
    """`site(yaml)` is the project of that cluster file."""

    def read(text: str = FILE) -> GcpSite:
        folder = tmp_path / "config" / "clusters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lab.yaml").write_text(text)
        monkeypatch.chdir(tmp_path)
        found = read_site("lab")
        assert found is not None
        return found

    return read


@pytest.fixture
def cloud(lab: Lab, gcs: GcsEmulator, batch: BatchEmulator, tpu: TpuEmulator) -> Cloud:
    return Cloud(lab, gcs, batch, tpu)
