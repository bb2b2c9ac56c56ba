"""What each way in which a step of experiment.py behaves must come to: as plain Python would end."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What must become of a step in the first round, if nothing disturbs it. In the second one all are whole."""

    WHOLE = "whole"
    FAILS = "fails"
    EITHER = "either"


@dataclass(frozen=True)
class Behaviour:
    """A function of experiment.py."""

    name: str
    outcome: Outcome
    files: tuple[str, ...] = ("data",)
    """What it must have written once it is done."""

    options: Sequence[str] = ("",)
    """Variants of which a case takes one."""


def _whole(*names: str, late: bool = False, options: Sequence[str] = ("",)) -> list[Behaviour]:
    files = ("data", "late") if late else ("data",)
    return [Behaviour(name, Outcome.WHOLE, files, options) for name in names]


def _failing(*names: str, options: Sequence[str] = ("",)) -> list[Behaviour]:
    return [Behaviour(name, Outcome.FAILS, options=options) for name in names]


RETURNS = (
    *("nothing", "numbers", "dataclass", "not a number", "set", "bytes", "hostile", "deep", "keys"),
    *("surrogate", "large", "function"),
)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV, signal.SIGHUP)

WHOLE = [
    *_whole("plain", "child_returns", "child_exits", "child_raises", "process_pool", "prints_much"),
    *_whole("closes_streams", "changes_its_process", "leaves_children", "leaves_a_strangers_child"),
    *_whole("thread", "thread_pool", "at_exit", "child_process", "spawned_process", "unflushed", late=True),
    *_whole("returns_something", options=RETURNS),
]
FAILING = [
    *_failing("raises", options=("text", "nothing", "hostile", "interrupt", "exit", "exit text", "memory")),
    *_failing("vanishes", options=("0", "7")),
    *_failing("kills_itself", options=tuple(str(int(number)) for number in SIGNALS)),
    *_failing("recurses", "crashes", "child_returns_parent_raises", "exits_in_a_thread_of_its_own"),
]
EITHER = [Behaviour("empties_its_folder", Outcome.EITHER)]
WAITING = _whole("waits", "saves_and_returns", "exits_when_told", "is_deaf")
REFUSED = _failing("asynchronous", "generates", "takes_nothing")

BY_NAME = {behaviour.name: behaviour for behaviour in (*WHOLE, *FAILING, *EITHER, *WAITING, *REFUSED)}
