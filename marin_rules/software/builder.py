"""How an environment is made: beside its place, under a lease, and renamed into it when it is complete. See `build`.

Because it moves, scripts find their Python relative to themselves, and it contains no absolute path except that of the
base interpreter, which must be the same on all machines. Bytecode is compiled at once: jobs start from it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import importlib.metadata
import os
import platform
import random
import re
import secrets
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence

from marin_rules.settings.ownership import Circle
from marin_rules.software.build import EnvironmentBuildError, environment_path, find_python
from marin_rules.software.environment import FOLDER_VARIABLE, Environment
from marin_rules.software.manifest import Manifest, manifest_path, write_manifest
from marin_rules.software.uv import UvError, careful_umask, run_uv
from marin_rules.storage.files import write_atomic
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import describe
from marin_rules.storage.patience import patiently
from marin_rules.units import timestamp

_WAIT_SECONDS = (0.05, 2.0)
"""First and longest pause between two looks at an environment that somebody else is building."""

_NO_PLACE = re.compile(
    "|".join(rf"\(os error {code}\)" for code in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EROFS, errno.EDQUOT))
)
"""What uv says about a disk that is full or not writable, whatever the requirements are."""

_RELEASE_SECONDS = 10.0
"""How long to wait for a store to release a lease that nobody needs any more."""


class Builder:
    """One process that wants an environment that did not exist when it looked."""

    def __init__(self, environment: Environment, folder: str, say: Callable[[str], None], circle: Circle) -> None:
        self._circle = circle
        self._environment = environment
        self._folder = folder
        self._path = environment_path(environment, folder)
        self._beside = os.path.join(folder, f".{environment.name}.")
        self._tell = say

    def ensure(self) -> str:
        """Build it, or wait until another process has."""
        # Whatever the umask: a folder that a group can write to is shared, and nobody asked for that.
        os.makedirs(self._folder, 0o755, exist_ok=True)
        while True:
            lease = open_lease_at(f"{self._beside}lock", Owner.current())
            try:
                with self._held(lease) as heartbeat:
                    python = find_python(self._environment, self._folder, self._circle)
                    if python is None and heartbeat is not None:
                        self._make(lease, heartbeat)
                        python = find_python(self._environment, self._folder, self._circle)
            except LeaseLostError as lost:
                self._say(f"was stopped while building, and checks again: {lost}")
                continue
            if python is not None:
                return python

    @contextlib.contextmanager
    def _held(self, lease: Lease) -> Iterator[Heartbeat | None]:
        """Holds the lease; yields None instead as soon as the environment is there."""
        if not self._acquire(lease):
            yield None
            return
        heartbeat = Heartbeat(lease, wake=lambda: None, say=self._say)
        heartbeat.start()
        try:
            yield heartbeat
        finally:
            heartbeat.stop()
            try:
                patiently(lease.release, say=self._say, seconds=_RELEASE_SECONDS)
            except OSError as error:
                self._say(f"could not give its lease back, it will expire: {error}")

    def _acquire(self, lease: Lease) -> bool:
        pause, told = _WAIT_SECONDS[0], ""
        while (holder := patiently(lease.try_acquire, say=self._say)) is not None:
            if find_python(self._environment, self._folder, self._circle) is not None:
                return False
            if holder.worker_id != told:
                told = holder.worker_id
                self._say(f"waiting, it is being built by {describe(holder, time.time())}")
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 1.5, _WAIT_SECONDS[1])
        return True

    def _make(self, lease: Lease, heartbeat: Heartbeat) -> None:
        count = len(self._environment.requirements)
        self._say(f"building ({count} requirement{'' if count == 1 else 's'})")
        began = time.monotonic()
        self._remove_leftovers()
        temporary = f"{self._beside}making-{secrets.token_hex(4)}"
        try:
            os.mkdir(temporary, 0o700)  # Nobody looks in before it is complete, and nobody else can have made it.
            uv_version = self._install(temporary, heartbeat.check)
            manifest = Manifest(
                requirements=self._environment.requirements,
                python=platform.python_version(),
                packages=_installed(temporary),
                uv=uv_version,
                made=timestamp(time.time()),
                seconds=round(time.monotonic() - began, 3),
                lock=None if self._environment.lock is None else self._environment.lock.to_record(),
            )
            write_manifest(temporary, manifest)
            os.chmod(temporary, 0o777 & ~careful_umask())
            lease.refresh()
            _put_in_place(temporary, self._path)
        except (UvError, FileNotFoundError) as error:
            # A successor removes what it takes for leftovers, which makes us fail: then this raises.
            lease.refresh()
            if isinstance(error, UvError):
                raise self._failure(str(error)) from None
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._say(f"ready after {manifest.seconds:.1f} s, {len(manifest.packages)} packages")

    def _install(self, temporary: str, check: Callable[[], None]) -> str:
        """Build the environment at a temporary path; returns the version of uv."""
        run_uv(["venv", "--quiet", "--relocatable", "--no-project", "--python", sys.executable, temporary], check)
        lock = self._environment.lock
        if lock is None:
            self._install_lines(temporary, "requirements.txt", self._environment.requirements, [], check)
        else:
            exactly = ["--require-hashes", "--no-deps"]
            self._install_lines(temporary, "requirements.txt", lock.wheels, [*exactly, "--no-build"], check)
            if lock.sources:
                # In the environment itself, which has its build tools by now: another would be filled from an index.
                self._install_lines(temporary, "sources.txt", lock.sources, [*exactly, "--no-build-isolation"], check)
            run_uv(["pip", "check", "--quiet", "--python", _python(temporary)], check)
        return run_uv(["--version"], check).split()[1]

    def _install_lines(
        self, temporary: str, name: str, lines: Sequence[str], options: Sequence[str], check: Callable[[], None]
    ) -> None:
        file = os.path.join(temporary, name)
        write_atomic(file, "".join(f"{line}\n" for line in lines).encode(), mode=0o644)
        install = ["pip", "install", "--quiet", "--compile-bytecode", "--python", _python(temporary)]
        run_uv([*install, *options, "--requirements", file], check)

    def _remove_leftovers(self) -> None:
        """Clear away what killed builds left behind, and a folder that somebody has begun to delete."""
        unfinished = glob.glob(f"{glob.escape(self._beside)}making-*")
        if not os.path.exists(manifest_path(self._path)):
            unfinished.append(self._path)
        for path in unfinished:
            # Renamed first: a builder that is not dead after all finds its folder whole, or not at all.
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, f"{self._beside}removing-{secrets.token_hex(4)}")
        for path in glob.glob(f"{glob.escape(self._beside)}removing-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _failure(self, said: str) -> EnvironmentBuildError:
        asked = ", ".join(self._environment.groups) or "no groups"
        if "error sending request" in said:
            advice = (
                "This machine does not reach the index of packages: name one that it reaches in UV_DEFAULT_INDEX, or"
                f" run once on a machine that does and shares {self._folder}."
            )
        elif _NO_PLACE.search(said):
            advice = (
                f"uv cannot write there: make room, or name a folder with room in {FOLDER_VARIABLE} for environments"
                " and in UV_CACHE_DIR for uv's own files."
            )
        elif self._environment.lock is not None:
            advice = (
                f"Its packages are those of the lock {self._environment.lock.file}, as wheels for"
                f" {self._environment.describe_python()} with the hashes that the lock has. Compile the lock again with"
                " versions for which that is true (docs/environments.md#locks)."
            )
        else:
            advice = "Correct the groups in the experiment, or what they stand for in pyproject.toml, and run again."
        indented = "\n".join(f"  {line}".rstrip() for line in said.splitlines())
        return EnvironmentBuildError(
            f"environment {self._environment.name} ({asked}) cannot be built; uv says:\n{indented}\n{advice}"
        )

    def _say(self, text: str) -> None:
        self._tell(f"environment {self._environment.name}: {text}")


def _put_in_place(temporary: str, path: str) -> None:
    try:
        os.rename(temporary, path)
    except OSError as error:
        # A process that took us for dead has built the same meanwhile.
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _python(path: str) -> str:
    return os.path.join(path, "bin", "python")


def _installed(path: str) -> dict[str, str]:
    """The packages in an environment with their versions, by normalised name."""
    site = sysconfig.get_path("purelib", "venv", {"base": path, "platbase": path})
    versions = {
        re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower(): found.version
        for found in importlib.metadata.distributions(path=[site])
    }
    return dict(sorted(versions.items()))
