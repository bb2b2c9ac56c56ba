"""Which process of its step this is: the same question, and the same answer, on every machine.

A step runs in one process, or in one on each of its machines (`replicas`). `this_process()` tells them apart, on a
laptop, on a cluster, and outside of steps (a notebook, a script), where there is one process.

The facts are in environment variables, so that any program that a step starts has them too, in any language. The worker
of a step sets all of them, except the coordinator's where there is one process only:

| variable | field |
|---|---|
| `MARIN_PROCESS_RANK` | `rank` |
| `MARIN_PROCESS_COUNT` | `count` |
| `MARIN_PROCESS_LOCAL_RANK` | `local_rank` |
| `MARIN_PROCESS_LOCAL_COUNT` | `local_count` |
| `MARIN_PROCESS_COORDINATOR_ADDRESS` | `coordinator_address` |
| `MARIN_PROCESS_TASK` | `task` |
| `MARIN_PROCESS_TASKS` | `tasks` |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from marin_rules.errors import MarinRulesError

_PREFIX = "MARIN_PROCESS_"
_ADDRESS = "coordinator_address"


@dataclass(frozen=True)
class ThisProcess:
    """One of the processes that run a step together."""

    rank: int = 0
    """Its number, from 0 to `count` - 1. What rank 0 returns is the result of the step."""

    count: int = 1
    """How many processes run the step together, on all machines."""

    local_rank: int = 0
    """Its number among those on the same machine, from 0 to `local_count` - 1."""

    local_count: int = 1
    """How many of them are on the same machine."""

    coordinator_address: str | None = None
    """Where the processes can find each other: `host:port`, on the machine of rank 0. Nothing listens there until the
    step itself does; the port was free when the step started. None for a step of one process."""

    task: int = 0
    """The number of its part of the work, from 0 to `tasks` - 1, for a step that is divided into parts."""

    tasks: int = 1
    """How many such parts there are; 1 for a step that is not divided."""

    def to_variables(self) -> dict[str, str]:
        """The facts as environment variables."""
        values = {variable_of(field.name): getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """The reverse; a single process if nothing is set."""
        given = {field.name: variables.get(variable_of(field.name)) for field in fields(cls)}
        if all(value is None for value in given.values()):
            return cls()
        address = given.pop(_ADDRESS)
        numbers = {name: _number(name, value) for name, value in given.items()}
        process = cls(**numbers, coordinator_address=address)
        pairs = (("rank", "count"), ("local_rank", "local_count"), ("task", "tasks"))
        for number, count in pairs:
            if numbers[number] >= numbers[count]:
                pair = f"{variable_of(number)}={numbers[number]} and {variable_of(count)}={numbers[count]}"
                raise _wrong(f"{pair} contradict each other")
        if process.count > 1 and address is None:
            raise _wrong(f"{variable_of(_ADDRESS)} is not set")
        return process


def this_process() -> ThisProcess:
    """The calling process. One that a step's process has started, by whatever means, gets the same answer."""
    return ThisProcess.from_variables(os.environ)


def variable_of(field: str) -> str:
    """The environment variable that holds a field of `ThisProcess`."""
    return _PREFIX + field.upper()


def _number(field: str, value: str | None) -> int:
    if value is None:
        raise _wrong(f"{variable_of(field)} is not set")
    if not (value.isascii() and value.isdecimal()):
        raise _wrong(f"{variable_of(field)}={value} is not a number")
    return int(value)


def _wrong(what: str) -> MarinRulesError:
    return MarinRulesError(
        f"cannot tell which process of its step this is: {what}. The worker of the step sets all variables"
        f" {_PREFIX}*: pass them on to the programs that a step starts, all or none, as they are."
    )
