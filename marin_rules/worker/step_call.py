"""Calls the function of a step, in a process made for that, and reports the outcome."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_rules.completion import is_declared_complete
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.search_path import search
from marin_rules.state.failures import pickled
from marin_rules.state.returned_value import UnfinishedError, returned_value
from marin_rules.worker.main_module import install_main_module
from marin_rules.worker.noted_signals import noted_stop_signal
from marin_rules.worker.sayable import sayable
from marin_rules.worker.step_end import end_forked_copy

LOG_LEVEL_VARIABLE = "MARIN_LOG_LEVEL"
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class Outcome:
    """The outcome of the step's code."""

    artifact: str | None = None
    """The return value as JSON."""

    warning: str | None = None
    error: str | None = None
    """One line about the exception; None for success."""

    exception: str | None = None
    """The exception itself, pickled, if it could be."""

    stopped_by: int = 0
    """The stop signal that the step's code handled before it came to its end."""

    complete: bool = False
    """The step declared its output complete, whatever signals had come."""

    machines: Mapping[str, Any] | None = None
    """What has become known about the machines on which it ran in ranks."""


def call_step(plan: FrozenPlan, step: FrozenStep) -> Outcome:
    """Call the step's function with its config."""
    process = os.getpid()
    sys.argv = [step.output_path]
    search(plan.run.python_path)
    _line_buffered()
    _configure_logging()
    try:
        call = plan.call(step)
        install_main_module(plan, call.fn)
        value = call.fn(call.config)
    except BaseException as error:  # Also in a forked copy, which must not get any further than here.
        if os.getpid() != process:
            end_forked_copy(error)
        _print_traceback(error)
        outcome = Outcome(error=one_line(error), exception=pickled(error))
    else:
        if os.getpid() != process:
            end_forked_copy(None)
        outcome = _artifact(value)
    return dataclasses.replace(outcome, stopped_by=noted_stop_signal(), complete=is_declared_complete())


def _configure_logging() -> None:
    """Show what a step logs, from INFO on unless MARIN_LOG_LEVEL says otherwise."""
    wanted = os.environ.get(LOG_LEVEL_VARIABLE, "").strip().upper() or "INFO"
    level = int(wanted) if wanted.isdigit() else logging.getLevelNamesMapping().get(wanted)
    logging.basicConfig(level=logging.INFO if level is None else level, format=_LOG_FORMAT)
    if level is None:
        logging.getLogger(__name__).warning("%s=%s is not a logging level; using INFO", LOG_LEVEL_VARIABLE, wanted)


def _line_buffered() -> None:
    """Streams that a fork inherited may be buffered for a file; a step's output should be seen as it comes."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _artifact(value: Any) -> Outcome:
    """The return value as JSON; one that has none does not undo finished work, and is null: the value of an earlier
    attempt must not pass for it."""
    try:
        artifact = returned_value(value)
    except UnfinishedError as error:
        return Outcome(error=one_line(error), exception=pickled(error))
    warning = None if artifact.warning is None else sayable(artifact.warning)
    return Outcome(artifact="null" if artifact.text is None else artifact.text, warning=warning)


def _print_traceback(error: BaseException) -> None:
    """The traceback from the step's own code on, without the frames of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__ and frames.tb_next is not None:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


def one_line(error: BaseException) -> str:
    text = sayable(" ".join(str(error).split()))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
