"""Google Cloud, made of the emulators of its store, of Batch and of Cloud TPU, for runs with `--profile gcp`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from support.emulators.batch.emulator import BatchEmulator
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.tpu.emulator import TpuEmulator
from support.lab import REPOSITORY, Lab, Result, Running

CLOUD_FILE = """
gcp:
  project: emulated
  regions: [us-central1, us-central2]
  runtime: 1h
  image: emulated/image:1
  gpus:
    L4:
  tpus:
    v4:
      zones: [us-central2-b]
      worker_region: us-central1
jobs:
  python: {python}
  scratch: {scratch}
"""
"""As in config/clusters/gcp-example.yaml. In containers of the emulators there is this machine's Python."""

KEPT = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "XDG_STATE_HOME", "TERM", "SSL_CERT_FILE")


class Cloud:
    """Google Cloud, as a driver in the test's folder finds it."""

    def __init__(self, lab: Lab, gcs: GcsEmulator, batch: BatchEmulator, tpu: TpuEmulator) -> None:
        self.lab, self.gcs, self.batch, self.tpu = lab, gcs, batch, tpu
        gcs.create_bucket("bucket", location="US")
        self.write_file()
        lab.environment = {name: value for name, value in lab.environment.items() if name in KEPT}
        self.environment = {
            **gcs.environment,
            "BATCH_EMULATOR_HOST": batch.address,
            "LOGGING_EMULATOR_HOST": batch.address,
            "TPU_EMULATOR_HOST": tpu.address,
            "MARIN_JOB_VARIABLES": "TPU_EMULATOR_HOST",
            "MARIN_HOSTS_PACE": "0.1",
            "MARIN_LEASE_LIFETIME_SECONDS": "8",
        }

    def write_file(self, python: str | Path = sys.executable) -> None:
        """The cluster's file, with the Python that jobs start with."""
        folder = self.lab.folder / "config" / "clusters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "site.yaml").write_text(CLOUD_FILE.format(python=python, scratch=self.lab.folder))

    def start(self, *arguments: str, experiment: Path, **config: str) -> Running:
        profile = ["--profile", str(REPOSITORY / "profiles" / "gcp"), "--seconds-between-status-checks", "1"]
        return self.lab.start_snakemake(
            *profile,
            *arguments,
            experiment=experiment,
            prefix="gs://bucket/out",
            config={"cluster": "site", **config},
            env=self.environment,
        )

    def run(self, *arguments: str, experiment: Path, **config: str) -> Result:
        return self.start(*arguments, experiment=experiment, **config).wait(240)

    def file(self, step: str, name: str) -> str:
        """A file of a step, whatever its hash."""
        found = [path for path in self.gcs.names("bucket", f"out/{step}-") if path.endswith(f"/{name}")]
        assert len(found) == 1, found
        return (self.gcs.get("bucket", found[0]) or b"").decode()

    def info(self, step: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file(step, ".executor_info"))
        return found

    def began(self, step: str = "train") -> list[str]:
        """What the starts of a step have left."""
        return [name for name in self.gcs.names("bucket", f"out/{step}-") if "/began-" in name]

    def open_gate(self) -> None:
        self.gcs.put("bucket", "gate", b"")

    def job_of(self, step: str) -> str:
        """The last job of a step."""
        return [job for job in self.jobs() if job.startswith(f"{step}-")][-1]

    def commits(self) -> dict[str, int]:
        """How often each step was called a success."""
        names = [name for name in self.gcs.names("bucket", "out/") if name.endswith("/.executor_status")]
        return {
            name.removeprefix("out/").rpartition("-")[0]: self.gcs.history("bucket", name).count(b"SUCCESS")
            for name in names
        }

    def slices(self) -> list[str]:
        """All slices that were asked for."""
        return [call.request["queuedResourceId"] for call in self.tpu.calls("CreateQueuedResource")]

    def words_of(self, slices: list[str]) -> list[str]:
        """What hosts of these slices have said."""
        names = self.gcs.names("bucket", "out/experiments/")
        return [name for name in names if any(f"/{found}/host-" in name for found in slices)]

    def jobs(self) -> list[str]:
        return [call.request["jobId"] for call in self.batch.calls("CreateJob")]

    def is_empty(self) -> bool:
        """Nothing runs, and nothing is there that would be billed."""
        created, deleted = set(self.slices()), self.tpu.calls("DeleteQueuedResource")
        gone = {call.request["name"].rpartition("/")[2] for call in deleted}
        return not self.batch.processes() and not self.tpu.processes() and created <= gone
