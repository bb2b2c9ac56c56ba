"""Steps that runs have recorded below a prefix, and which of them a person means.

Every run writes its experiment with all its steps to `<prefix>/experiments/*.json`; a step's own folder says what ran
there. Only reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.plans.run import INFO_FOLDER, absolute
from marin_rules.plans.step_names import matching
from marin_rules.state.info import info_path, read_info
from marin_rules.state.status import status_path
from marin_rules.state.step_log import log_path
from marin_rules.state.version_differences import differences
from marin_rules.storage.files import modified_time, read_bytes
from marin_rules.storage.filesystems import open_filesystem
from marin_rules.urls import is_url

_MOST_STEPS = 20
_MOST_SETTINGS = 4


class UnknownStepError(MarinRulesError):
    """No step is meant, or more than one."""


@dataclass(frozen=True)
class WrittenStep:
    """A step as a run has recorded it."""

    name: str
    output_path: str
    dependencies: tuple[str, ...] = ()
    """Output paths."""

    experiment: str | None = None
    """The experiment file that had it."""

    fields: dict[str, Any] | None = None
    """The whole record, as in an info file."""


def written_steps(prefix: str) -> list[WrittenStep]:
    """All steps of all experiments below a prefix, by output path; those of the newest experiment file win."""
    found: dict[str, WrittenStep] = {}
    files = _experiment_files(os.path.join(prefix, INFO_FOLDER))
    for path in sorted(files, key=lambda file: modified_time(file) or 0.0):
        data = read_bytes(path)
        try:
            experiment = json.loads(data or b"null")
            for fields in experiment["steps"]:
                step = _written(fields, experiment, prefix)
                found[step.output_path] = step
        except (ValueError, KeyError, TypeError):
            continue  # Not one of ours, or of another version.
    return list(found.values())


def _written(fields: dict[str, Any], experiment: dict[str, Any], prefix: str) -> WrittenStep:
    def moved(path: str) -> str:
        """A path below the prefix, whatever the prefix was called in that run."""
        then = str(experiment["prefix"]).rstrip("/") + "/"
        return os.path.join(prefix, path.removeprefix(then)) if path.startswith(then) else path

    return WrittenStep(
        name=fields["name"],
        output_path=absolute(moved(fields["output_path"]), os.getcwd()),
        dependencies=tuple(absolute(moved(path), os.getcwd()) for path in fields["dependencies"]),
        experiment=experiment.get("caller_path"),
        fields=fields,
    )


def _experiment_files(folder: str) -> list[str]:
    if is_url(folder):
        filesystem, key = open_filesystem(folder)
        try:
            return [filesystem.unstrip_protocol(name) for name in filesystem.glob(f"{key}/*.json")]
        except FileNotFoundError:
            return []
    try:
        return [entry.path for entry in os.scandir(folder) if entry.name.endswith(".json")]
    except OSError:
        return []


def step_at(path: str) -> WrittenStep | None:
    """The step whose output path this is, by what is there."""
    if all(modified_time(name) is None for name in (status_path(path), info_path(path), log_path(path))):
        return None
    try:
        fields = read_info(path)
    except MarinRulesError:
        fields = None
    name = str((fields or {}).get("name") or os.path.basename(path).rpartition("-")[0] or os.path.basename(path))
    dependencies = tuple(absolute(str(item), os.getcwd()) for item in (fields or {}).get("dependencies", ()))
    caller = ((fields or {}).get("run") or {}).get("caller_path")
    return WrittenStep(name, path, dependencies, caller, fields)


def the_step(text: str, prefix: str) -> WrittenStep:
    """The one step that a text means."""
    found = matching(written_steps(prefix), text, prefix)
    there = step_at(absolute(text, os.getcwd())) if not found or "/" in text else None
    if there is not None:
        return there
    if not found:
        raise UnknownStepError(
            f"no step {text!r} below {prefix}: write its name, its <name>-<hash> or its output path, and --prefix if"
            " the data is elsewhere"
        )
    if len(found) > 1:
        raise UnknownStepError(f"{text!r} may be one of several steps; name it by its path:\n{_lines(found)}")
    ran = step_at(found[0].output_path)
    return found[0] if ran is None else replace(ran, dependencies=found[0].dependencies)


def dependents(steps: Iterable[WrittenStep], path: str) -> list[WrittenStep]:
    """The steps that use the one at a path directly."""
    return [step for step in steps if path in step.dependencies]


def _lines(steps: Sequence[WrittenStep]) -> str:
    """Their paths; below those of several versions of one step, what tells each from the others."""
    are_versions = len({step.name for step in steps}) == 1
    told = differences([(step.fields or {}).get("version") for step in steps]) if are_versions else [{}] * len(steps)
    lines: list[str] = []
    for step, settings in list(zip(steps, told, strict=True))[:_MOST_STEPS]:
        lines.append(f"  {step.output_path}")
        if settings:
            shown = [f"{path} {value}" for path, value in list(settings.items())[:_MOST_SETTINGS]]
            more = f", and {len(settings) - _MOST_SETTINGS} more" if len(settings) > _MOST_SETTINGS else ""
            lines.append(f"      {', '.join(shown)}{more}")
    return "\n".join([*lines, *([f"  ... and {len(steps) - _MOST_STEPS} more"] if len(steps) > _MOST_STEPS else [])])
