"""Where jobs on a cluster print to: what a step itself prints is in its own log, beside its data."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from marin_rules.clusters.protocol import JOB
from marin_rules.plans.frozen import FrozenStep

_DAY_SECONDS = 24 * 60 * 60.0


class JobLogs:
    """A folder of logs, one for each job."""

    def __init__(self, folder: str, *, keep_successful: bool, days: int) -> None:
        self._folder = Path(folder).resolve()
        self._keep_successful = keep_successful
        self._days = days

    def of(self, job: Any, step: FrozenStep | None) -> str:
        """The name of a job's log, in which `JOB` stands for its id."""
        # Neither percent signs nor slashes: clusters interpret the former in their own ways.
        where = ("groups", str(job.name)) if step is None else ("steps", step.key.replace("%", "_"))
        return str(self._folder.joinpath(*where, f"{JOB}.log"))

    def remove(self, log: str) -> None:
        """The log of a job that succeeded."""
        if not self._keep_successful:
            with contextlib.suppress(OSError):
                os.unlink(log)

    def clean(self) -> None:
        """Remove what is older than a few days, and folders with nothing left in them."""
        if self._days <= 0 or self._keep_successful:
            return
        oldest = time.time() - self._days * _DAY_SECONDS
        for folder, _, names in os.walk(self._folder, topdown=False):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    if name.endswith(".log") and os.stat(path).st_mtime < oldest:
                        os.unlink(path)
            with contextlib.suppress(OSError):  # Another run may have put something there.
                os.rmdir(folder)
