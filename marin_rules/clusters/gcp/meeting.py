"""Where the worker of a step and the machines of its ranks leave messages for each other: a few objects in the bucket.

Machines of one step need not be able to reach each other for this, and survive each other's absence. A folder of their
own contains

    order.json the worker's message: which round it is, whether ranks may start, whether they have to end
    host-17.json the message of one machine: that it is up, runs its rank, or how that ended
    host-17-round-2.log what its rank printed
    boot.log the last output of a machine that could not start, whichever that was

Each message carries a number that increases as long as its writer is alive. Clocks are never compared: a reader sees
that a number no longer changes, and for how long by its own clock. An order holds data, and nothing to execute:
machines know what to run from the command that started them.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Self

from marin_rules.storage.objects.open import open_objects
from marin_rules.storage.objects.store import ObjectVersion
from marin_rules.storage.patience import patiently

PACE_VARIABLE = "MARIN_HOSTS_PACE"
"""If set, all times below are multiplied by its value: for tests."""

_BOOT_BYTES = 4096
"""Bytes of the end of a boot's log."""


@dataclass(frozen=True)
class Pace:
    """How long things may take, in seconds."""

    look: float = 2.0
    """The pause between two looks at the messages of others."""

    beat: float = 10.0
    """The pause between two numbers of one's own."""

    start: float = 1200.0
    """Until all machines are there, once the first of them could be: booting, fetching code, making an environment."""

    silent: float = 120.0
    """A machine whose number has not changed for this long is lost."""

    orphaned: float = 900.0
    """A machine whose worker's number has not changed for this long ends: enough for another worker to take over."""

    stop: float = 8.0
    """Between asking a rank to end and killing it. A worker that was told to stop has 20 s in total (`worker.ending`),
    in which it also has to give back the machines."""

    @classmethod
    def current(cls) -> Self:
        factor = float(os.environ.get(PACE_VARIABLE) or 1.0)
        return cls(**{name: seconds * factor for name, seconds in asdict(cls()).items()})


@dataclass(frozen=True)
class Order:
    """What the worker wants."""

    round: int
    """Increases with each start of the ranks; a machine that works on an earlier one ends that first."""

    beat: int = 0
    count: int = 0
    """How many ranks there are."""

    report: str = ""
    """Where ranks leave their reports."""

    coordinator: str | None = None
    """Where the ranks meet. They start when it is known; empty if there is only one."""

    stop: bool = False
    """Ranks have to end."""

    dismissed: bool = False
    """The machines are no longer needed."""

    seconds_left: float | None = None
    """Until the step's time limit, when the round began."""


class Phase(StrEnum):
    READY = "ready"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class HostWord:
    """What a machine says about itself."""

    round: int
    phase: Phase
    boot: str
    """A different one after each start of the machine."""

    beat: int = 0
    address: str = ""
    port: int = 0
    """A port of the machine that was free, for ranks to meet at."""

    code: int = 0
    """How its rank ended, as shells write it."""

    reason: str = ""
    """Why, if it did not end on its own."""


class Meeting:
    """The messages of one worker and its machines, below one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def order(self) -> tuple[Order, ObjectVersion] | None:
        """The worker's message; None before there is one. `ValueError` for anything else."""
        found = _read(f"{self.folder}/order.json")
        return None if found is None else (_parsed(Order, found[0]), found[1])

    def give(self, order: Order, seen: ObjectVersion | None) -> ObjectVersion | None:
        """Say something as the worker, if nobody else has since; None if somebody has: another worker took over."""
        url = f"{self.folder}/order.json"
        data = json.dumps(asdict(order)).encode()
        written = patiently(lambda: open_objects(url).write(url, data, seen))
        if written is not None:
            return written
        found = _read(url)  # An answer may have been lost although the message was written.
        return found[1] if found is not None and found[0] == asdict(order) else None

    def host(self, rank: int) -> HostWord | None:
        """The message of a machine; None before there is one. `ValueError` for anything else."""
        found = _read(self._host(rank))
        if found is None:
            return None
        word = _parsed(HostWord, found[0])
        return replace(word, phase=Phase(word.phase))

    def say(self, rank: int, word: HostWord) -> None:
        """Say something as a machine: nobody else does in its place."""
        url = self._host(rank)
        data = json.dumps(asdict(word)).encode()
        patiently(lambda: open_objects(url).put(url, data))

    def log(self, rank: int, round: int) -> str:
        """The URL of what the rank printed."""
        return f"{self.folder}/host-{rank}-round-{round}.log"

    def read_log(self, rank: int, round: int, start: int, size: int) -> bytes:
        url = self.log(rank, round)
        return patiently(partial(open_objects(url).read_part, url, start, size)) or b""

    @property
    def boot_log(self) -> str:
        """The URL of the output of a machine that could not start."""
        return f"{self.folder}/boot.log"

    def last_boot_lines(self, count: int) -> list[str]:
        """The last output of such a machine; nothing if none has left any."""
        data = patiently(partial(open_objects(self.boot_log).read_part, self.boot_log, -_BOOT_BYTES, _BOOT_BYTES))
        return (data or b"").decode(errors="replace").splitlines()[-count:]

    def _host(self, rank: int) -> str:
        return f"{self.folder}/host-{rank}.json"


def _parsed[Word](kind: type[Word], fields: Any) -> Word:
    try:
        return kind(**fields)
    except TypeError as error:  # Of another version, or somebody else's.
        raise ValueError(str(error)) from error


def _read(url: str) -> tuple[dict[str, Any], ObjectVersion] | None:
    found = patiently(lambda: open_objects(url).read(url))
    if found is None:
        return None
    try:
        fields: dict[str, Any] = json.loads(found.data)
    except RecursionError as error:  # Only brackets, say: not a message.
        raise ValueError(str(error)) from error
    return fields, found.version
