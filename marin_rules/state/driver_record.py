"""The submitted drivers of this user: a private folder for each, from its submission until some days after its end.

    <state folder>/drivers/<id>/     mode 0700; the id is that of the run
        driver.json                  what was submitted
        plan                         the frozen plan, as it was then
        holder.json the job or process that is the driver: the first to claim it, and no other
        stop                         there if a person wants the run to stop, rather than its machine
        end.json                     how the run ended; absent while it continues, or if the driver was killed for good
        log                          what the driver prints

A driver whose machine sees this folder uses it. One whose machine does not has all of these in its `place` instead,
below the prefix, where both see them:

    <prefix>/experiments/.drivers/<id>/
        (the same)
        run.json                     the run, as it is registered on the machine of the driver (see `run_registry`)

The folder of this user then keeps `driver.json`, and copies of what does not change any more: the holder and the end.

No file here ever holds the value of a variable.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self
from urllib.parse import quote

from marin_rules.errors import MarinRulesError
from marin_rules.settings.ownership import Circle, check_own_folder
from marin_rules.settings.user_folders import state_folder
from marin_rules.state.run_registry import RegisteredRun
from marin_rules.storage.files import (
    modified_time,
    read_bytes,
    remove_tree,
    write_atomic,
    write_new,
)
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.private_files import make_private_folder
from marin_rules.units import timestamp

KEPT_DAYS = 7
"""How long a driver can be looked up after its end."""

SUBMITTING = ".submitting-"
"""Begins the name of the folder of a driver that is being submitted."""

STOPPED_CODE = 130
"""The exit code of a run that was stopped before it could report one itself: that of Ctrl-C."""

_DAY_SECONDS = 86400.0

_PLACES = ".drivers"
_RECORD, _HOLDER, _STOP, _END, _RUN = "driver.json", "holder.json", "stop", "end.json", "run.json"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a person may call a driver."""


class NameTakenError(MarinRulesError):
    """A driver of that name already exists."""


@dataclass(frozen=True)
class Holder:
    """What a driver is: a job of a cluster, or a process of a machine."""

    cluster: str | None = None
    job: str | None = None
    owner: Owner | None = None

    def is_same(self, other: Holder) -> bool:
        """Whether both are one job, however often it was started, or one process."""
        if self.job is not None or other.job is not None:
            return (self.cluster, self.job) == (other.cluster, other.job)
        ours, theirs = self.owner, other.owner
        return ours is not None and theirs is not None and ours.worker_id == theirs.worker_id

    def __str__(self) -> str:
        if self.job is not None:
            return f"{self.cluster} job {self.job}"
        return "nothing" if self.owner is None else f"process {self.owner.pid} on {self.owner.host}"

    def to_bytes(self) -> bytes:
        owner = None if self.owner is None else self.owner.to_fields()
        return json.dumps({"cluster": self.cluster, "job": self.job, "owner": owner}).encode()

    @classmethod
    def parse(cls, data: bytes) -> Self:
        fields = json.loads(data)
        owner = fields.get("owner")
        return cls(fields.get("cluster"), fields.get("job"), None if owner is None else Owner.from_fields(owner))


@dataclass(frozen=True)
class DriverEnd:
    """How a run ended."""

    exit_code: int
    ended: float
    """In seconds since 1970."""

    stopped: bool = False
    """A person stopped it."""


@dataclass(frozen=True)
class DriverRecord:
    """What was submitted."""

    id: str
    name: str | None
    """The name its user gave it."""

    command: tuple[str, ...]
    """What the user typed."""

    words: tuple[str, ...]
    """What the driver starts, in its working directory and with its own Python, besides the plan."""

    is_for_job: bool
    """Whether it is to be a job of a cluster. A process that is started from within some other job is none."""

    takes_plan_by_flag: bool
    """Whether that takes the plan as `--plan` and `--digest`; otherwise it finds it in its variables."""

    experiment: str
    working_directory: str
    digest: str
    """The digest of the plan."""

    plan_path: str
    """Where the run itself keeps its plan once it has begun; it then knows which steps are forced."""

    code: str
    """The folder with the package as it was."""

    checksums: Mapping[str, str]
    """Files that are read in place, and what they must contain."""

    submitted: float
    """In seconds since 1970."""

    prefix: str = ""
    place: str | None = None
    """Where its files are, a path or URL, if its machine does not see the folder of this user."""

    @property
    def folder(self) -> str:
        """Of this user, on the machine that has submitted it."""
        return os.path.join(drivers_folder(), quote(self.id, safe=""))

    @property
    def experiment_name(self) -> str:
        """The experiment file's part of the id, `<file>-<date>-<time>-<number>`."""
        return self.id.rsplit("-", 3)[0]

    @property
    def log_path(self) -> str:
        return self._path("log")

    @property
    def own_plan_path(self) -> str:
        """The plan as it was submitted."""
        return self._path("plan")

    @property
    def path(self) -> str:
        """Where this record is, for the driver itself."""
        return self._path(_RECORD)

    # -- who it is -------------------------------------------------------------------------------------------

    def claim(self, holder: Holder) -> Holder:
        """Let this job or process be the driver, unless there is one; returns the one that is."""
        return holder if write_new(self._path(_HOLDER), holder.to_bytes(), mode=0o600) else self.holder() or holder

    def holder(self) -> Holder | None:
        """None while it is being submitted."""
        data = self._read_final(_HOLDER)
        return None if data is None else Holder.parse(data)

    def register_run(self, driver: Owner) -> None:
        """Let others see which process supervises the run: they cannot see the registry of its machine."""
        run = RegisteredRun(
            id=self.id,
            experiment=self.experiment,
            prefix=self.prefix,
            plan_path=self.own_plan_path,
            working_directory=self.working_directory,
            started=timestamp(self.submitted),
            driver=driver,
        )
        write_atomic(self._path(_RUN), run.to_bytes())

    def registered_run(self) -> RegisteredRun | None:
        """The run, if another machine has registered it; None before it has begun, and after its end."""
        data = None if self.place is None or self.end() is not None else read_bytes(self._path(_RUN))
        # The digest of the plan is known here; others may be able to write there.
        return None if data is None else replace(RegisteredRun.parse(data), digest=self.digest)

    # -- how it ends -----------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        write_atomic(self._path(_STOP), b"", mode=0o600)

    @property
    def is_asked_to_stop(self) -> bool:
        return modified_time(self._path(_STOP)) is not None

    def write_end(self, exit_code: int) -> None:
        end = DriverEnd(exit_code, time.time(), self.is_asked_to_stop and exit_code != 0)
        write_atomic(self._path(_END), json.dumps(asdict(end)).encode(), mode=0o600)

    def end(self) -> DriverEnd | None:
        data = self._read_final(_END)
        return None if data is None else DriverEnd(**json.loads(data))

    # -- its files -------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode()

    def write(self) -> None:
        write_atomic(os.path.join(self.folder, _RECORD), self.to_bytes(), mode=0o600)
        if self.place is None:
            os.close(os.open(self.log_path, os.O_WRONLY | os.O_CREAT, 0o600))

    def publish(self) -> None:
        """Put what the driver needs into its place, where its machine finds it."""
        assert self.place is not None
        make_private_folder(self.place)
        write_atomic(self.own_plan_path, read_bytes(os.path.join(self.folder, "plan")) or b"", mode=0o600)
        write_atomic(self.path, self.to_bytes(), mode=0o600)

    def remove(self) -> None:
        if self.place is not None:
            with contextlib.suppress(OSError):  # A few small objects: no reason to keep a driver forever.
                remove_tree(self.place)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, name: str) -> str:
        return os.path.join(self.place or self.folder, name)

    def _read_final(self, name: str) -> bytes | None:
        """A file that does not change once it exists: if it is elsewhere, a copy is kept here."""
        if self.place is None:
            return read_bytes(self._path(name))
        copy = os.path.join(self.folder, name)
        data = read_bytes(copy)
        if data is None and (data := read_bytes(self._path(name))) is not None and os.path.isdir(self.folder):
            write_atomic(copy, data, mode=0o600)
        return data

    @classmethod
    def read(cls, folder: str) -> Self | None:
        """The record in a folder; None if there is none, or one of another version."""
        try:
            data = read_bytes(os.path.join(folder, _RECORD))
            return None if data is None else cls.parse(data)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The record in these bytes. Raises `ValueError`, `TypeError` or `KeyError` for anything else."""
        fields: dict[str, Any] = json.loads(data)
        texts = {name: tuple(fields[name]) for name in ("command", "words")}
        return cls(**{**fields, **texts})


def place_below(base: str, driver: str) -> str:
    """Where the files of a driver are, below the folder of a prefix's experiments."""
    return os.path.join(base, _PLACES, quote(driver, safe=""))


def drivers_folder() -> str:
    return os.path.join(state_folder(), "drivers")


def code_folder() -> str:
    """Where the code of drivers is, each version once."""
    return os.path.join(state_folder(), "code")


def make_folders() -> None:
    """The folders above, for this user alone: their contents are executed."""
    for folder in (drivers_folder(), code_folder()):
        make_private_folder(folder)
        check_own_folder(folder, Circle.own())


def all_drivers() -> list[DriverRecord]:
    """All that are known, oldest first."""
    try:
        names = os.listdir(drivers_folder())
    except OSError:
        return []
    found = (DriverRecord.read(os.path.join(drivers_folder(), name)) for name in names if not name.startswith("."))
    return sorted((record for record in found if record is not None), key=lambda record: record.submitted)


def named_driver(text: str) -> DriverRecord | None:
    """The driver with this id or name; the latest, if several had that name."""
    found = [record for record in all_drivers() if text in (record.id, record.name)]
    return found[-1] if found else None


def drivers_beginning(text: str) -> list[DriverRecord]:
    """The drivers whose ids begin so; those that have ended only if all have.

    The beginning must be no shorter than the name of the experiment's file, as for runs.
    """
    found = [one for one in all_drivers() if one.id.startswith(text) and len(text) >= len(one.experiment_name)]
    return [record for record in found if record.end() is None] or found


@contextlib.contextmanager
def changing_drivers() -> Iterator[None]:
    """While this lasts, no other process adds drivers or removes them."""
    make_folders()
    descriptor = os.open(os.path.join(drivers_folder(), ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_old(now: float, is_over: Callable[[DriverRecord], bool]) -> None:
    """Forget drivers that ended long ago, and code that no driver uses."""
    with changing_drivers():
        for record in all_drivers():
            with contextlib.suppress(OSError):  # The store does not answer now: a later submission tries again.
                end = record.end()
                last = end.ended if end is not None else modified_time(record.log_path) or record.submitted
                if now - last > KEPT_DAYS * _DAY_SECONDS and (end is not None or is_over(record)):
                    record.remove()
        for name in os.listdir(drivers_folder()):
            path = os.path.join(drivers_folder(), name)
            if name.startswith(SUBMITTING) and now - (modified_time(path) or now) > _DAY_SECONDS:
                shutil.rmtree(path, ignore_errors=True)  # From a submission that was killed.
        used = {record.code for record in all_drivers()}
        for name in os.listdir(code_folder()):
            folder = os.path.join(code_folder(), name)
            if folder not in used:
                shutil.rmtree(folder, ignore_errors=True)
