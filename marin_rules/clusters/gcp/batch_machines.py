"""The machines of a Batch job with several of them, for the ranks of a step: they come with the job.

Each is a task of the job. The first runs the step's worker; what serves its own rank is another process beside that, as
on all other machines.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from marin_rules.clusters.gcp.meeting import Meeting, Pace
from marin_rules.parentage import end_with_parent


@dataclass
class BatchMachines:
    """See `host_ranks.Machines`."""

    meeting: Meeting
    count: int
    pace: Pace
    first: Sequence[str]
    """What serves rank 0 on this machine."""

    variables: Mapping[str, str]
    """All that it is given."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    can_be_replaced: bool = field(default=False, init=False)
    """When one of them is lost, the job ends; Batch reports on the machine's task that it was not the step's fault."""

    _process: subprocess.Popen[bytes] | None = None

    def obtain(self, stopped: Callable[[], bool], say: Callable[[str], None]) -> Meeting:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self.first,
                env=dict(self.variables),
                stdin=subprocess.DEVNULL,
                preexec_fn=partial(end_with_parent, os.getpid()),
            )
        return self.meeting

    def lost(self) -> None:
        """No request is made: a machine that is lost falls silent."""

    def replace(self, why: str) -> None:
        """They cannot be."""

    def release(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
