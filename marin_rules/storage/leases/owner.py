"""Who holds a lease, described so precisely that a process on the same machine can see that the holder is dead.

A process number alone says little: it is reused, and other machines and containers have the same numbers.
An `Owner` therefore adds the boot of the machine, the process namespace and the moment at which the process
started. Only when all of these can be compared, and no such process is left, is an owner called dead. If there is any
doubt (another machine, another container, no /proc), it is not: its lease then has to expire.

Read from /proc, not through psutil: a lease stores the start in clock ticks, while psutil adds the boot time, which
moves when the wall clock is set; psutil calls a process a zombie while threads of it still write; and workers in the
environment of a step have no psutil.
"""

import getpass
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

PROC = "/proc"

# Positions in /proc/<pid>/stat, counted from the state, the first field after the name; see proc(5).
_STATE, _THREADS, _START = 0, 17, 19


@dataclass(frozen=True)
class Owner:
    """One worker. The last three fields are `None` if the system does not provide them."""

    worker_id: str
    """Unique over all machines and times: host, process and a random part."""
    host: str
    pid: int
    user: str
    start_ticks: int | None = None
    """When the process started, in clock ticks since the boot: distinguishes it from a later one with its number."""
    boot_id: str | None = None
    pid_namespace: str | None = None

    @classmethod
    def current(cls) -> Self:
        """This process, under a worker id of its own at each call. A forked child has to call it again."""
        host, pid = os.uname().nodename, os.getpid()
        boot_id, pid_namespace = _place() or (None, None)
        process = _Process.find(pid) if boot_id else None
        return cls(
            worker_id=f"{host}-{pid}-{secrets.token_hex(4)}",
            host=host,
            pid=pid,
            user=_user(),
            start_ticks=process.start_ticks if process else None,
            boot_id=boot_id,
            pid_namespace=pid_namespace,
        )

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> Self:
        """The owner that `to_fields` described; `ValueError` for anything else. Ignores unknown fields."""
        start_ticks, boot_id, namespace = map(fields.get, ("start_ticks", "boot_id", "pid_namespace"))
        return cls(
            worker_id=_text(fields.get("worker_id")),
            host=_text(fields.get("host")),
            pid=_number(fields.get("pid"), 1 << 31),
            user=_text(fields.get("user")),
            start_ticks=None if start_ticks is None else _number(start_ticks, 1 << 63),
            boot_id=None if boot_id is None else _text(boot_id),
            pid_namespace=None if namespace is None else _text(namespace),
        )

    def to_fields(self) -> dict[str, object]:
        """The owner as JSON values."""
        return asdict(self)

    def is_dead_here(self) -> bool:
        """Whether the process is certainly gone. `False` proves nothing: it may be running, or out of our sight."""
        here = _place()
        if here is None or self.start_ticks is None or self.host != os.uname().nodename:
            return False
        if (self.boot_id, self.pid_namespace) != here:
            return False
        try:
            process = _Process.find(self.pid)
        except (OSError, ValueError, IndexError):
            return False
        if process is None:
            # A /proc mounted with `hidepid` does not show the processes of others; a signal still finds them.
            return not _receives_signals(self.pid)
        return process.has_ended or process.start_ticks != self.start_ticks


@dataclass(frozen=True)
class _Process:
    start_ticks: int
    has_ended: bool

    @classmethod
    def find(cls, pid: int) -> Self | None:
        try:
            with open(f"{PROC}/{pid}/stat", "rb") as file:
                stat = file.read()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name is in parentheses and may itself contain spaces and parentheses.
        fields = stat.rpartition(b")")[2].split()
        # A process whose first thread has ended looks like a zombie while its other threads still write.
        has_ended = fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) <= 1
        return cls(start_ticks=int(fields[_START]), has_ended=has_ended)


def _place() -> tuple[str, str] | None:
    """The boot of this machine and our process namespace, `None` unless /proc shows that namespace."""
    try:
        # In a container that kept the /proc of its host, the numbers in /proc are not ours.
        if os.readlink(f"{PROC}/self") != str(os.getpid()):
            return None
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip(), os.readlink(f"{PROC}/self/ns/pid")
    except (OSError, ValueError):
        return None


def _receives_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a string in owner: {value!r}")
    return value


def _number(value: object, limit: int) -> int:
    # Above the limit no system call accepts it; zero and below would mean groups of processes.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < limit:
        raise ValueError(f"not a number from 1 to {limit - 1} in owner: {value!r}")
    return value
