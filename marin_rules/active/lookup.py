"""Which step or run a person means: by name, by `<name>-<hash>`, by output path, by the id of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from marin_rules.active.active_step import StepAddress, name_in
from marin_rules.active.survey import Survey
from marin_rules.errors import MarinRulesError
from marin_rules.plans.run import absolute
from marin_rules.state.driver_record import DriverRecord, drivers_beginning, named_driver
from marin_rules.state.info import info_path, read_info
from marin_rules.state.status import status_path
from marin_rules.state.step_log import log_path
from marin_rules.storage.files import modified_time


class NotFoundError(MarinRulesError):
    """No step or run is meant, or more than one."""


def find_steps(survey: Survey, text: str) -> list[StepAddress]:
    """The steps of registered runs that `text` may mean, or else the one at that output path."""
    path = absolute(text, os.getcwd())
    found: dict[str, StepAddress] = {}
    for step in _all_steps(survey):
        if text in (step.name, step.key) or path == step.output_path:
            same = found.get(step.where)
            runs = (*same.runs, *step.runs) if same is not None else step.runs
            found[step.where] = replace(step, runs=tuple(dict.fromkeys(runs)))
    if not found and (step_there := _step_at(path)) is not None:
        return [step_there]
    return list(found.values())


def find_run(survey: Survey, text: str) -> str | None:
    """The id of the run that `text` is, or is the beginning of: no less than the name of its experiment file.

    A missing step, or a typo, must not stop a run whose name happens to begin with it.
    """
    runs = {active.run.id for active in survey.runs} | {found.run for found in survey.steps}
    if text in runs:
        return text
    begun = sorted(run for run in runs if run.startswith(text) and len(text) >= len(_file_in(run)))
    if len(begun) > 1:
        raise NotFoundError(f"{text!r} is the beginning of several runs; write more of it: {', '.join(begun)}")
    return begun[0] if begun else None


def find_driver(text: str, survey: Survey | None = None) -> DriverRecord | None:
    """The submitted driver that a person means, by its id, its name, or the beginning of its id; None if it is none.

    With a `survey`, steps come before beginnings: an experiment file may have the name of a step.
    """
    record = named_driver(text)
    if record is not None or (survey is not None and find_steps(survey, text)):
        return record
    found = drivers_beginning(text)
    if len(found) > 1:
        names = ", ".join(record.id for record in found)
        raise NotFoundError(f"{text!r} is the beginning of several drivers; write more of it: {names}")
    return found[0] if found else None


def _file_in(run: str) -> str:
    """The experiment file's part of a run's id, `<file>-<date>-<time>-<number>`."""
    return run.rsplit("-", 3)[0]


def the_only(steps: list[StepAddress], text: str) -> StepAddress:
    """The one step that the text means."""
    if not steps:
        raise NotFoundError(
            f"no step {text!r} in your active runs, and neither an output path nor a submitted driver of that name;"
            " `marin-rules jobs list` shows what is active, and `marin-rules show STEP` a step that has ended"
        )
    if len(steps) > 1:
        candidates = "\n".join(
            f"  {step.output_path or f'{step.key} (its run is no longer recorded)'}" for step in steps
        )
        raise NotFoundError(f"{text!r} may be one of several steps; name it by its path:\n{candidates}")
    return steps[0]


def _all_steps(survey: Survey) -> Iterable[StepAddress]:
    for active in survey.runs:
        yield from active.steps
    for found in survey.steps:
        if found.step.output_path is None:
            yield found.step


def _step_at(path: str) -> StepAddress | None:
    """The step whose output path this is, whatever run it was of."""
    if all(modified_time(name) is None for name in (status_path(path), info_path(path), log_path(path))):
        return None
    key = os.path.basename(path)
    try:
        name = str((read_info(path) or {})["name"])
    except (MarinRulesError, KeyError):
        name = name_in(key)
    return StepAddress(name, key, path)
