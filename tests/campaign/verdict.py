"""What must hold after each round of a case, whatever the case is. Returns sentences about what does not."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Iterator

from campaign.behaviours import BY_NAME, WAITING, Outcome
from campaign.names import EXTREME, REFUSABLE_PREFIXES
from campaign.play import Ended, Played, Round

MOST_REFUSAL_LINES = 25
_TRACEBACK = re.compile(r"^(  \+ Exception Group )?Traceback \(most recent call last\)", re.MULTILINE)


def problems_of(played: Played) -> list[str]:
    """Everything that is wrong with how a case went; empty when all is well."""
    found = []
    for number, this in enumerate(played.rounds):
        before = played.rounds[number - 1] if number else None
        found += [f"round {this.number}: {text}" for text in _problems(played, this, before)]
    return found


def _problems(played: Played, this: Round, before: Round | None) -> Iterator[str]:
    yield from _always(played, this)
    if _was_refused(this):
        yield from _refusal(played, this)
        return
    if played.case.must_be_refused:
        yield "an experiment that cannot be run was not refused before its steps ran"
    for index, step in enumerate(played.case.steps):
        state = this.states.get(step.name)
        is_done = state is not None and state.status == "SUCCESS"
        version = _version_there(played, this, index)
        if state is not None and is_done:
            for file in BY_NAME[step.behaviour].files:
                if state.files.get(file) != _content(played, index, file, version):
                    size = len(state.files.get(file, b""))
                    yield f"{step.name!r} ({step.behaviour}) is SUCCESS but its {file!r} is not whole ({size} bytes)"
            yield from _artifact_problems(step.name, state.files)
        yield from _status_problems(played, this, index, is_done)
        was_done = before is not None and step.name in before.states and before.states[step.name].status == "SUCCESS"
        if was_done and this.events[index]:
            yield f"{step.name!r} was done and ran again"
        if was_done and not is_done:
            yield f"{step.name!r} was done and is {state.status if state else 'gone'}"
    yield from _code_problems(played, this)


def _always(played: Played, this: Round) -> Iterator[str]:
    for ended in this.drivers:
        output = ended.output
        if _TRACEBACK.search(output):
            yield "a traceback that is not a step's own is in the output"
        if any(_is_ours(line) for line in output.splitlines()):
            yield "a frame of ours is in the output"
        if ended.left:
            yield f"processes are left running: {ended.left}"
    for path in (played.folder, *played.folder.glob("work-*")):
        if (path / "hacked").exists():
            yield f"a name was executed by a shell: {path / 'hacked'}"
    if this.twice:
        yield f"steps have two output paths: {this.twice}"
    yield from this.open_plans


def _is_ours(line: str) -> bool:
    """A line of a stack in the project's code, outside the output of steps (which is marked with their names)."""
    return re.match(r'\s*File ".*/marin_rules/', line) is not None


# -- refusals ------------------------------------------------------------------------------------------------


def _was_refused(this: Round) -> bool:
    return all(driver.code != 0 for driver in this.drivers) and not any(this.events) and not this.was_sent


def _refusal(played: Played, this: Round) -> Iterator[str]:
    case = played.case
    output = this.drivers[0].output
    if not case.may_be_refused and not case.must_be_refused:
        yield "it was refused, and it should run"
        return
    culprits = [step.name for step in case.steps if step.name in EXTREME or BY_NAME[step.behaviour].name in _REFUSED]
    culprits += [played.prefix] if case.prefix in REFUSABLE_PREFIXES else []
    if not any(_is_named(culprit, output) for culprit in culprits):
        yield f"the refusal names none of {culprits}"
    if len(output.splitlines()) > MOST_REFUSAL_LINES:
        yield f"the refusal takes {len(output.splitlines())} lines"


_REFUSED = ("asynchronous", "generates", "takes_nothing")


def _is_named(name: str, output: str) -> bool:
    """As it is, or as Python writes it; of a long one its beginning will do."""
    return any(form[:20] in output for form in (name, repr(name)[:-1], ascii(name)[1:-1]))


# -- statuses ------------------------------------------------------------------------------------------------


def _status_problems(played: Played, this: Round, index: int, is_done: bool) -> Iterator[str]:
    step = played.case.steps[index]
    state = this.states.get(step.name)
    status = None if state is None else state.status
    started = bool(this.events[index])
    told = [event for event in this.events[index] if event[0] == "told"]
    outcome = BY_NAME[step.behaviour].outcome if this.number == 1 else Outcome.WHOLE
    is_disturbed = this.was_sent and this.number == 1
    if is_done and told:
        yield f"{step.name!r} ({step.behaviour}) was told to stop, and is SUCCESS"
    if is_done and outcome is Outcome.FAILS:
        yield f"{step.name!r} ({step.behaviour} {step.option}) failed, and is SUCCESS"
    if started and is_disturbed and _waits_for_the_gate(played, index):
        yield f"{step.name!r} was started after its run was stopped"
    if not started or is_disturbed:
        return
    if outcome is Outcome.WHOLE and not is_done and played.case.versions == 1:
        yield f"{step.name!r} ({step.behaviour} {step.option}) is {status}, though it ended well"
    if outcome is Outcome.FAILS and status != "FAILED":
        yield f"{step.name!r} ({step.behaviour} {step.option}) is {status}, though it failed"
    starts = sum(event[0] == "start" for event in this.events[index])
    if outcome is Outcome.WHOLE and starts > 1 and played.case.versions == 1:
        yield f"{step.name!r} ran {starts} times in one round"


def _waits_for_the_gate(played: Played, index: int) -> bool:
    """Whether a step depends on one that was at the gate when the signal came, and stayed there."""
    disturbance = played.case.disturbance
    if disturbance is None or disturbance.opens_gate or disturbance.target not in ("driver", "group"):
        return False
    waiting = {behaviour.name for behaviour in WAITING}
    steps = played.case.steps
    inputs = steps[index].inputs
    return any(steps[number].behaviour in waiting or _waits_for_the_gate(played, number) for number in inputs)


def _artifact_problems(name: str, files: dict[str, bytes]) -> Iterator[str]:
    """What a step returned is JSON that everybody can read, or is not there."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    if ".artifact.json" in files:
        try:
            json.loads(files[".artifact.json"], parse_constant=refuse)
        except ValueError as error:
            yield f"the .artifact.json of {name!r} cannot be read: {error}"
        except RecursionError:
            pass  # Valid, and as deep as what the step returned.
        if b'"by": "child"' in files[".artifact.json"]:
            yield f"the .artifact.json of {name!r} is that of a forked child"


# -- exit codes ----------------------------------------------------------------------------------------------


def _code_problems(played: Played, this: Round) -> Iterator[str]:
    names = [step.name for step in played.case.steps]
    undone = [name for name in names if name not in this.states or this.states[name].status != "SUCCESS"]
    if played.case.versions > 1 and this.number == 1:
        yield from _version_problems(played, this)
        return
    for ended in this.drivers:
        if undone and ended.code == 0:
            yield f"exit code 0, though {undone} are not done"
        if not undone and ended.code not in (0, -signal.SIGKILL):  # A driver that is killed has no say.
            yield f"exit code {ended.code}, though everything is done"
        yield from _failures_not_named(this, ended)
    if this.number > 1 and undone:
        yield f"the same command again did not finish: {undone} are not done"


def _failures_not_named(this: Round, ended: Ended) -> Iterator[str]:
    for name, state in this.states.items():
        if state.status == "FAILED" and name not in EXTREME and not _is_named(name, ended.output):
            yield f"{name!r} failed, and the output does not name it"


def _version_problems(played: Played, this: Round) -> Iterator[str]:
    """Two drivers with two versions on one path: the one whose data are there has ended well, the other has not."""
    shared = len(played.case.steps) - 1
    codes = [ended.code for ended in this.drivers]
    if sum(code == 0 for code in codes) != 1:
        yield f"two versions wanted one path, and the exit codes are {codes}"
        return
    winner = 1 + codes.index(0)
    if _version_there(played, this, shared) != winner:
        yield f"the driver of version {winner} ended well, and the data are of the other version"
    if not _is_named(played.case.steps[shared].name, this.drivers[codes.index(0) - 1].output):
        yield "the refusal of the other version does not name the step"


# -- data ----------------------------------------------------------------------------------------------------


def _version_there(played: Played, this: Round, index: int) -> int:
    """The version whose data a step's path holds."""
    step = played.case.steps[index]
    if step.override is None or step.name not in this.states:
        return 1
    data = this.states[step.name].files.get("data")
    return 2 if data == _content(played, index, "data", 2) else 1


def _content(played: Played, index: int, file: str, version: int) -> bytes:
    """What the step must have written, computed here once more."""
    step = played.case.steps[index]
    digest = hashlib.sha256(f"{step.name}\0{version}\0{file}".encode())
    for number in step.inputs:
        digest.update(_content(played, number, "data", 1))
    return (digest.hexdigest() * 40).encode()
