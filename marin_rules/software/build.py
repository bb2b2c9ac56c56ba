"""Makes an environment once, for all who need it, on all machines that share its folder.

    <folder>/<name>                   an environment: complete, or not there
    <folder>/.<name>.lock             the lease of whoever makes it
    <folder>/.<name>.making-<token>   what is being made (`removing` when its builder is gone)

It is made beside its place, under a lease, and renamed into it. So a build that fails leaves nothing, one that is
killed leaves only what the next one removes, and a builder that was thought dead cannot harm what its successor made.
Because it moves, scripts find their Python relative to themselves, and nothing in it knows a path but that of the
base interpreter, which must be the same on all machines. Bytecode is compiled at once: jobs start from it.

What is there already is found by two looks at the file system, without uv and without a network.
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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from marin_rules.errors import MarinRulesError
from marin_rules.software.environment import Environment, explained_errors
from marin_rules.software.manifest import Manifest, manifest_path, write_manifest
from marin_rules.software.uv import UvError, run_uv
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import describe
from marin_rules.storage.patience import patiently

_WAIT_SECONDS = (0.05, 2.0)
"""First and longest pause between two looks at an environment that somebody else makes."""

_RELEASE_SECONDS = 10.0
"""How long a lease that nobody needs any more is worth the wait for its store."""


class EnvironmentBuildError(MarinRulesError):
    """An environment cannot be made, or cannot be used on this machine."""


def environment_path(environment: Environment, folder: str) -> str:
    """Where the environment is, or will be."""
    return os.path.join(folder, environment.name)


def ensure_environment(environment: Environment, folder: str, say: Callable[[str], None]) -> str:
    """The path of the environment's Python, made first if it is not there; `say` is told how that goes."""
    python = _find_python(environment, folder)
    if python is not None:
        return python
    here = Environment.here(())
    if not environment.is_for(here):
        raise EnvironmentBuildError(
            f"environment {environment.name} is for {environment.describe_python()} and cannot be made by"
            f" {here.describe_python()}: make it on the machine that planned the run"
        )
    with explained_errors(folder):
        return _Builder(environment, folder, say).ensure()


def _find_python(environment: Environment, folder: str) -> str | None:
    """The environment's Python, None when there is no environment."""
    path = environment_path(environment, folder)
    if not os.path.exists(manifest_path(path)):
        return None
    python = os.path.join(path, "bin", "python")
    if not os.access(python, os.X_OK):
        raise EnvironmentBuildError(
            f"environment {environment.name} is there, but its Python, {os.path.realpath(python)}, is not on this"
            f" machine. Install that here; or delete {path}, and the next run makes it with another."
        )
    return python


class _Builder:
    """One process that wants an environment which was not there when it looked."""

    def __init__(self, environment: Environment, folder: str, say: Callable[[str], None]) -> None:
        self._environment = environment
        self._folder = folder
        self._path = environment_path(environment, folder)
        self._beside = os.path.join(folder, f".{environment.name}.")
        self._tell = say

    def ensure(self) -> str:
        """Make it, or wait until another process has."""
        while True:
            lease = open_lease_at(f"{self._beside}lock", Owner.current())
            try:
                with self._held(lease) as heartbeat:
                    python = _find_python(self._environment, self._folder)
                    if python is None and heartbeat is not None:
                        self._make(lease, heartbeat)
                        python = _find_python(self._environment, self._folder)
            except LeaseLostError as lost:
                self._say(f"was stopped while building, and looks again: {lost}")
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
            if _find_python(self._environment, self._folder) is not None:
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
            uv_version = self._install(temporary, heartbeat.check)
            manifest = Manifest(
                requirements=self._environment.requirements,
                python=platform.python_version(),
                packages=_installed(temporary),
                uv=uv_version,
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                seconds=round(time.monotonic() - began, 3),
            )
            write_manifest(temporary, manifest)
            lease.refresh()
            _put_in_place(temporary, self._path)
        except (UvError, FileNotFoundError) as error:
            # A successor removes what it takes for a leftover, and so makes us fail: then this raises.
            lease.refresh()
            if isinstance(error, UvError):
                raise self._failure(str(error)) from None
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._say(f"ready after {manifest.seconds:.1f} s, {len(manifest.packages)} packages")

    def _install(self, temporary: str, check: Callable[[], None]) -> str:
        """Make the environment at a path that is not its own; returns the version of uv."""
        run_uv(["venv", "--quiet", "--relocatable", "--no-project", "--python", sys.executable, temporary], check)
        file = os.path.join(temporary, "requirements.txt")
        with open(file, "w", encoding="utf-8") as output:
            output.writelines(f"{requirement}\n" for requirement in self._environment.requirements)
        python = os.path.join(temporary, "bin", "python")
        run_uv(["pip", "install", "--quiet", "--compile-bytecode", "--python", python, "--requirements", file], check)
        return run_uv(["--version"], check).split()[1]

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
        is_cut_off = "error sending request" in said
        advice = (
            f"This machine does not reach the index of packages: name one that it reaches in UV_DEFAULT_INDEX, or run"
            f" once on a machine that does and shares {self._folder}."
            if is_cut_off
            else "Correct the groups in the experiment, or what they stand for in pyproject.toml, and run again."
        )
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
        # Somebody who took us for dead has made the same meanwhile.
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _installed(path: str) -> dict[str, str]:
    """The packages in an environment with their versions, by normalised name."""
    site = sysconfig.get_path("purelib", "venv", {"base": path, "platbase": path})
    versions = {
        re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower(): found.version
        for found in importlib.metadata.distributions(path=[site])
    }
    return dict(sorted(versions.items()))
