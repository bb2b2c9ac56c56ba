"""Plays a case: writes its experiment, runs it round after round, sends its signal, and looks at what is there.

Round 1 is the disturbed one, in which steps misbehave. In round 2 they do not, and the gate is open: the same command
again must finish. Round 3 finds everything done, in some cases as another user.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from campaign.cases import Case
from campaign.names import PREFIXES
from support.lab import REPOSITORY, Running

STRANGER = 12345
END_SECONDS = 120.0
"""After this long a run hangs."""

GONE_SECONDS = 30.0
"""Processes of a run that has ended, or was killed, may take this long to end."""


class HangsError(Exception):
    """Something that was waited for did not come."""


@dataclass(frozen=True)
class StepState:
    """What a step's folder holds after a round."""

    path: Path
    status: str | None
    files: dict[str, bytes]


@dataclass(frozen=True)
class Ended:
    """How a driver ended."""

    code: int
    output: str
    left: list[str]
    """Command lines of what was still running long after."""


@dataclass
class Round:
    """What came of one round."""

    number: int
    drivers: list[Ended]
    was_sent: bool
    """The signal reached a process."""

    states: dict[str, StepState]
    """By the steps' names; those that have written nothing are missing."""

    twice: list[str]
    """Names of steps with more than one output path."""

    events: list[list[list[str]]]
    """What each step's own code noted in this round, by its index."""

    open_plans: list[str]
    """Plans that others than their owner can read or replace."""


@dataclass
class Played:
    """A case and all its rounds."""

    case: Case
    folder: Path
    prefix: str
    rounds: list[Round] = field(default_factory=list)
    is_stranger: bool = False


@contextlib.contextmanager
def case_folder(*, keep: bool = False) -> Iterator[Path]:
    """A folder that other users can enter, which pytest's own are not."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="campaign-")))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def stranger_command() -> list[str] | None:
    """What runs a command as another user; None where that cannot be done.

    That user may read everything, as the interpreter may be in a private folder, but owns and may change nothing.
    """
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return None
    words = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    words += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    tried = subprocess.run([*words, sys.executable, "-c", ""], capture_output=True, check=False)
    return words if tried.returncode == 0 else None


class Player:
    """Plays one case in a folder."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.witness = folder / "witness"
        stranger = stranger_command() if case.as_stranger else None
        self._as_user = stranger or []
        self.played = Played(case, folder, self._prefix(), is_stranger=stranger is not None)
        self._visitor: Path | None = None
        self._running: list[Running] = []

    def play(self) -> Played:
        try:
            self._write()
            self._play_round(1, self.case.drivers)
            first = self.played.rounds[0]
            refused = all(not events for events in first.events) and all(driver.code for driver in first.drivers)
            if refused and (self.case.may_be_refused or self.case.must_be_refused):
                return self.played
            self._play_round(2, 1)
            is_all_done = all(driver.code == 0 for driver in self.played.rounds[-1].drivers)
            if is_all_done and self.case.is_visited and stranger_command() is not None:
                self._receive_a_visitor()
            elif self.case.seed % 3 == 0:
                self._play_round(3, 1)
            return self.played
        finally:
            for running in self._running:
                running.kill_everything()

    # -- the experiment --------------------------------------------------------------------------------------

    def _prefix(self) -> str:
        return PREFIXES[self.case.prefix].replace("FOLDER", str(self.folder))

    def _base(self) -> Path:
        """Where the data are, whatever the prefix is called."""
        prefix = self.played.prefix.removeprefix("file://")
        if prefix.startswith("~"):
            return self.folder / prefix.removeprefix("~/")
        return self._working_directory(0) / prefix

    def _working_directory(self, driver: int) -> Path:
        return self._visitor or self.folder / f"work-{driver}"

    def _write(self) -> None:
        self.witness.mkdir()
        (self.folder / "tmp").mkdir()
        (self.folder / "elsewhere").mkdir()
        (self.folder / "link").symlink_to("elsewhere")
        for driver in range(self.case.drivers):
            self._working_directory(driver).mkdir()
        shutil.copyfile(Path(__file__).with_name("experiment.py"), self.folder / "experiment.py")
        steps = []
        for step in self.case.steps:
            described = asdict(step)
            if step.override is not None:
                described["override"] = str(self.folder / step.override)
            steps.append(described)
        (self.folder / "case.json").write_text(json.dumps({"witness": str(self.witness), "steps": steps}))
        if self._as_user:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, STRANGER, STRANGER, follow_symlinks=False)

    def _receive_a_visitor(self) -> None:
        """Round 3 is run by somebody else, who has a folder to work in and may only read ours."""
        self._as_user = stranger_command() or []
        self._visitor = self.folder / "visitor"
        for path in (self._visitor, self._visitor / "tmp"):
            path.mkdir()
            os.chown(path, STRANGER, STRANGER)
        self._play_round(3, 1)

    # -- a round ---------------------------------------------------------------------------------------------

    def _play_round(self, number: int, drivers: int) -> None:
        (self.witness / "round").write_text(str(number))
        if number > 1:
            self._open_gate()
        # Of two versions the second round takes the one that is there.
        versions = [driver + 1 if self.case.versions > 1 else 1 for driver in range(drivers)]
        if number > 1 and self.case.versions > 1:
            versions = [self._version_there()]
        running = [self._start(number, driver, version) for driver, version in enumerate(versions)]
        sent = False
        if number == 1 and self.case.disturbance is not None:
            sent = self._disturb(running[0])
        ended = [self._wait(run) for run in running]
        states, twice = self._look()
        self.played.rounds.append(Round(number, ended, sent, states, twice, self._events(number), self._open_plans()))

    def _start(self, number: int, driver: int, version: int) -> Running:
        door = self.case.doors[0 if number == 1 else 1]
        command = _python_door if door == "python" else _snakemake_door
        words = command(self.folder / "experiment.py", self.played.prefix, self.case.keeps_going)
        shell = ["sh", "-c", f'umask {self.case.umask:03o}; exec "$@"', "sh"]
        log = self.folder / f"round-{number}-driver-{driver}.log"
        running = Running([*self._as_user, *shell, *words], self._working_directory(driver), self._env(version), log)
        self._running.append(running)
        return running

    def _env(self, version: int) -> dict[str, str]:
        steering = ("MARIN_", "SNAKEMAKE_", "CAMPAIGN_", "PYTEST_", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
        home = self._visitor or self.folder
        own = {"HOME": home, "TMPDIR": home / "tmp", "XDG_STATE_HOME": home / "state"}
        return {
            **kept,
            **{name: str(path) for name, path in own.items()},
            "CAMPAIGN_VERSION": str(version),
            "TERM": "dumb",
        }

    def _open_gate(self) -> None:
        (self.witness / "gate").touch()

    def _disturb(self, running: Running) -> bool:
        """Send the signal of the case, once a step waits at the gate. False if nobody was there any more."""
        disturbance = self.case.disturbance
        assert disturbance is not None
        pid = self._wait_until(lambda: self._waiting_pid() or running.process.poll() is not None, running)
        if running.process.poll() is not None:
            return False  # It ended before: the judge sees why.
        if disturbance.opens_gate:
            self._open_gate()
        time.sleep(disturbance.delay)
        sent = False
        for _ in range(disturbance.times):
            with contextlib.suppress(ProcessLookupError):
                _send(running, pid, disturbance.target, disturbance.number)
                sent = True
            time.sleep(0.05)
        if self.case.disturbance_lets_steps_finish:
            self._open_gate()
        return sent

    def _waiting_pid(self) -> int | None:
        for events in self._events(1):
            for event in events:
                if event[0] == "waits":
                    return int(event[1])
        return None

    def _wait_until(self, condition: Callable[[], int | None], running: Running) -> int:
        give_up = time.monotonic() + END_SECONDS
        while not (value := condition()):
            if time.monotonic() > give_up:
                raise HangsError(f"no step came to the gate in {END_SECONDS:.0f} s:\n{running.output}")
            time.sleep(0.02)
        return value

    def _wait(self, running: Running) -> Ended:
        try:
            code = running.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            lines = "\n".join(f"  {pid} {line}" for pid, line in running.command_lines().items())
            raise HangsError(f"still running after {END_SECONDS:.0f} s:\n{running.output}\n{lines}") from None
        give_up = time.monotonic() + GONE_SECONDS
        while (left := running.command_lines()) and time.monotonic() < give_up:
            time.sleep(0.1)
        return Ended(code, running.output, list(left.values()))

    # -- what is there ---------------------------------------------------------------------------------------

    def _look(self) -> tuple[dict[str, StepState], list[str]]:
        found: dict[str, StepState] = {}
        twice = []
        for base in {self._base(), self.folder / "shared"}:
            for folder, _, files in os.walk(base):
                if ".executor_info" not in files:
                    continue
                try:
                    name = json.loads((Path(folder) / ".executor_info").read_bytes())["name"]
                except ValueError:
                    continue  # A worker that was killed may have left it so; its status decides.
                if name in found:
                    twice.append(name)
                found[name] = _state(Path(folder), files)
        return found, twice

    def _version_there(self) -> int:
        """The version that the shared path holds; the first one if nobody came that far."""
        path = self.folder / "shared" / "path" / ".executor_info"
        return int(json.loads(path.read_bytes())["config"]["version"]) if path.exists() else 1

    def _events(self, number: int) -> list[list[list[str]]]:
        found = []
        for index in range(len(self.case.steps)):
            path = self.witness / f"{index}.events"
            lines = path.read_text().splitlines() if path.exists() else []
            found.append([line.split()[1:] for line in lines if line.startswith(f"{number} ")])
        return found

    def _open_plans(self) -> list[str]:
        """Plans hold code that runs as their owner: nobody else may write to them or to their folder."""
        found = []
        for folder, _, files in os.walk(self._base()):
            if "plan" in files and "runs" in Path(folder).parts:
                for path in (Path(folder), Path(folder) / "plan"):
                    if stat.S_IMODE(path.stat().st_mode) & 0o077:
                        found.append(f"{path} has mode {stat.S_IMODE(path.stat().st_mode):o}")
        return found


def _python_door(experiment: Path, prefix: str, keeps_going: bool) -> Sequence[str]:
    return [sys.executable, str(experiment), "--prefix", prefix]


def _snakemake_door(experiment: Path, prefix: str, keeps_going: bool) -> Sequence[str]:
    words = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(REPOSITORY / "Snakefile")]
    words += [
        "--workflow-profile",
        str(REPOSITORY / "profiles" / "default"),
        *(["--keep-going"] if keeps_going else []),
    ]
    return [*words, "--config", f"experiment={experiment}", f"prefix={prefix}"]


def _state(folder: Path, files: Sequence[str]) -> StepState:
    status = folder / ".executor_status"
    kept = {name: (folder / name).read_bytes() for name in files if not name.startswith(".executor")}
    return StepState(folder, status.read_text() if status.exists() else None, kept)


def _send(running: Running, step: int, target: str, number: signal.Signals) -> None:
    if target == "driver":
        running.process.send_signal(number)
    elif target == "group":
        os.killpg(running.pid, number)
    else:
        os.kill(step if target == "step" else _parent(step), number)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError as error:
        raise ProcessLookupError(pid) from error
