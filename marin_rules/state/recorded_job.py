"""The cluster job that an attempt at a step ran in, as its worker recorded it.

It is in the `run` block of the info file, under the name of the cluster: `"<cluster>": {"job_id": "7", "nodes": ...}`.
Nothing here knows which clusters there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RecordedJob:
    """A job of a cluster, and the part of it that the attempt had."""

    cluster: str
    id: str
    fields: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Where it ran, for people: its machines in the cluster's own words or by their names, their zone if they have
        one, and which job that was."""
        job = ", ".join([f"{self.cluster} job {self.id}", *self._partition()])
        machines = self.fields.get("machines") or self.fields.get("nodes", "")
        zone = self.fields.get("zone")
        where = f"{machines}{f' in {zone}' if zone else ''}".strip()
        return f"{where} ({job})" if where else job

    @property
    def gpus(self) -> str:
        """The GPUs that it saw on its first machine."""
        return str(self.fields.get("gpus", ""))

    def _partition(self) -> list[str]:
        partition = self.fields.get("partition")
        return [] if partition is None else [f"partition {partition}"]


def recorded_job(run_block: object) -> RecordedJob | None:
    """The job in the `run` block of an info file; None for an attempt that had no job of its own."""
    if not isinstance(run_block, Mapping):
        return None
    for name, fields in run_block.items():
        if isinstance(fields, Mapping) and fields.get("job_id") is not None:
            return RecordedJob(name, str(fields["job_id"]), fields)
    return None
