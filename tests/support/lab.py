"""The lab of end-to-end tests, as a pytest plugin: real experiment files, run by real Snakemake in a test's folder.

`lab.snakemake(...)` runs to the end, `lab.start_snakemake(...)` leaves it running. Everything a test starts carries a
mark in its variables, whatever session or parent it has by then: so all of it can be found, killed, and is never left.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pytest

from support.warm_snakemake import SNAKEMAKE, ForkedProcess, WarmSnakemake

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE = 90.0
"""Seconds after which something that was waited for will not come. Not reached when all is well."""

_MARK = "STARTED_BY_TEST"
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    output: str
    """Standard output and error together."""

    seconds: float

    @property
    def started(self) -> list[str]:
        """The steps that the run says it started, sorted."""
        return sorted(re.findall(r"^[\d:]+ start  (\S+)$", self.output, re.MULTILINE))

    @property
    def cached(self) -> list[str]:
        """The steps that the run says it found done, sorted."""
        return sorted(re.findall(r"^cached +(\S+) ", self.output, re.MULTILINE))


class Running:
    """A command that was started, in a session of its own.

    Its output goes to a file, so that it can be read at any time and a full pipe never holds it up.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        warm: WarmSnakemake | None = None,
    ) -> None:
        self._mark = secrets.token_hex(8)
        self._log = log
        self._began = time.monotonic()
        variables = {**env, _MARK: self._mark}
        self.process: subprocess.Popen[bytes] | ForkedProcess
        with log.open("wb") as file:
            if warm is not None and warm.can_run(command, variables):
                self.process = warm.start(command, cwd, variables, file.fileno())
            else:
                self.process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def wait(self, timeout: float = DEADLINE) -> Result:
        """Wait for the command itself; processes it left behind may still run."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout} s:\n{self.output}")
        return Result(code, self.output, time.monotonic() - self._began)

    def wait_for(self, condition: Callable[[], Any], what: str, timeout: float = DEADLINE) -> Any:
        """Wait until `condition()` is true while the command runs; returns its value."""
        give_up = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None  # Asked first: what it did last is then seen below.
            if value := condition():
                return value
            if ended:
                pytest.fail(f"ended with exit code {self.process.returncode} before {what}:\n{self.output}")
            if time.monotonic() > give_up:
                pytest.fail(f"{what} did not happen in {timeout} s:\n{self.output}")
            time.sleep(_POLL_SECONDS)

    def interrupt(self) -> None:
        """What Ctrl-C in a terminal does: SIGINT to the process group in the foreground."""
        os.killpg(self.pid, signal.SIGINT)

    def alive(self) -> list[int]:
        """Every process that came of this command and has not ended, in whatever session."""
        mark = f"{_MARK}={self._mark}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0") or self._has_session_of(folder):
                    found.append(int(folder.name))
            except OSError:
                continue  # It is gone, or not ours to see.
        return found

    def _has_session_of(self, process: Path) -> bool:
        """Of a process that was forked, /proc has the variables that its parent was started with."""
        state, _, _, session, *_ = (process / "stat").read_text().rpartition(")")[2].split()
        return state not in ("Z", "X") and int(session) == self.pid

    def command_lines(self) -> dict[int, str]:
        """Each of these processes with its command line, as `ps` shows it to everyone."""
        found = {}
        for pid in self.alive():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            found[pid] = b" ".join(words).decode(errors="replace")
        return found

    def kill_everything(self) -> None:
        """SIGKILL to every process that came of this command, until none is left."""
        give_up = time.monotonic() + DEADLINE
        while pids := self.alive():
            assert time.monotonic() < give_up, f"cannot be killed: {pids}"
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
        self.process.wait(DEADLINE)


class Options(TypedDict, total=False):
    """How a command is started, where a test does not take the lab's own way."""

    cwd: Path | None
    """The test's folder if None."""

    env: Mapping[str, str] | None
    """Further variables, which win over `lab.environment`."""


class SnakemakeOptions(Options, total=False):
    """The same for a run of Snakemake. In `--config` a key without a value is left out."""

    experiment: str | Path | None
    prefix: str | Path | None
    """`lab.prefix` if not given; None leaves it to the settings."""

    config: Mapping[str, object] | None
    """Further keys of `--config`."""


class Lab:
    """A folder for a test, and real runs in it. One a test: at its end nothing that it started is left running."""

    repository = REPOSITORY
    """The top folder of this project."""

    def __init__(self, folder: Path, warm: WarmSnakemake | None = None) -> None:
        self.folder = folder
        """The working directory of everything that is started."""

        self.prefix = folder / "out"
        """Where the steps of a test write, unless it says otherwise."""

        self.environment = self._own_variables()
        """The variables of all commands: nothing that steers a run, and a temporary folder to look into."""

        self._warm = warm
        self._started: list[Running] = []

    # --- experiments and their steps

    def experiment(self, source: str, name: str = "experiment.py") -> Path:
        """Write an experiment file into the test's folder. Where it says `open("gate")`, `open_gate` will open it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        if 'gate")' in source:
            self._make_gate()
        return path

    def folder_of(self, name: str) -> Path:
        """The one output path of that step, whatever its hash."""
        found = list(self.prefix.glob(f"{name}-" + "[0-9a-f]" * 6))
        assert len(found) == 1, f"{name} has {len(found)} output paths under {self.prefix}"
        return found[0]

    def status_of(self, name: str) -> str | None:
        """The word in the step's status file, None when there is none yet."""
        files = list(self.prefix.glob(f"{name}-" + "[0-9a-f]" * 6 + "/.executor_status"))
        assert len(files) <= 1, f"{name} has {len(files)} output paths under {self.prefix}"
        return files[0].read_text() if files else None

    def info_of(self, name: str) -> dict[str, Any]:
        """What the step's worker wrote down about it."""
        info = json.loads((self.folder_of(name) / ".executor_info").read_text())
        assert isinstance(info, dict)
        return info

    # --- commands

    def start(self, command: Sequence[str | Path], **options: Unpack[Options]) -> Running:
        """Start a command and do not wait for it."""
        running = Running(
            [str(word) for word in command],
            options.get("cwd") or self.folder,
            {**self.environment, **(options.get("env") or {})},
            self.folder / f"command-{len(self._started)}.log",
            self._warm,
        )
        self._started.append(running)
        return running

    def python(self, *arguments: str | Path, timeout: float = DEADLINE, **options: Unpack[Options]) -> Result:
        """Run a script with this Python to the end: `lab.python(file, *arguments)`."""
        return self.start([sys.executable, *arguments], **options).wait(timeout)

    def start_snakemake(self, *arguments: str | Path, **options: Unpack[SnakemakeOptions]) -> Running:
        """Start Snakemake with this project's Snakefile and default profile, and do not wait for it."""
        settings = {
            "experiment": options.get("experiment"),
            "prefix": options.get("prefix", self.prefix),
            **(options.get("config") or {}),
        }
        pairs = [f"{key}={value}" for key, value in settings.items() if value is not None]
        return self.start(
            [
                SNAKEMAKE,
                "--snakefile",
                REPOSITORY / "Snakefile",
                "--workflow-profile",
                REPOSITORY / "profiles" / "default",
                *arguments,
                *(["--config", *pairs] if pairs else []),
            ],
            cwd=options.get("cwd"),
            env=options.get("env"),
        )

    def snakemake(
        self, *arguments: str | Path, timeout: float = DEADLINE, **options: Unpack[SnakemakeOptions]
    ) -> Result:
        """Run it to the end: `lab.snakemake("-n", experiment=file)`."""
        return self.start_snakemake(*arguments, **options).wait(timeout)

    def path_without_clusters(self) -> str:
        """A PATH without the commands of a cluster, which this machine may have."""
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("bash", "env", "git", "sh", "uname"):
            (programs / name).symlink_to(shutil.which(name) or name)
        return f"{Path(sys.executable).parent}{os.pathsep}{programs}"

    # --- waiting

    def wait_until(self, condition: Callable[[], Any], what: str, timeout: float = DEADLINE) -> Any:
        """Wait until `condition()` is true; returns its value."""
        give_up = time.monotonic() + timeout
        while not (value := condition()):
            if time.monotonic() > give_up:
                pytest.fail(f"{what} did not happen in {timeout} s")
            time.sleep(_POLL_SECONDS)
        return value

    def open_gate(self) -> None:
        """Let a step go on that has come to `open("gate").read()`, a named pipe in the test's folder."""
        self._make_gate()
        os.close(self.wait_until(self._is_gate_reached, "a step at the gate"))

    def is_running(self, pid: int) -> bool:
        """Whether a process runs. One that has ended does not, even if nobody has collected it yet."""
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
        except (FileNotFoundError, ProcessLookupError):
            return False

    def kill_everything(self) -> None:
        """End whatever is left of all that was started."""
        for running in self._started:
            running.kill_everything()

    def _own_variables(self) -> dict[str, str]:
        own = {
            "TMPDIR": self.folder / "tmp",
            "XDG_STATE_HOME": self.folder / "state",
            "MARIN_ENVIRONMENTS": self.folder / "environments",
        }
        own["TMPDIR"].mkdir(exist_ok=True)
        steering = ("MARIN_", "SNAKEMAKE_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
        return {**kept, **{name: str(path) for name, path in own.items()}, "TERM": "dumb"}

    @property
    def _gate(self) -> Path:
        return self.folder / "gate"

    def _make_gate(self) -> None:
        if not self._gate.is_fifo():
            os.mkfifo(self._gate)

    def _is_gate_reached(self) -> int | None:
        try:
            return os.open(self._gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: nobody has opened it for reading yet.
                raise
            return None


@pytest.fixture(scope="session")
def warm_snakemake() -> Iterator[WarmSnakemake]:
    warm = WarmSnakemake()
    yield warm
    warm.close()


@pytest.fixture
def lab(tmp_path: Path, warm_snakemake: WarmSnakemake) -> Iterator[Lab]:
    """This test's lab."""
    made = Lab(tmp_path, warm_snakemake)
    yield made
    made.kill_everything()
