"""A machine for one rank of a step: waits for the worker's order, runs the rank, reports how it ended.

It restarts whenever its machine does. No rank may start before all machines have said that they are ready, so a machine
that comes up and finds that ranks may start has lost its rank, and says so: a rank is never run twice in a round.

It has a dead man's switch: when the worker has been silent for too long, it ends its rank and itself, and deletes its
machines. The same applies to machines that were dismissed but not deleted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import IO

from marin_rules.clusters.gcp.meeting import HostWord, Meeting, Order, Pace, Phase
from marin_rules.clusters.ranks import REPORT_OPTION, candidate_ports, is_free
from marin_rules.errors import MarinRulesError
from marin_rules.parentage import end_with_parent
from marin_rules.process import ThisProcess
from marin_rules.storage.objects.growing import GrowingObject
from marin_rules.storage.patience import patiently

REBOOTED = "its machine rebooted"
TIME_LIMIT = "the step's time limit was reached"

_ENDING_LOOK_SECONDS = 0.2
"""The pause between two looks at a rank that was asked to end."""


class Host:
    """See `clusters.allocation.OtherMachine`."""

    def __init__(
        self,
        meeting: Meeting,
        rank: int,
        *,
        address: str,
        variables: Mapping[str, str] | None = None,
        abandon: Callable[[], None] | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`address` is that by which other machines reach this one; `variables` are for its rank, beside those of this
        process; `abandon` gives the machines back when nobody else does, None if they end with this process."""
        self.rank = rank
        self._meeting = meeting
        self._address = address
        self._variables = dict(variables or {})
        self._abandon = abandon
        self._pace = pace or Pace.current()
        self._stopping = threading.Event()
        self._running: _Rank | None = None
        self._last_order: Order | None = None
        self._is_unsaid = False
        """The report has changed, and could not be published."""

        self._word = HostWord(0, Phase.ENDED, boot=secrets.token_hex(4))

    def stop(self) -> None:
        """End the rank, and then this machine's service; may be called from a signal handler."""
        self._stopping.set()

    def serve(self, start: Sequence[str]) -> int:
        heard = beat_at = time.monotonic()
        while True:
            order, is_new = self._look()
            now = time.monotonic()
            heard = now if is_new else heard
            is_orphan = now - heard > self._pace.orphaned
            if self._running is not None:
                self._watch(self._running, order, is_orphan)
            if self._running is None:
                if is_orphan:
                    _print(
                        f"the step's worker has said nothing for {self._pace.orphaned:.0f} s: this machine shuts down"
                    )
                    if self._abandon is not None:
                        self._abandon()
                    return os.EX_TEMPFAIL
                if self._stopping.is_set():
                    return os.EX_TEMPFAIL
                if order is not None and order.dismissed and self._abandon is None:
                    return os.EX_OK
                if order is not None:
                    self._obey(order, start)
            if now - beat_at > self._pace.beat or self._is_unsaid:
                beat_at = now
                self._say(beat=self._word.beat + 1)
            is_ending = self._running is not None and self._running.is_ending
            self._stopping.wait(_ENDING_LOOK_SECONDS if is_ending else self._pace.look)
            if self._stopping.is_set():
                time.sleep(_ENDING_LOOK_SECONDS)

    def _look(self) -> tuple[Order | None, bool]:
        """What the worker wants, and whether it has said so since the last look. A store that does not answer is no
        news."""
        try:
            found = self._meeting.order()
        except (OSError, ValueError) as error:
            _print(f"no news from the step's worker: {error}")
            return self._last_order, False
        order = None if found is None else found[0]
        is_new = order != self._last_order
        self._last_order = order
        return order, is_new

    def _watch(self, rank: _Rank, order: Order | None, is_orphan: bool) -> None:
        is_wanted = order is not None and order.round == self._word.round and not order.stop
        if is_orphan or self._stopping.is_set() or not is_wanted or rank.is_overdue:
            rank.end(TIME_LIMIT if rank.is_overdue else "")
        has_ended = rank.has_ended  # Checked first, so that its output is complete by then.
        rank.publish()
        if has_ended:
            rank.close()
            self._running = None
            self._say(phase=Phase.ENDED, code=rank.code, reason=rank.reason)

    def _obey(self, order: Order, start: Sequence[str]) -> None:
        if order.stop:
            return
        if order.round > self._word.round:
            self._word = self._word_for(order)
            self._say()
        elif order.round == self._word.round and self._word.phase is Phase.READY and order.coordinator is not None:
            self._running = self._start(order, start)
            self._say(phase=Phase.RUNNING)

    def _word_for(self, order: Order) -> HostWord:
        """The reply to an order that is new here."""
        word = HostWord(order.round, Phase.READY, self._word.boot, address=self._address)
        if order.coordinator is not None:
            return replace(word, phase=Phase.ENDED, code=1, reason=REBOOTED)
        port = next(port for port in candidate_ports(f"{self._meeting.folder} {order.round}") if is_free(port))
        return replace(word, port=port)

    def _start(self, order: Order, start: Sequence[str]) -> _Rank:
        process = ThisProcess(self.rank, order.count, coordinator_address=order.coordinator or None)
        words = [*start, REPORT_OPTION, order.report]
        variables = {**os.environ, **self._variables, **process.to_variables()}
        return _Rank(words, variables, self._meeting.log(self.rank, order.round), order.seconds_left, self._pace.stop)

    def _say(self, **changes: object) -> None:
        self._word = replace(self._word, **changes)  # type: ignore[arg-type]
        try:
            self._meeting.say(self.rank, self._word)
            self._is_unsaid = False
        except OSError as error:
            _print(str(error))
            self._is_unsaid = True


class _Rank:
    """The process of a rank, and what it prints."""

    def __init__(
        self,
        words: Sequence[str],
        variables: Mapping[str, str],
        log: str,
        seconds_left: float | None,
        stop_seconds: float,
    ) -> None:
        self.reason = ""
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._log = GrowingObject(log)
        self._stop_seconds = stop_seconds
        self._due = float("inf") if seconds_left is None else time.monotonic() + seconds_left
        self._kill_at: float | None = None
        self._process = subprocess.Popen(
            words,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(end_with_parent, os.getpid()),
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int:
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() > self._due

    @property
    def is_ending(self) -> bool:
        return self._kill_at is not None

    def end(self, reason: str) -> None:
        """Ask it to end; after a while, kill it."""
        if self._kill_at is None:
            self.reason = self.reason or reason
            self._kill_at = time.monotonic() + self._stop_seconds
            self._signal(signal.SIGTERM)
        elif time.monotonic() > self._kill_at:
            self._signal(signal.SIGKILL)

    def publish(self) -> None:
        """Publish its output. Trouble with that is no reason for it to fail."""
        try:
            patiently(lambda: self._log.publish(self._file.fileno(), lambda: True))
        except (OSError, MarinRulesError) as error:
            _print(f"could not publish {self._log.url}: {error}")

    def close(self) -> None:
        """End everything that it has left running, too."""
        self._signal(signal.SIGKILL)
        self._file.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _print(text: str) -> None:
    print(f"marin-rules: {text}", file=sys.stderr, flush=True)
