"""The output of a job that left no record of its end: where it is, and its last lines.

With it goes what the job's exit code says, if it never reached its worker. Nothing here fails: a job's end is reported
with or without its output.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from marin_rules.clusters.policy import Absence
from marin_rules.clusters.protocol import ClusterJob, JobQueue, JobState
from marin_rules.driver.launch import Launcher
from marin_rules.storage.files import read_part
from marin_rules.urls import is_url

_LOG_BYTES = 4096
_MOST_LINES = 10
"""Lines of the output that a cluster keeps: enough for a traceback or the complaints of an installer."""


class JobOutput:
    """For the jobs of one run."""

    def __init__(self, queue: JobQueue, launcher: Launcher) -> None:
        self._queue = queue
        self._launcher = launcher
        self._arrays: set[str] = set()
        """Arrays of which one element was asked for its output."""

    def explain(self, job: ClusterJob | Absence, log: str | None) -> str:
        """The rest of the sentence about a job's end; `log` is the file that it was to print to, if known."""
        if isinstance(job, ClusterJob) and job.state is JobState.CANCELLED and not job.nodes and not job.restarts:
            return ""  # It never began.
        if self._launcher.shared and log is not None and not is_url(log):
            return _last_words(log)
        if isinstance(job, Absence):
            return ""
        place = self._queue.log_of(self._launcher.log_there, job.id)
        why = self._launcher.explain(job.exit_code)
        if is_url(place):
            where = f"what it printed is at {place}{_ending(self._last_lines(job), is_element=job.element is not None)}"
        elif not self._launcher.shared:
            where = f"what it printed is in {place} on its node"
        else:
            return ""
        return f": {why}; {where}" if why else f"; {where}"

    def _last_lines(self, job: ClusterJob) -> Sequence[str]:
        """For many elements only the first one's: the others mostly print the same, and each takes a call."""
        if job.array is not None and job.array in self._arrays:
            return ()
        if job.array is not None:
            self._arrays.add(job.array)
        with contextlib.suppress(Exception):  # Whatever a cluster's client raises.
            return self._queue.last_lines(job.id, _MOST_LINES)
        return ()


def _ending(lines: Sequence[str], *, is_element: bool) -> str:
    """The last lines, one under the other; of a task the last one, which becomes a part of its step's sentence."""
    said = [line.rstrip() for line in lines if line.strip()]
    if not said:
        return ""
    if is_element or len(said) == 1:
        return f", at last: {said[-1].strip()}"
    return ", at last:" + "".join(f"\n    {line}" for line in said)


def _last_words(log: str) -> str:
    last = None
    with contextlib.suppress(OSError):
        lines = (read_part(log, -_LOG_BYTES, _LOG_BYTES) or b"").decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), None)
    return f"; what the job itself printed is in {log}{f', at last: {last}' if last else ''}"
