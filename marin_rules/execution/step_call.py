"""Calls the function of a step, in a process made for that, and tells what came of it."""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from marin_rules.execution.drive import pickled
from marin_rules.execution.frozen import FrozenPlan, FrozenStep
from marin_rules.execution.plain import to_plain
from marin_rules.execution.search_path import search


@dataclass(frozen=True)
class Outcome:
    """What the step's code came to."""

    artifact: str | None = None
    """The return value as JSON."""

    warning: str | None = None
    error: str | None = None
    """One line about the exception; None for success."""

    exception: str | None = None
    """The exception itself, pickled, if it could be."""


def call_step(plan: FrozenPlan, step: FrozenStep) -> Outcome:
    """Call the step's function with its config."""
    sys.argv = [step.output_path]
    search(plan.run.python_path)
    _line_buffered()
    try:
        call = plan.call(step)
        value = call.fn(call.config)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        _print_traceback(error)
        return Outcome(error=one_line(error), exception=pickled(error))
    return _artifact(value)


def _line_buffered() -> None:
    """Streams that a fork inherited may be buffered for a file; a step's output should be seen as it comes."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _artifact(value: Any) -> Outcome:
    """The return value as JSON; one that has none does not undo finished work."""
    if value is None:
        return Outcome()
    try:
        data = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        return Outcome(artifact=json.dumps(data, indent=2))
    except (TypeError, ValueError) as error:
        try:
            text = json.dumps(to_plain(value), indent=2)
        except Exception:
            text = None
        return Outcome(artifact=text, warning=f"the return value is not JSON ({error}); its text was kept instead")


def _print_traceback(error: BaseException) -> None:
    """The traceback from the step's own code on, without the frames of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__ and frames.tb_next is not None:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
