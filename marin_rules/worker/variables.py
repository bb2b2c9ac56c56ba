"""Variables of steps: how they reach the worker without touching a file or a command line.

The values given to `remote(fn, env_vars=...)` may be secrets, and there may be more of them than a process can be
started with (128 KiB a variable, on Linux). The driver keeps all sets in memory, as a file that has no name (a memfd),
and a variable tells the jobs on this machine where to find it: below `/proc/<driver>/fd`, which only the same user can
open, and only while the driver is alive. A job elsewhere gets the sets of its own steps in a variable; one on a machine
without the driver's files gets each variable of its step under a name of its own, since others may be able to see what
a job is given, and secrets among them have to take another route. The plan says only which set a step takes.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence

from marin_rules.clusters.protocol import STEP_VARIABLE
from marin_rules.errors import MarinRulesError

_ALL = "MARIN_RULES_STEP_VARIABLES"
"""Where all sets of the run are: `<path> <mark>`."""

_SOME = "MARIN_RULES_OWN_VARIABLES"
"""The sets of some steps themselves, as JSON: number -> variables."""

_SINGLE = "MARIN_RULES_STEP_VARIABLES_OF"
"""The number of the set whose variables are there one by one, each with `STEP_VARIABLE` before its name."""

_BY_NAME = "MARIN_RULES_NAMED_VARIABLES"
"""All sets, as JSON: number -> name -> the variable that has its value, which begins with `STEP_VARIABLE`."""

_OWN_PREFIX = "MARIN_RULES_"

_MOST_BYTES = 100_000
"""The size of sets in one variable: Linux allows 128 KiB, with its name."""

_held: list[int] = []
"""Descriptors that stay open as long as this process is alive."""


def exported(sets: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Keep the sets in the memory of this process; returns what its children on this machine need to find them."""
    if not sets:
        return {}
    mark = secrets.token_hex(8)  # Another process may have our number one day, and this descriptor.
    content = "\n".join([mark, *(json.dumps(dict(variables)) for variables in sets)]).encode()
    try:
        descriptor = os.memfd_create("marin-rules")
    except (AttributeError, OSError) as error:
        return _in_one_variable(dict(enumerate(sets)), f"this system keeps no files in memory ({error})")
    _held.append(descriptor)
    while content:
        content = content[os.write(descriptor, content) :]
    return {_ALL: f"/proc/{os.getpid()}/fd/{descriptor} {mark}"}


def passed_on() -> dict[str, str]:
    """The same for sets that another process keeps for us: keep them here, since that one may end before us."""
    return exported([json.loads(line) for line in _lines()]) if _ALL in os.environ else {}


def for_driver_elsewhere(sets: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The same for a driver that is started later, or on another machine, for which no process keeps the sets."""
    return _in_one_variable(dict(enumerate(sets)), "a submitted driver gets them in one variable") if sets else {}


def for_driver_without_files(sets: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The same for one on a machine without our files: each value under a name of its own, as for jobs there.

    A name to which sets give different values is followed by a number: `MODE`, `MODE__1`.
    """
    values: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    places: list[dict[str, str]] = [{} for _ in sets]
    for number, variables in enumerate(sets):
        for name, value in variables.items():
            known = values.setdefault(name, [])
            if value not in known:
                known.append(value)
            index = known.index(value)
            place = f"{STEP_VARIABLE}{name}{f'__{index}' if index else ''}"
            found[place] = value
            places[number][name] = place
    return {**found, _BY_NAME: json.dumps(dict(enumerate(places)))} if places else {}


def for_job_elsewhere(numbers: Iterable[int | None], planned: Sequence[Mapping[str, str]] = ()) -> dict[str, str]:
    """The variables that a job on another machine is given for its steps: their own sets and no others.

    `planned` are all sets, in the process that made the plan; any other finds them as its steps do.
    """
    wanted = sorted({number for number in numbers if number is not None})
    sets = {number: _planned_set(number, planned) for number in wanted}
    return _in_one_variable(sets, "a job on another machine gets them in one variable") if sets else {}


def one_by_one(number: int | None, planned: Sequence[Mapping[str, str]] = ()) -> dict[str, str]:
    """The variables that a job of one step is given for it, each under a name of its own."""
    if number is None:
        return {}
    own = _planned_set(number, planned)
    return {_SINGLE: str(number), **{STEP_VARIABLE + name: value for name, value in own.items()}}


def set_step_variables(number: int | None) -> None:
    """Give this process the variables of its step, and hide from it those that control this run."""
    variables = {} if number is None else _set(number)
    for name in [name for name in os.environ if name.startswith(_OWN_PREFIX)]:
        del os.environ[name]
    os.environ.update(variables)


def _planned_set(number: int, planned: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    return planned[number] if planned else _set(number)


def _set(number: int) -> dict[str, str]:
    if os.environ.get(_SINGLE) == str(number):
        given = os.environ.items()
        return {name.removeprefix(STEP_VARIABLE): value for name, value in given if name.startswith(STEP_VARIABLE)}
    some = _some()
    lines = [] if number in some else _lines()
    found = some.get(number) if number in some else json.loads(lines[number]) if number < len(lines) else None
    if found is None:
        raise MarinRulesError(
            "the step's environment variables did not reach this process: the driver of the run keeps them, and it is"
            " gone or on another machine. Start the experiment again, with an executor that passes its environment on"
            " to its jobs."
        )
    return {str(name): str(value) for name, value in found.items()}


def _in_one_variable(sets: Mapping[int, Mapping[str, str]], why: str) -> dict[str, str]:
    text = json.dumps({number: dict(variables) for number, variables in sets.items()})
    if len(text) > _MOST_BYTES:
        raise MarinRulesError(
            f"the env_vars of {len(sets)} step(s) take {len(text)} bytes, and {_MOST_BYTES} fit: {why}. Let the step"
            " read large values from a file or a secret store instead."
        )
    return {_SOME: text}


def _some() -> dict[int, dict[str, str]]:
    named = {
        number: {name: os.environ[place] for name, place in places.items() if place in os.environ}
        for number, places in json.loads(os.environ.get(_BY_NAME, "{}")).items()
    }
    some = json.loads(os.environ.get(_SOME, "{}"))
    return {int(number): variables for number, variables in {**named, **some}.items()}


def _lines() -> list[str]:
    """The sets that the driver keeps, each as JSON; none if it is gone."""
    path, _, mark = os.environ.get(_ALL, "").partition(" ")
    try:
        with open(path, encoding="utf-8") as file:
            found, *lines = file.read().split("\n")
    except (OSError, ValueError):
        return []
    return lines if found == mark else []
