"""What a lease file holds: who has the step, since when, and the last sign of life, as JSON.

The record is one of Marin's, `{"worker_id", "timestamp"}`, whose workers stop with an error at any other
key. Everything else that we record is in the text of `worker_id`, after the name: to Marin's workers a lease of ours
is that of a worker with a long name. They wait for it, and take it over once its last heartbeat is 90 s old. A
record of Marin's is read as one of epoch 0 with no owner. Earlier versions of this package wrote keys of their own:
those are also read, and unknown ones are ignored.

`timestamp` and `since` are the wall clock of the holder. They are for people: they never decide whether a lease is
stale, since the clocks of two machines differ.
"""

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from marin_rules.errors import MarinRulesError
from marin_rules.storage.leases.owner import Owner
from marin_rules.units import clock_time, rough_duration

_LAST_MOMENT = 253402300799.0
"""The end of the year 9999: a later time cannot be shown, so it is not accepted."""


LIFETIME_SECONDS = 90.0
"""Three heartbeats, as in Marin: one may be late and one may fail."""

SHORTEST_LIFETIME_SECONDS = 1.0
_LONGEST_LIFETIME_SECONDS = 86400.0


class CorruptLeaseError(MarinRulesError, ValueError):
    """A lease file that does not hold a lease."""


@dataclass(frozen=True)
class LeaseRecord:
    """One content of a lease file."""

    worker_id: str
    timestamp: float
    """The last heartbeat."""
    epoch: int = 0
    """Counts the holders since the lease was last free: 1, and one more at each takeover."""
    since: float | None = None
    owner: Owner | None = None
    nonce: str = ""
    """Makes the bytes of each write unlike all others, even while the clock stands still: a change is a
    sign of life, and a writer that got no answer knows its own write again."""
    lifetime: float = LIFETIME_SECONDS
    """How long the lease is the holder's after a heartbeat, in seconds."""

    @classmethod
    def first(cls, owner: Owner, epoch: int, now: float, lifetime: float = LIFETIME_SECONDS) -> Self:
        """The record with which `owner` takes the lease."""
        return cls(owner.worker_id, now, epoch, now, owner, secrets.token_hex(8), lifetime)

    def beaten(self, now: float) -> Self:
        """The same lease with a new heartbeat."""
        return replace(self, timestamp=now, nonce=secrets.token_hex(8))

    def to_bytes(self) -> bytes:
        """The content of the lease file."""
        details = {
            "epoch": self.epoch,
            "since": self.since,
            "owner": None if self.owner is None else self.owner.to_fields(),
            "nonce": self.nonce,
            "lifetime": self.lifetime,
        }
        worker = f"{self.worker_id} {json.dumps(details)}"
        return json.dumps({"worker_id": worker, "timestamp": self.timestamp}).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """The record in the bytes of a lease file; `path` is for the error."""
        try:
            return cls._from_fields(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise CorruptLeaseError(
                f"the lease file {path} is not a lease ({error}). Delete it if no job works on this step; "
                "otherwise leave it: the next worker takes it over once it has not changed for some time."
            ) from error

    @classmethod
    def _from_fields(cls, fields: object) -> Self:
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        fields = _with_details(fields)
        worker_id, epoch, owner = fields.get("worker_id"), fields.get("epoch", 0), fields.get("owner")
        nonce = fields.get("nonce", "")
        if not isinstance(worker_id, str) or not isinstance(nonce, str):
            raise ValueError(f"worker_id or nonce is not a string: {worker_id!r}, {nonce!r}")
        if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 62:
            raise ValueError("epoch is not a number that a takeover can increment")
        if owner is not None and not isinstance(owner, dict):
            raise ValueError(f"owner is not an object: {owner!r}")
        return cls(
            worker_id=worker_id,
            timestamp=_moment(fields, "timestamp"),
            epoch=epoch,
            since=None if fields.get("since") is None else _moment(fields, "since"),
            owner=None if owner is None else Owner.from_fields(owner),
            nonce=nonce,
            lifetime=_lifetime(fields),
        )


def _with_details(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record, including what follows the worker's name, if anything does."""
    worker_id = fields.get("worker_id")
    name, separator, text = worker_id.partition(" {") if isinstance(worker_id, str) else ("", "", "")
    if not separator:
        return fields
    details = json.loads(f"{{{text}")
    return {**details, **fields, "worker_id": name}


_SHOWN_CHARACTERS = 300

FREE = b'{"worker_id": "nobody", "timestamp": 0.0}\n'
"""A lease that was given back where it could not be deleted. To workers that do not know it, Marin's too, it is one of
an unknown holder that has not beaten since 1970, and is taken over."""


UNREADABLE = LeaseRecord(worker_id="unknown", timestamp=0.0)
"""Stands for the holder of a lease file that cannot be parsed."""


def describe(record: LeaseRecord, now: float) -> str:
    """The holder of a lease for people; `now` is the wall clock."""
    if record == UNREADABLE:
        return "an unknown worker (the lease file cannot be read)"
    owner = record.owner
    parts = [record.worker_id]
    if owner is not None:
        parts[0] += f" (pid {owner.pid} on {owner.host}, user {owner.user})"
    parts[0] = _printable(parts[0])
    if record.since is not None:
        parts.append(f"running since {clock_time(record.since, now)}")
    parts.append(f"last heartbeat {rough_duration(now - record.timestamp)} ago")
    return ", ".join(parts)


def _printable(text: str) -> str:
    """A name that is safe for a terminal: anyone who can write to a prefix can write a lease, and terminals obey some
    characters."""
    shown = "".join(character if character.isprintable() else "?" for character in text[:_SHOWN_CHARACTERS])
    return shown if len(text) <= _SHOWN_CHARACTERS else f"{shown}..."


def _lifetime(fields: Mapping[str, object]) -> float:
    value = fields.get("lifetime", LIFETIME_SECONDS)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"lifetime is not a number of seconds: {value!r}")
    if not SHORTEST_LIFETIME_SECONDS <= value <= _LONGEST_LIFETIME_SECONDS:
        raise ValueError(f"lifetime is not a number of seconds from 1 to a day: {value!r}")
    return float(value)


def _moment(fields: Mapping[str, object], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{name} is not a time: {value!r}")
    if not math.isfinite(value) or not 0 <= value <= _LAST_MOMENT:
        raise ValueError(f"{name} is not a time: {value!r}")
    return float(value)
