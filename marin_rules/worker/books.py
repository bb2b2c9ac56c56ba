"""The books of an attempt: what says whether there is anything to do, and where it is written down what came of it.

A worker runs one step, or one task of an array step. It goes about both in the same way: it takes the lease, lets a
process run, keeps the lease alive. What differs is only which files it reads and writes: `step_books`, `task_books`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from marin_rules.state.status import Status
from marin_rules.storage.leases.lease import Lease
from marin_rules.worker.conclusion import Conclusion

type Overwrite = Callable[..., None]
"""`overwrite(path, data, durable=True)`: a write under the lease that is repeated until it is made, or in vain."""


class Books(Protocol):
    """Of one step, or of one task."""

    @property
    def label(self) -> str:
        """What people call it: stands before each line it prints."""

    @property
    def lease(self) -> Lease: ...

    @property
    def status_path(self) -> str:
        """The file with the word that decides."""

    @property
    def log_path(self) -> str: ...

    @property
    def attempts(self) -> int:
        """How many attempts there were before this one; known once it was taken up."""

    def is_done(self, *, waited: bool) -> bool:
        """Whether it is done, as far as can be seen without the lease. `waited`: somebody else was seen at it."""

    def take(self, *, waited: bool) -> bool:
        """With the lease in hand, see what is to be done, and write RUNNING; False when there is nothing to do.

        `ChangedError` if the last worker changed something in this very moment: look again. `TaskHeldError` if
        somebody works on what is to be done again from the start: look again later.
        """

    def begin(self, facts: dict[str, Any]) -> None:
        """Gather what is known of the attempt, which is about to start. `facts` may grow until it is over."""

    def note_start(self) -> None:
        """Write that down, while the attempt runs already. At its end all is written again."""

    def write_down(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        """Write what came of the attempt, but for the word that decides."""

    def close(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        """Write the word that decides. The last write of all."""

    def status(self) -> Status | None:
        """What was last written; None for nothing, or nothing that can be read."""

    def tell_driver(self, message: str, exception: str | None = None, *, previous: bool = False) -> None:
        """Let the driver know why it failed; `exception` is pickled. `previous`: it was refused, and did not run."""
