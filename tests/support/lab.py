"""Fixtures for end-to-end tests, as a pytest plugin: real experiment files, run by real Snakemake in a test's folder.

`snakemake(...)` runs to the end, `start_snakemake(...)` leaves it running. Everything a test starts carries a mark in
its environment, whatever session or parent it has by then: so all of it can be found, killed, and is never left.
"""

import errno
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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

    def __init__(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> None:
        self._mark = secrets.token_hex(8)
        self._log = log
        self._began = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**env, _MARK: self._mark},
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
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue  # It is gone, or not ours to see.
        return found

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


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """`wait_until(condition, what, timeout=)` waits until `condition()` is true and returns its value."""

    def wait(condition: Callable[[], Any], what: str, timeout: float = DEADLINE) -> Any:
        give_up = time.monotonic() + timeout
        while not (value := condition()):
            if time.monotonic() > give_up:
                pytest.fail(f"{what} did not happen in {timeout} s")
            time.sleep(_POLL_SECONDS)
        return value

    return wait


@pytest.fixture
def open_gate(tmp_path: Path, wait_until: Callable[..., Any]) -> Callable[[], None]:
    """`open_gate()` lets a step go on that has come to `open("gate").read()`, a named pipe in the test's folder."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def is_reached() -> int | None:
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: nobody has opened it for reading yet.
                raise
            return None

    def release() -> None:
        os.close(wait_until(is_reached, "a step at the gate"))

    return release


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    """`is_running(pid)`: one that has ended counts as such even if nobody has collected it yet."""

    def look(pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
        except (FileNotFoundError, ProcessLookupError):
            return False

    return look


@pytest.fixture
def repository() -> Path:
    """The top folder of this project."""
    return REPOSITORY


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Where the steps of a test write, unless it says otherwise."""
    return tmp_path / "out"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of all commands: nothing that steers a run, and a temporary folder to look into."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    steering = ("MARIN_", "SNAKEMAKE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    own = {"TMPDIR": temporary, "XDG_STATE_HOME": tmp_path / "state", "MARIN_ENVIRONMENTS": tmp_path / "environments"}
    return {**kept, **{name: str(path) for name, path in own.items()}, "TERM": "dumb"}


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., Path]:
    """`experiment(source, name="experiment.py")` writes an experiment file into the test's folder."""

    def write(source: str, name: str = "experiment.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return write


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., Running]]:
    """`start(command, cwd=, env=)` starts a command; at the end of the test nothing of it is left running."""
    started: list[Running] = []

    def launch(
        command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Running:
        log = tmp_path / f"command-{len(started)}.log"
        words = [str(word) for word in command]
        running = Running(words, cwd or tmp_path, {**environment, **(env or {})}, log)
        started.append(running)
        return running

    yield launch
    for running in started:
        running.kill_everything()


@pytest.fixture
def start_snakemake(start: Callable[..., Running], prefix: Path) -> Callable[..., Running]:
    """`start_snakemake(*arguments, experiment=, prefix=, config=, cwd=, env=)` starts it and does not wait.

    `config` holds further `--config` keys. The working directory is the test's own folder.
    """
    default_prefix = prefix

    def launch(
        *arguments: str,
        experiment: str | Path | None = None,
        prefix: str | Path | None = default_prefix,
        config: Mapping[str, object] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Running:
        settings = {"experiment": experiment, "prefix": prefix, **(config or {})}
        pairs = [f"{key}={value}" for key, value in settings.items() if value is not None]
        return start(
            [
                Path(sys.executable).with_name("snakemake"),
                "--snakefile",
                REPOSITORY / "Snakefile",
                "--workflow-profile",
                REPOSITORY / "profiles" / "default",
                *arguments,
                *(["--config", *pairs] if pairs else []),
            ],
            cwd=cwd,
            env=env,
        )

    return launch


@pytest.fixture
def snakemake(start_snakemake: Callable[..., Running]) -> Callable[..., Result]:
    """`snakemake(*arguments, experiment=, ..., timeout=)` runs it to the end: `.code` and `.output`."""

    def run(*arguments: str, timeout: float = DEADLINE, **options: Any) -> Result:
        return start_snakemake(*arguments, **options).wait(timeout)

    return run


@pytest.fixture
def python(start: Callable[..., Running]) -> Callable[..., Result]:
    """`python(file, *arguments, cwd=, env=, timeout=)` runs a script with this Python to the end."""

    def run(*arguments: str | Path, timeout: float = DEADLINE, **options: Any) -> Result:
        return start([sys.executable, *arguments], **options).wait(timeout)

    return run


@pytest.fixture
def folder_of(prefix: Path) -> Callable[[str], Path]:
    """`folder_of("data")` is the one output path of that step, whatever its hash."""

    def find(name: str) -> Path:
        found = list(prefix.glob(f"{name}-" + "[0-9a-f]" * 6))
        assert len(found) == 1, f"{name} has {len(found)} output paths under {prefix}"
        return found[0]

    return find


@pytest.fixture
def status_of(prefix: Path) -> Callable[[str], str | None]:
    """`status_of("data")` is the word in the step's status file, None when there is none yet."""

    def read(name: str) -> str | None:
        files = list(prefix.glob(f"{name}-" + "[0-9a-f]" * 6 + "/.executor_status"))
        assert len(files) <= 1, f"{name} has {len(files)} output paths under {prefix}"
        return files[0].read_text() if files else None

    return read


@pytest.fixture
def info_of(folder_of: Callable[[str], Path]) -> Callable[[str], dict[str, Any]]:
    """`info_of("data")` is what the step's worker wrote down about it."""

    def read(name: str) -> dict[str, Any]:
        info = json.loads((folder_of(name) / ".executor_info").read_text())
        assert isinstance(info, dict)
        return info

    return read
