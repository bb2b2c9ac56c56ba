"""A run: one start of an experiment, what is known about it, and where it keeps its files."""

from __future__ import annotations

import getpass
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from marin_rules import compat
from marin_rules.errors import MarinRulesError
from marin_rules.settings.ownership import check_not_planted
from marin_rules.storage.files import local_path
from marin_rules.units import timestamp
from marin_rules.urls import is_url

RUNS_FOLDER = ".runs"
INFO_FOLDER = "experiments"


def absolute(path: str, folder: str) -> str:
    """A path or URL that means the same everywhere; a relative one is below `folder`."""
    return path.rstrip("/") if is_url(path) else os.path.normpath(os.path.join(folder, local_path(path)))


@dataclass(frozen=True)
class Run:
    """One start of an experiment: what all its jobs have in common."""

    id: str
    directory: str
    """Where this run keeps its plan and the failures of its steps."""

    prefix: str
    executor_info_base_path: str
    description: str | None
    caller_path: str
    created_date: str
    user: str | None
    git_commit: str | None
    working_directory: str
    python_path: tuple[str, ...] = ()
    """Folders that jobs put in front of their module search path."""

    force_run_failed: bool = True
    rule_files: tuple[str, ...] = ()
    """Hand-written Snakemake rules to include."""

    python_version: str = ""
    """The driver's, `3.13`: functions are packed as bytecode, which no other minor version understands."""

    cluster: str | None = None
    """The cluster that was chosen, by the name of its file; None for none."""

    compat: bool = False
    """Marin's modules are ours in this run's processes: see `marin_rules.compat`."""

    def absolute(self, path: str) -> str:
        """A path of this run as others see it: a relative one is below the run's working directory."""
        return absolute(path, self.working_directory)

    @property
    def plan_path(self) -> str:
        return os.path.join(self.directory, "plan")

    @property
    def failures_directory(self) -> str:
        return os.path.join(self.directory, "failures")


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_python(run: Run) -> None:
    """Refuse to run steps with a Python other than the driver's: they would crash in odd ways."""
    if run.python_version != python_version():
        raise MarinRulesError(
            f"the run was planned with Python {run.python_version}, but its step is to run with Python"
            f" {python_version()} ({sys.executable}): neither reads the other's functions. Give the step's"
            f" environment Python {run.python_version}, or start the run with Python {python_version()}."
        )


def new_run(
    *,
    prefix: str,
    caller_path: str,
    executor_info_base_path: str | None = None,
    description: str | None = None,
    force_run_failed: bool = True,
    rule_files: Sequence[str] = (),
    cluster: str | None = None,
) -> Run:
    """Describe a run that starts now. Writes nothing."""
    base = executor_info_base_path or os.path.join(prefix, INFO_FOLDER)
    now = time.time()
    caller = os.path.basename(caller_path).removesuffix(".py") or "experiment"
    run_id = f"{caller}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(3)}"
    return Run(
        id=run_id,
        directory=os.path.join(base, RUNS_FOLDER, run_id),
        prefix=prefix,
        executor_info_base_path=base,
        description=description,
        caller_path=caller_path,
        created_date=timestamp(now),
        user=_user(),
        git_commit=_git_commit(os.path.dirname(os.path.abspath(caller_path))),
        working_directory=os.getcwd(),
        python_path=python_path(caller_path),
        force_run_failed=force_run_failed,
        python_version=python_version(),
        rule_files=(*map(os.path.abspath, rule_files), *_rules_beside(caller_path)),
        cluster=cluster,
        compat=compat.is_installed(),
    )


def caller_of_this_process() -> str:
    """The file that was started, as Python knows it."""
    main = sys.modules.get("__main__")
    return getattr(main, "__file__", None) or "interactive"


def _rules_beside(caller_path: str) -> list[str]:
    """Hand-written rules of an experiment are beside it: `x.smk` for `x.py`."""
    path = os.path.abspath(os.path.splitext(caller_path)[0] + ".smk")
    if not os.path.isfile(path):
        return []
    check_not_planted(path, os.path.dirname(path), "the rules beside the experiment,", maker=caller_path)
    return [path]


def python_path(caller_path: str) -> tuple[str, ...]:
    """What `python caller.py` would put in front of the search path, and the working directory."""
    folder = os.path.dirname(os.path.abspath(caller_path))
    return tuple(dict.fromkeys([folder, os.getcwd()]))


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _git_commit(folder: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
