"""Which GPUs of this machine a step gets, while other steps of this user run here.

Snakemake counts the GPUs of one run; it knows neither which is which, nor what other runs do. So the worker of a step
locks a small file for each GPU before the step starts, and names them to the step in `CUDA_VISIBLE_DEVICES`.

- A worker takes all the GPUs that its step needs at once, or none. While it waits it holds nothing.
- The locks end with the worker, whatever kills it, and no process of the step ever has them.
- A step that asks for more GPUs than there are gets all of them; where there are none, it runs without.
- A run inside a step shares the GPUs of that step among its own steps.

Only GPUs of one name are one: runs that share a machine must not name them by number here and by UUID there. There is
no queue: a step that wants many waits for a moment when that many are free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Mapping
from typing import Self
from urllib.parse import quote

from marin_rules.clusters.allocation import current_allocation
from marin_rules.clusters.this_machine import GPU_VARIABLE, gpus
from marin_rules.errors import MarinRulesError

DEPTH_VARIABLE = "MARIN_GPU_DEPTH"
"""How many steps with GPUs this process is inside; not set for none.

Each depth has locks of its own. Otherwise a run inside a step would wait for GPUs until that step ends, which waits for
it.
"""

PLACE = "/tmp"
"""The same for all runs on this machine, whatever their TMPDIR. (/run/user goes when its user logs out.)"""

_HOLDER_BYTES = 1000


class GpuSlots:
    """The hold of one worker on GPUs, or its wait for one."""

    def __init__(self, wanted: int, purpose: str) -> None:
        self.wanted = wanted
        """How many the step asks for, however many there are."""

        self._holder = f"{purpose} (pid {os.getpid()})"
        self._depth = int(os.environ.get(DEPTH_VARIABLE, "0"))
        self._locks: dict[str, _Lock] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The GPUs that are held, as `CUDA_VISIBLE_DEVICES` spells them."""
        return tuple(self._locks)

    @property
    def variables(self) -> Mapping[str, str]:
        """What the step's process needs in its environment."""
        if not self._locks:
            return {}
        return {GPU_VARIABLE: ",".join(self._locks), DEPTH_VARIABLE: str(self._depth + 1)}

    def try_take(self) -> str | None:
        """Take the GPUs if enough are free: `None` when they are ours, otherwise what is missing. Call it again."""
        if not self.wanted:
            return None
        there = tuple(dict.fromkeys(gpus()))
        needed = min(self.wanted, len(there))
        if len(self._locks) == needed:
            return None
        folder, busy = _folder(), []
        try:
            for name in there:
                found = _Lock.take(os.path.join(folder, self._file_name(name)), self._holder)
                if isinstance(found, _Lock):
                    self._locks[name] = found
                else:
                    busy.append(f"{name} is held by {found}")
                if len(self._locks) == needed:
                    return None
                if len(busy) > len(there) - needed:
                    break  # Continuing would only keep others from their GPUs: of two that want all, one gets them.
        except BaseException:
            self.release()
            raise
        self.release()
        return f"needs {needed} of {', '.join(there)}, but {', '.join(busy)}"

    def _file_name(self, gpu: str) -> str:
        """Inside a job of a cluster GPUs are renumbered: its first one need not be that of another job."""
        job = current_allocation()
        own = [] if job is None else [f"job{quote(job.job_id, safe='')}"]
        return "-".join([*own, str(self._depth), quote(gpu, safe="")])

    def release(self) -> None:
        """Release the GPUs. The step must have ended."""
        for lock in self._locks.values():
            lock.release()
        self._locks = {}


class _Lock:
    """A file that is locked. It is removed with the lock; one that is left over means that its holder was killed."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Python closes it in every program that this process starts.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    @classmethod
    def take(cls, path: str, holder: str) -> Self | str:
        """The lock for `holder`, or who already has it."""
        while True:
            lock = cls(path)
            try:
                fcntl.flock(lock._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = os.pread(lock._descriptor, _HOLDER_BYTES, 0)
                os.close(lock._descriptor)
                return other.decode(errors="replace") or "somebody"
            if lock._is_at_path():
                lock._note(holder)
                return lock
            os.close(lock._descriptor)  # Its holder removed it at this very moment.

    def release(self) -> None:
        if self._is_at_path():
            os.unlink(self._path)
        os.close(self._descriptor)

    def _note(self, holder: str) -> None:
        """Tell others who has the lock. A disk that is full is no reason not to have it."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, holder.encode()[:_HOLDER_BYTES], 0)

    def _is_at_path(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self._path))
        except FileNotFoundError:
            return False


def _folder() -> str:
    """The folder of the locks, which nobody but this user can have made or can write to."""
    path = os.path.join(PLACE, f"marin-rules-gpus-{os.getuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise MarinRulesError(
                f"{path} keeps the locks of your GPUs, and is not a folder of yours alone (mode 0700). Remove it, or"
                " have it removed, when nothing runs."
            ) from None
    return path
