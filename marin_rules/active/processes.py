"""Signals to processes of this machine: to exactly the intended process, never to a later one with its number.

A pidfd is bound to that process, which psutil, comparing start times before each signal, cannot guarantee. psutil is
used for what it does better: finding the processes below another.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Protocol, Self

from marin_rules.errors import MarinRulesError
from marin_rules.storage.leases.owner import PROC, Owner


class Process(Protocol):
    """A process that can be asked to end."""

    @property
    def pid(self) -> int: ...

    @property
    def interruption(self) -> signal.Signals:
        """The signal that stops it as Ctrl-C would."""

    def send(self, number: signal.Signals) -> None:
        """Send a signal. A process that has ended is fine."""

    def has_ended(self, within: float = 0.0) -> bool:
        """Whether the process has ended; waits for that for some seconds."""

    def company(self) -> list[int]:
        """The processes that Ctrl-C in its terminal would reach along with it."""

    def close(self) -> None: ...


class LocalProcess:
    """A process that was alive when it was found."""

    def __init__(self, owner: Owner, descriptor: int) -> None:
        self.pid = owner.pid
        self._user = owner.user
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    @classmethod
    def find(cls, owner: Owner) -> Self | None:
        """The process of an owner; None if it has ended, or is not on this machine."""
        if not can_be_seen(owner):
            return None
        try:
            descriptor = os.pidfd_open(owner.pid)
        except ProcessLookupError:
            return None
        if owner.is_dead_here():  # Checked after opening: what is open now is the intended process.
            os.close(descriptor)
            return None
        return cls(owner, descriptor)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, even to a process that was suspended with Ctrl-Z. One that has ended is fine."""
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)
                signal.pidfd_send_signal(self._descriptor, signal.SIGCONT)
        except PermissionError as error:
            raise MarinRulesError(
                f"process {self.pid} belongs to {self._user}: only they, or an administrator, can end it"
            ) from error

    @property
    def interruption(self) -> signal.Signals:
        """The signal that stops it: SIGINT, unless it was started to ignore that, as a script's `command &` is."""
        ignored = 0
        with contextlib.suppress(OSError, ValueError), open(f"{PROC}/{self.pid}/status") as file:
            ignored = next(int(line.split()[1], 16) for line in file if line.startswith("SigIgn:"))
        return signal.SIGTERM if ignored >> (signal.SIGINT - 1) & 1 else signal.SIGINT

    def has_ended(self, within: float = 0.0) -> bool:
        """Whether the process has ended; waits for that for some seconds."""
        return bool(self._poll.poll(within * 1000))

    def company(self) -> list[int]:
        """The processes below it that are in its group: what Ctrl-C in its terminal would reach along with it."""
        import psutil  # Imported here because only stopping a run needs it.

        try:
            group = os.getpgid(self.pid)
            below = psutil.Process(self.pid).children(recursive=True)
        except (ProcessLookupError, psutil.NoSuchProcess):
            return []
        return [process.pid for process in below if _group(process.pid) == group]

    def close(self) -> None:
        os.close(self._descriptor)


def can_be_seen(owner: Owner) -> bool:
    """Whether this machine can tell if the owner's process is alive: it is, or was, one of this machine."""
    return owner.start_ticks is not None and _place(owner) == _place(Owner.current())


def is_from_before_a_restart(owner: Owner) -> bool:
    """Whether the owner's machine has our name and was started since: it is dead, unless two machines share a name."""
    here = Owner.current()
    return owner.host == here.host and None not in (owner.boot_id, here.boot_id) and owner.boot_id != here.boot_id


def _place(owner: Owner) -> tuple[str, str | None, str | None]:
    return owner.host, owner.boot_id, owner.pid_namespace


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
