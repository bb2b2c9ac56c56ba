"""The account of one shard: what was read is what was written, rejected or dropped, or the shard has failed.

*Rejected* is bad input: each one is a line in `rejects/`, with its place and the reason. *Dropped* is a decision of the
stage about a good record, counted by reason; a stage that gives ids also lists them in `dropped/`. Reasons are few and
fixed; what is particular is the detail of a reject.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from marin_rules.pipeline.core.errors import DataError

_BEGINNING = 200
"""Characters of a rejected record that are kept, for people to recognise it by."""


class Account:
    def __init__(
        self,
        shard: str,
        write_reject: Callable[[dict[str, Any]], None],
        write_drop: Callable[[str, str], None] | None = None,
    ) -> None:
        self._shard = shard
        self._write_reject = write_reject
        self._write_drop = write_drop
        self.read = 0
        self.written = 0
        self.bytes_read = 0
        """As text, whatever the file's compression."""

        self.rejected: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.tallies: Counter[str] = Counter()
        """Whatever else the stage counts. They add up over shards."""

    def reject(self, number: int, reason: str, *, detail: str = "", id: str | None = None, content: str = "") -> None:
        """Record `number` of the shard (from 1) is bad input."""
        self.rejected[reason] += 1
        row: dict[str, Any] = {"shard": self._shard, "number": number, "reason": reason}
        row |= {"id": id} if id is not None else {}
        row |= {"detail": detail} if detail else {}
        self._write_reject({**row, "beginning": content[:_BEGINNING]})

    def drop(self, reason: str, id: str | None = None) -> None:
        """A good record is left out. With its id it can later be found out which ones were, and why."""
        self.dropped[reason] += 1
        if id is not None and self._write_drop is not None:
            self._write_drop(id, reason)

    def check_balance(self) -> None:
        accounted = self.written + self.rejected.total() + self.dropped.total()
        if accounted != self.read:
            raise DataError(
                f"{self._shard}: {self.read} records were read, but {self.written} written, {self.rejected.total()}"
                f" rejected and {self.dropped.total()} dropped: the stage lost or made records, a bug in it"
            )

    def counts(self) -> dict[str, Any]:
        return {
            "read": self.read,
            "written": self.written,
            "bytes_read": self.bytes_read,
            "rejected": dict(self.rejected),
            "dropped": dict(self.dropped),
            "tallies": dict(self.tallies),
        }


def add_up(counts: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of several shards as one."""
    total: dict[str, Any] = {name: sum(one[name] for one in counts) for name in ("read", "written", "bytes_read")}
    for name in ("rejected", "dropped", "tallies"):
        sums: Counter[str] = Counter()
        for one in counts:
            sums.update(one[name])
        total[name] = dict(sorted(sums.items()))
    return total
