"""The books of an attempt: the files that say whether there is anything to do, and that record the outcome.

A worker runs one step, or one task of an array step. It handles both in the same way: it takes the lease, runs a
process, keeps the lease alive. Only the files that it reads and writes differ: `step_books`, `task_books`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from marin_rules.state.status import Status
from marin_rules.storage.leases.lease import Lease
from marin_rules.worker.conclusion import Conclusion

type Overwrite = Callable[..., None]
"""`overwrite(path, data, durable=True)`: a write under the lease that is repeated until it succeeds or is futile."""


class Books(Protocol):
    """Of one step, or of one task."""

    @property
    def label(self) -> str:
        """Its name for people: precedes each line it prints."""

    @property
    def lease(self) -> Lease: ...

    @property
    def status_path(self) -> str:
        """The file with the deciding word."""

    @property
    def log_path(self) -> str: ...

    @property
    def attempts(self) -> int:
        """How many attempts there were before this one; known once it is taken up."""

    def is_done(self, *, waited: bool) -> bool:
        """Whether it is done, as far as can be seen without the lease. `waited`: somebody else was seen at it."""

    def take(self, *, waited: bool) -> bool:
        """While holding the lease, see what there is to do, and write RUNNING; False when there is nothing.

        `ChangedError` if the last worker changed something at this very moment: look again. `TaskHeldError` if somebody
        is working on what should be done again from the start: look again later.
        """

    def begin(self, facts: dict[str, Any]) -> None:
        """Gather what is known about the attempt, which is about to start. `facts` may grow until it is over."""

    def note_start(self) -> None:
        """Record that, while the attempt is already running. At its end everything is written again."""

    def write_down(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        """Write the outcome of the attempt, except the deciding word."""

    def close(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        """Write the deciding word. The last write of all."""

    def status(self) -> Status | None:
        """What was last written; None for nothing, or nothing that can be read."""

    def tell_driver(self, message: str, exception: str | None = None, *, previous: bool = False) -> None:
        """Tell the driver why it failed; `exception` is pickled. `previous`: it was refused, and did not run."""
