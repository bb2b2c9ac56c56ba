"""How many bytes may be moved between regions before somebody has to agree.

Moving data costs money, and a loop over the wrong bucket can spend a lot of it unseen. So each move is charged to a
budget *before* anything is read; a move that exceeds it is refused with a `BudgetError`. A gigabyte here is 2^30 bytes.

The budget that applies, innermost first:

1. `with mirror_budget(budget_gb):` around the code, for its threads, tasks and forked processes;
2. `step_ledger(gb)`: one for a whole step. It is a small file that `MARIN_BUDGET_LEDGER` names, so that every
   process of the step on this machine, forked or spawned, spends from the same;
3. one for the process, in memory.

2 and 3 have the limit of `MARIN_MIRROR_BUDGET_GB` (10 if it is not set), read at each charge; the limit that is given
to a step applies instead if it is larger. With `MARIN_I_WILL_PAY_FOR_ALL_FEES=1` nothing is refused, but still counted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import tempfile
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import IO

from marin_rules.errors import SettingsError
from marin_rules.storage.explain import StorageError
from marin_rules.storage.prices import estimate
from marin_rules.units import GIGABYTE, size_text

BUDGET_VARIABLE = "MARIN_MIRROR_BUDGET_GB"
LEDGER_VARIABLE = "MARIN_BUDGET_LEDGER"
PAY_VARIABLE = "MARIN_I_WILL_PAY_FOR_ALL_FEES"
DEFAULT_BUDGET_GB = 10.0

_MARK = "marin-rules-budget"
"""The first word in a ledger's file."""


class BudgetError(StorageError):
    """Moving the data would cost more than was agreed to. Nothing was read."""


TransferBudgetExceeded = BudgetError
"""Marin's name for it."""


@dataclass
class Receipt:
    """What was charged. Refund what was not moved after all."""

    size: int
    """The bytes that are still charged."""

    _ledger: Ledger
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def refund(self) -> None:
        """Give everything back, once."""
        self.settle(0)

    def settle(self, moved: int) -> None:
        """Refund everything beyond `moved` bytes. Never charges more."""
        with self._lock:
            excess = self.size - max(moved, 0)
            if excess > 0:
                self._ledger.add(-excess)
                self.size -= excess


class Ledger:
    """Bytes spent, and the limit. In memory: for this process."""

    def __init__(self, limit_gb: float | None = None) -> None:
        self._limit_gb = limit_gb
        self._spent = 0
        self._lock = threading.Lock()

    def renew_lock(self) -> None:
        """In a forked process: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def limit(self) -> int:
        """How many bytes may be moved in total."""
        return _in_bytes(default_budget_gb() if self._limit_gb is None else self._limit_gb)

    def spent(self) -> int:
        """How many bytes were charged so far."""
        return self._spent

    def add(self, size: int, *, at_most: int | None = None) -> int | None:
        """Add to what is spent, unless that would be more than `at_most`. Then: what is left."""
        with self._lock:
            if at_most is not None and self._spent + size > at_most:
                return max(at_most - self._spent, 0)
            self._spent = max(self._spent + size, 0)
            return None


class FileLedger(Ledger):
    """The same in a file, for all processes that know its name. Changed under a lock (`flock`)."""

    def __init__(self, path: str, limit_gb: float | None) -> None:
        super().__init__(limit_gb)
        self.path = path

    def spent(self) -> int:
        try:
            with self._locked() as descriptor:
                return self._read(descriptor)[1]
        except FileNotFoundError:
            return super().spent()

    def add(self, size: int, *, at_most: int | None = None) -> int | None:
        try:
            with self._locked() as descriptor:
                limit, spent = self._read(descriptor)
                if at_most is not None and spent + size > at_most:
                    return max(at_most - spent, 0)
                record = f"{_MARK} {limit} {max(spent + size, 0)}\n".encode()
                # Blanks replace lost digits: a file that is never truncated is never found empty.
                os.pwrite(descriptor, record.ljust(os.fstat(descriptor).st_size), 0)
                return None
        except FileNotFoundError:
            # The step is over, or somebody cleaned the temporary directory: this process counts for itself.
            return super().add(size, at_most=at_most)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        # Opened each time: a lock belongs to the open file, which forked processes would share.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    @staticmethod
    def _read(descriptor: int) -> tuple[str, int]:
        mark, limit, spent = [*os.pread(descriptor, 200, 0).split()[:3], b"", b"", b""][:3]
        # The number of an open file that was closed may since belong to another one.
        if mark != _MARK.encode():
            raise FileNotFoundError("the ledger is gone")
        return limit.decode(), int(spent)


class StepLedger(FileLedger):
    """The limit of a step. The environment can raise it: whoever starts the run may pay for more."""

    @staticmethod
    def find(path: str) -> StepLedger | None:
        """The ledger that another process made; None if it is not there (on another machine)."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                limit, _ = FileLedger._read(descriptor)
            finally:
                os.close(descriptor)
            return StepLedger(path, None if limit == "-" else float(limit))
        except (OSError, ValueError):
            return None

    def limit(self) -> int:
        if self._limit_gb is None or not os.environ.get(BUDGET_VARIABLE):
            return super().limit()
        return _in_bytes(max(self._limit_gb, default_budget_gb()))


@contextlib.contextmanager
def _ledger_file(limit_gb: float | None) -> Iterator[str]:
    """A file with the limit (or `-`) and the bytes spent; gone at the end.

    It has no name in any directory, so it disappears with this process, however that ends. Other processes of this user
    open it as one of this process's open files.
    """
    with _nameless_file() as file:
        file.write(f"{_MARK} {'-' if limit_gb is None else limit_gb!r} 0\n".encode())
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"


def _nameless_file() -> IO[bytes]:
    """In memory, if the system has such files: for one on a disk, Python has to look for a folder first."""
    with contextlib.suppress(AttributeError, OSError):
        return os.fdopen(os.memfd_create(_MARK), "wb", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


_of_this_block: ContextVar[Ledger | None] = ContextVar("marin_rules_mirror_budget", default=None)
_of_this_process = Ledger()
_of_steps: dict[str, StepLedger] = {}
"""Globals: fsspec makes the filesystems that charge these budgets, and they know nothing about steps."""


def _after_fork() -> None:
    _of_this_process.renew_lock()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def mirror_budget(budget_gb: float) -> Iterator[None]:
    """A separate budget, in gigabytes, for what is moved inside the block."""
    _checked_gb(budget_gb, "mirror_budget()")
    with _ledger_file(budget_gb) as path:
        token = _of_this_block.set(FileLedger(path, budget_gb))
        try:
            yield
        finally:
            _of_this_block.reset(token)


@contextlib.contextmanager
def step_ledger(limit_gb: float | None) -> Iterator[None]:
    """One budget for all processes that are started inside the block. None: the limit of the environment."""
    if limit_gb is not None:
        _checked_gb(limit_gb, "the budget of a step")
    with _ledger_file(limit_gb) as path:
        before = os.environ.get(LEDGER_VARIABLE)
        os.environ[LEDGER_VARIABLE] = path
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(LEDGER_VARIABLE, None)
            else:
                os.environ[LEDGER_VARIABLE] = before
            _of_steps.pop(path, None)


def charge(size: int, *, what: str, source: str | None, target: str | None) -> Receipt:
    """Charge `size` bytes that are about to be moved from one location to another; `BudgetError` if that is too much.

    `what` is the path, for the message.
    """
    ledger = _ledger()
    limit = ledger.limit()
    left = ledger.add(size, at_most=None if _will_pay() or size <= 0 else limit)
    if left is not None:
        raise BudgetError(errno.EDQUOT, _refusal(size, left, limit, what, source, target), what)
    return Receipt(size, ledger)


def remaining() -> int:
    """How many bytes can still be moved."""
    ledger = _ledger()
    return max(ledger.limit() - ledger.spent(), 0)


def default_budget_gb() -> float:
    """`MARIN_MIRROR_BUDGET_GB`, or 10."""
    text = os.environ.get(BUDGET_VARIABLE)
    if text is None or not text.strip():
        return DEFAULT_BUDGET_GB
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = math.nan
    return _checked_gb(gigabytes, BUDGET_VARIABLE, text)


def _ledger() -> Ledger:
    block = _of_this_block.get()
    if block is not None:
        return block
    path = os.environ.get(LEDGER_VARIABLE)
    if path:
        if path not in _of_steps and (ledger := StepLedger.find(path)) is not None:
            _of_steps[path] = ledger
        if path in _of_steps:
            return _of_steps[path]
    return _of_this_process


def _refusal(size: int, left: int, limit: int, what: str, source: str | None, target: str | None) -> str:
    price = estimate(size, source, target)
    cost = f"It would cost {price}." if price else "What it would cost is not known."
    return (
        f"cannot move {what} from {source or 'an unknown region'} to {target or 'an unknown region'}:"
        f" {size_text(size)}, but only {size_text(left)} of the budget of {size_text(limit)} are left. {cost}"
        " Use data in the same region; or, if it is worth it, raise the budget: mirrored(path, budget_gb=...) in the"
        f" step's config, mirror_budget(gb) around the code, or {BUDGET_VARIABLE}=<gigabytes>."
        f" {PAY_VARIABLE}=1 turns these refusals off."
    )


def _will_pay() -> bool:
    return os.environ.get(PAY_VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def _checked_gb(gigabytes: float, what: str, text: object = None) -> float:
    if isinstance(gigabytes, bool) or not isinstance(gigabytes, int | float) or not gigabytes >= 0:
        shown = gigabytes if text is None else text
        raise SettingsError(f"{what} is {shown!r}: it must be a number of gigabytes, 0 or more, such as 10 or 0.5")
    return float(gigabytes)


def _in_bytes(gigabytes: float) -> int:
    # Infinity is a legitimate way to write "no limit"; no file is larger than this.
    return 2**63 if math.isinf(gigabytes) else int(gigabytes * GIGABYTE)
