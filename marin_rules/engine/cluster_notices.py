"""What a run says about its jobs on a cluster: a line for each event, and nothing twice that need not be."""

from __future__ import annotations

import contextlib
from typing import Any

from marin_rules.clusters.protocol import ClusterJob
from marin_rules.storage.files import read_part
from marin_rules.units import clock_now

_LOG_BYTES = 4096


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
        """Say once of a job that may wait for ever why it does; what to do about it, for the first such job only."""
        if advice is not None and self._is_new(f"job {job.id}"):
            is_new = self._is_new(f"reason {job.reason.split(',')[0]}")
            self.tell(f"waits  {name}: {job.cluster} job {job.id} has {job.reason}{f': {advice}' if is_new else ''}")

    def _is_new(self, text: str) -> bool:
        is_new = text not in self._told
        self._told.add(text)
        return is_new


def last_words(log: str) -> str:
    """Where a job that left no word about its end has printed something, and the last line of it."""
    last = None
    with contextlib.suppress(OSError):
        lines = (read_part(log, -_LOG_BYTES, _LOG_BYTES) or b"").decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), None)
    return f"; what the job itself printed is in {log}{f', at last: {last}' if last else ''}"
