"""What a run says about its jobs on a cluster: a line for each event, without needless repetition."""

from __future__ import annotations

from typing import Any

from marin_rules.clusters.protocol import ClusterJob
from marin_rules.units import clock_now


class Notices:
    """Writes to Snakemake's logger."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._told: set[str] = set()

    def tell(self, text: str) -> None:
        self._logger.info(f"{clock_now()} {text}")

    def tell_once(self, text: str) -> None:
        if self._is_new(text):
            self.tell(text)

    def tell_why_it_waits(self, name: str, job: ClusterJob, advice: str | None) -> None:
        """Say once why a job that may wait forever is waiting, for an array the first element per reason; what to do
        about it, for the first such job only."""
        reason = job.reason.split(",")[0]
        which = job.id if job.array is None else f"{job.array} {reason}"
        if advice is not None and self._is_new(f"job {which}"):
            is_new = self._is_new(f"reason {reason}")
            self.tell(f"waits  {name}: {job.cluster} job {job.id} has {job.reason}{f': {advice}' if is_new else ''}")

    def forget_wait(self, job: ClusterJob) -> None:
        """A running job may wait again, which is then worth reporting."""
        self._told.discard(f"job {job.id}")

    def _is_new(self, text: str) -> bool:
        is_new = text not in self._told
        self._told.add(text)
        return is_new
