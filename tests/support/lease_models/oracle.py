"""The judge: an account of its own of who holds the lease and who has written the status, by true time.

It sees each change that a store really made, and who made it, whatever the workers believe. It never reads the lease's
content. A `Violation` is one of these:

- a lease that was alive was taken over or created anew: two would hold it;
- a lease was removed by somebody who was not its holder: a late release hit a successor;
- a status was written by somebody who never had the lease, or after a successor had written it;
- SUCCESS was written by another worker than the last one that wrote RUNNING;
- the status of a step that was done was changed, or SUCCESS was written by two workers;
- on a store that compares lease and status in one go: a status was written by one who is not the holder.
"""

from typing import NamedTuple, Self

from marin_rules.state.status import Status, parse_status

type Worker = int


class Violation(AssertionError):
    """Something happened that a lease must prevent."""


class Ledger(NamedTuple):
    """What has happened to one step so far. Never changed: each event makes a new one."""

    holder: Worker | None = None
    changed_at: float = 0.0
    succession: tuple[Worker, ...] = ()
    """Who took the lease, in order."""
    last_rank: int = -1
    """The highest place in the succession of those that have written the status."""
    running: Worker | None = None
    """Who wrote RUNNING last."""
    done_by: Worker | None = None

    def lease_written(self, who: Worker, now: float, lifetime: float, *, is_dead: bool = False) -> Self:
        """The lease was created, refreshed or taken over; `is_dead`: its holder was, and that could be seen."""
        if self.holder == who:
            return self._replace(changed_at=now)
        if self.holder is not None and not is_dead and now - self.changed_at < lifetime:
            raise Violation(f"{who} took the lease of {self.holder} after {now - self.changed_at} of {lifetime} s")
        return self._replace(holder=who, changed_at=now, succession=(*self.succession, who))

    def lease_removed(self, who: Worker) -> Self:
        if self.holder != who:
            raise Violation(f"{who} removed the lease of {self.holder}")
        return self._replace(holder=None)

    def status_written(self, who: Worker, data: bytes, *, is_fenced: bool, may_repeat: bool = False) -> Self:
        """The status was written; `may_repeat`: a successor may do a done step again."""
        rank = len(self.succession) - 1 - self.succession[::-1].index(who) if who in self.succession else -1
        status = parse_status(data, "status")
        if rank < 0 or (is_fenced and self.holder != who):
            raise Violation(f"{who} wrote {status} without the lease, which {self.holder} has")
        if rank < self.last_rank:
            raise Violation(f"{who} wrote {status} after its successor {self.succession[self.last_rank]} had written")
        by_another = self.done_by != who
        if self.done_by is not None and (not may_repeat if by_another else status is not Status.SUCCESS):
            raise Violation(f"{who} wrote {status} over the SUCCESS of {self.done_by}")
        if status is Status.SUCCESS and self.running != who:
            raise Violation(f"{who} wrote SUCCESS, but {self.running} wrote RUNNING last")
        return self._replace(
            last_rank=rank,
            running=who if status is Status.RUNNING else self.running,
            done_by=who if status is Status.SUCCESS else None,
        )
