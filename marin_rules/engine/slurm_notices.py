"""What a run says about its Slurm jobs: a line for each event, and nothing twice that need not be."""

from __future__ import annotations

from typing import Any

from marin_rules.clusters.slurm.queue import SlurmJob
from marin_rules.clusters.slurm.reasons import advice_about
from marin_rules.clusters.slurm.states import Meaning
from marin_rules.units import clock_now

_ENDS = {
    Meaning.OUT_OF_MEMORY: "ran out of memory",
    Meaning.TIMED_OUT: "reached its time limit",
    Meaning.CANCELLED: "was cancelled",
    Meaning.INTERRUPTED: "lost its machine",
}


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

    def tell_why_it_waits(self, name: str, job: SlurmJob) -> None:
        """Say once of a job that may wait for ever why it does; what to do about it, for the first such job only."""
        advice = advice_about(job.reason, job.id)
        if advice is not None and self._is_new(f"job {job.id}"):
            is_new = self._is_new(f"reason {job.reason.split(',')[0]}")
            self.tell(f"waits  {name}: slurm job {job.id} has {job.reason}{f': {advice}' if is_new else ''}")

    def _is_new(self, text: str) -> bool:
        is_new = text not in self._told
        self._told.add(text)
        return is_new


def how_it_ended(job: SlurmJob, meaning: Meaning) -> str:
    return f"slurm job {job.id} {_ENDS.get(meaning, 'failed')}{f' on {job.nodes}' if job.nodes else ''}"
