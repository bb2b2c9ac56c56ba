"""Ranks on machines that only the bucket connects to the worker: other machines of a Batch job, hosts of TPU slices.

The machines come from `Machines`, which knows how to get them; `host.Host` runs on each of them. This module does what
comes in between: all have to be there before any rank starts, the first one that fails ends the others, and a machine
that falls silent, or that its service says is gone, ends the round without blaming the step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from marin_rules.clusters.gcp.host_failures import HostEnd, judge
from marin_rules.clusters.gcp.meeting import HostWord, Meeting, Order, Pace, Phase
from marin_rules.clusters.protocol import ClusterError
from marin_rules.clusters.ranks import RankCall, RanksEnd, Take, join_address
from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.objects.store import ObjectVersion

MOST_LOSSES = 20
"""How often the machines of a step may be lost and replaced in one job of it."""

MOST_BARREN = 3
"""How often in a row none of them may come up, before that is taken for a mistake in what they are told to run."""

_PIECE_BYTES = 1 << 20
_LAST_LINES = 30
_BOOT_LINES = 5
_TIDY_LOOKS = 3
"""How many looks it takes until a rank is seen to have stopped: its machine learns of it, says so, and is read."""


class NoMachinesError(ClusterError):
    """There are no machines, and waiting for any is futile."""


class Machines(Protocol):
    """The machines of ranks."""

    @property
    def count(self) -> int: ...

    @property
    def pace(self) -> Pace: ...

    @property
    def can_be_replaced(self) -> bool:
        """Whether this job can get replacements for them."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known about them, for the step's info file."""

    def obtain(self, stopped: Callable[[], bool], say: Callable[[str], None]) -> Meeting | None:
        """Get them all; returns where they leave messages. None if `stopped` came first. `NoMachinesError` if there are
        none."""

    def lost(self) -> str | None:
        """Why they are gone, according to their service; None if they are not, or it is unknown. May be called
        often."""

    def replace(self, why: str) -> None:
        """They are no longer usable: the next `obtain` gets others."""

    def release(self) -> None:
        """They are no longer needed."""


class HostRanks:
    """See `clusters.ranks.Ranks`."""

    def __init__(self, machines: Machines, seconds_left: Callable[[], float | None] = lambda: None) -> None:
        self._machines = machines
        self._seconds_left = seconds_left
        self._losses = 0
        self._barren = 0
        self._meeting: Meeting | None = None

    @property
    def count(self) -> int:
        return self._machines.count

    def run(self, call: RankCall, take: Take) -> RanksEnd:
        def say(text: str) -> None:
            take(None, f"marin-rules: {text}\n".encode())

        meeting = self._meeting = self._machines.obtain(call.stopped, say)
        if meeting is None:
            return RanksEnd("it was stopped before it had machines")
        round = _Round(self._machines, meeting, call, take, self._seconds_left())
        found = replace(round.run(), facts=self._facts())
        if not found.lost_machines:
            return found
        if not self._machines.can_be_replaced:
            return replace(found, lost_machines=False)
        self._losses += 1
        self._barren = self._barren + 1 if round.is_barren else 0
        self._machines.replace(str(found.problem))
        if self._barren >= MOST_BARREN:
            problem = f"{found.problem}; this happened {self._barren} times in a row, on different machines"
            return replace(found, problem=problem, lost_machines=False)
        if self._losses > MOST_LOSSES:
            problem = f"{found.problem}; losses so far: {self._losses}, allowed: {MOST_LOSSES}"
            return replace(found, problem=problem, lost_machines=False)
        return found

    def _facts(self) -> dict[str, Any]:
        facts = dict(self._machines.facts)
        if self._losses:
            facts["losses"] = self._losses
            facts["machines"] = f"{facts.get('machines', 'machines')} (lost and replaced {_times(self._losses)})"
        return facts

    def close(self) -> None:
        try:
            if self._meeting is not None and (current := self._meeting.order()) is not None:
                self._meeting.give(replace(current[0], stop=True, dismissed=True), current[1])
        finally:
            self._machines.release()


@dataclass
class _Seen:
    """What was seen of one machine in this round."""

    word: HostWord | None = None
    changed: float = 0.0
    """When its report last changed, by our clock."""

    read: int = 0
    """Bytes of its log."""

    rest: bytes = b""
    """The beginning of a line whose end has not come yet."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))


class _Round:
    """One start of the ranks, to their end."""

    is_barren = False
    """None of the machines came up in time."""

    def __init__(
        self, machines: Machines, meeting: Meeting, call: RankCall, take: Take, seconds_left: float | None
    ) -> None:
        self._machines = machines
        self._meeting = meeting
        self._call = call
        self._take = take
        self._pace = machines.pace
        self._hosts = [_Seen() for _ in range(machines.count)]
        self._ends: dict[int, HostEnd] = {}
        before = meeting.order()
        number = 1 if before is None else before[0].round + 1
        self._version: ObjectVersion | None = None if before is None else before[1]
        self._begun = self._beat_at = 0.0
        self._stop_by = float("inf")
        self._order = Order(number, count=machines.count, report=call.report, seconds_left=seconds_left)

    def run(self) -> RanksEnd:
        self._begun = self._beat_at = time.monotonic()
        for host in self._hosts:
            host.changed = self._begun
        if not self._give():
            return self._superseded()
        while True:
            time.sleep(self._pace.look)
            try:
                end = self._turn(time.monotonic())
            except UnansweredError as error:
                # Whether this worker may continue without a store is decided by its lease.
                self._take(None, f"marin-rules: will look again: {error}\n".encode())
                continue
            if end is not None:
                return end

    def _turn(self, now: float) -> RanksEnd | None:
        """Look at all machines, and do what is needed; the end, if it has come."""
        self._look(now)
        if self._call.stopped() or any(end.code for end in self._ends.values()):
            if not self._order.stop and not self._give(stop=True):
                return self._superseded()
            self._stop_by = min(self._stop_by, now + self._pace.stop + _TIDY_LOOKS * self._pace.look)
        if len(self._ends) == self._machines.count or now > self._stop_by:
            return self._end()
        gone = self._machines.lost() or self._absent(now)
        if gone is not None:
            self._give(stop=True)
            self._read_logs()
            return RanksEnd(gone, lost_machines=True)
        if self._may_start() and not self._give(coordinator=self._coordinator()):
            return self._superseded()
        if now - self._beat_at > self._pace.beat:
            self._beat_at = now
            if not self._give(beat=self._order.beat + 1):
                return self._superseded()
        return None

    def _give(self, **changes: Any) -> bool:
        """Say something new; False if another worker has taken over."""
        self._order = replace(self._order, **changes)
        self._version = self._meeting.give(self._order, self._version)
        return self._version is not None

    def _superseded(self) -> RanksEnd:
        return RanksEnd("another worker of the step has taken over its machines")

    # -- looking ---------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        for rank, host in enumerate(self._hosts):
            if rank in self._ends:
                continue
            try:
                word = self._meeting.host(rank)
            except ValueError:  # Not a report of one of our machines: it counts as silent.
                continue
            if word != host.word:
                host.word, host.changed = word, now
            if word is None or word.round != self._order.round:
                continue
            if word.phase is not Phase.READY:
                self._read_log(rank)
            if word.phase is Phase.ENDED:
                self._ends[rank] = HostEnd(rank, word.code, word.reason, tuple(host.lines))

    def _read_logs(self) -> None:
        for rank in range(len(self._hosts)):
            if rank not in self._ends:
                self._read_log(rank)

    def _read_log(self, rank: int) -> None:
        host = self._hosts[rank]
        while piece := self._meeting.read_log(rank, self._order.round, host.read, _PIECE_BYTES):
            host.read += len(piece)
            *lines, host.rest = (host.rest + piece).split(b"\n")
            for line in lines:
                self._pass_on(rank, line)
        if host.rest and host.word is not None and host.word.phase is Phase.ENDED:
            self._pass_on(rank, host.rest)
            host.rest = b""

    def _pass_on(self, rank: int, line: bytes) -> None:
        self._take(rank, line + b"\n")
        self._hosts[rank].lines.append(line.decode(errors="replace"))

    # -- deciding --------------------------------------------------------------------------------------------

    def _may_start(self) -> bool:
        words = [host.word for host in self._hosts]
        return (
            self._order.coordinator is None
            and not self._order.stop
            and all(
                word is not None and word.round == self._order.round and word.phase is Phase.READY for word in words
            )
        )

    def _coordinator(self) -> str:
        first = self._hosts[0].word
        assert first is not None
        return join_address(first.address, first.port) if len(self._hosts) > 1 else ""

    def _absent(self, now: float) -> str | None:
        """Which machines have not come up, or have gone."""
        if self._order.coordinator is None:
            if now - self._begun <= self._pace.start:
                return None
            late = [rank for rank, host in enumerate(self._hosts) if not self._is_there(host)]
            self.is_barren = len(late) == len(self._hosts)
            count, within = len(self._hosts), f"within {self._pace.start:.0f} s{self._last_words()}"
            if self.is_barren:
                return f"none of {count} machines came up {within}"
            return f"machine {_numbers(late)} of {count} did not come up {within}"
        quiet = [
            rank
            for rank, host in enumerate(self._hosts)
            if rank not in self._ends and now - host.changed > self._pace.silent
        ]
        if not quiet:
            return None
        return f"machine {_numbers(quiet)} of {len(self._hosts)} has said nothing for {self._pace.silent:.0f} s"

    def _last_words(self) -> str:
        """The problem of a machine that could not start."""
        lines = self._meeting.last_boot_lines(_BOOT_LINES)
        return "".join(["; one of them printed:", *(f"\n    {line}" for line in lines)]) if lines else ""

    def _is_there(self, host: _Seen) -> bool:
        return host.word is not None and host.word.round == self._order.round

    def _end(self) -> RanksEnd:
        names = {rank: host.word.address for rank, host in enumerate(self._hosts) if host.word is not None}
        verdict = judge(list(self._ends.values()), names)
        if verdict is not None:
            return RanksEnd(verdict.text, verdict.rank, verdict.is_broken_machine)
        missing = [rank for rank in range(len(self._hosts)) if rank not in self._ends]
        return RanksEnd(f"machine {_numbers(missing)} did not stop in time") if missing else RanksEnd()


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _numbers(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
