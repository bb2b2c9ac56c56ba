"""What is recorded about a step (`.executor_info`) and about an experiment (`experiments/<caller>-<hash>.json`).

The fields are Marin's; ours are added beside them (`version_digest`, `run`). A step's info is written by the worker
that holds its lease, and only then: the provenance of finished work is never overwritten. An experiment's file has
the same name in every run of the same experiment.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.identity import HASH_DIGITS, to_json
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.status import INFO_FILE
from marin_rules.storage.files import read_bytes, write_atomic


class VersionClashError(MarinRulesError):
    """The output path is taken by another version of the step."""


@dataclass(frozen=True)
class ExecutorStepInfo:
    """A step as Marin describes it in its info files."""

    name: str
    fn_name: str
    config: Any
    description: str | None
    override_output_path: str | None
    version: dict[str, Any]
    dependencies: list[str]
    output_path: str


@dataclass(frozen=True)
class ExecutorInfo:
    """An experiment as Marin describes it in its info file."""

    worker_id: str
    git_commit: str | None
    caller_path: str
    created_date: str
    user: str | None
    prefix: str
    description: str | None
    steps: list[ExecutorStepInfo]


def step_info(plan: FrozenPlan, step: FrozenStep) -> dict[str, Any]:
    """The description of a step, as plain data in the order of Marin's fields."""
    record = plan.record(step)
    return {
        "name": step.name,
        "fn_name": step.function,
        "version_digest": step.digest,
        "config": record.config,
        "description": step.description,
        "override_output_path": record.override_output_path,
        "version": plan.version(step),
        "dependencies": [plan.steps[index].output_path for index in step.dependencies],
        "output_path": step.output_path,
    }


def info_path(output_path: str) -> str:
    return os.path.join(output_path, INFO_FILE)


def read_info(output_path: str) -> dict[str, Any] | None:
    """The info of a step, None when there is none. A damaged one is an error, never accepted as an answer."""
    path = info_path(output_path)
    data = read_bytes(path)
    return None if data is None else parse_info(data, path)


def parse_info(data: bytes, path: str) -> dict[str, Any]:
    """The info in the bytes of an info file; `path` is for the error."""
    try:
        info = json.loads(data)
        if not isinstance(info, dict):
            raise ValueError("it is not a JSON object")
        if not isinstance(info.get("run", {}), dict):
            raise ValueError("its `run` is not a JSON object")
        return info
    except (ValueError, RecursionError) as error:
        raise MarinRulesError(
            f"{path} is damaged ({error}). The data beside it may be fine: if you know which config made them, delete"
            " the file, and the step is accepted as it is; otherwise delete the directory, and it runs again."
        ) from error


def info_bytes(info: Mapping[str, Any]) -> bytes:
    return (json.dumps(info, indent=2) + "\n").encode()


def check_version(plan: FrozenPlan, step: FrozenStep, data: bytes | None) -> None:
    """Refuse to use an output path whose info (`data`) describes another version.

    Two versions meet on one path through an override, or because their six digits are the same. A path without an info
    is accepted: its data was put there by hand, or by one of Marin's older executors.
    """
    if data is None or f'"version_digest": "{step.digest}"'.encode() in data:
        return
    info = parse_info(data, info_path(step.output_path))
    clash = info["version_digest"] != step.digest if "version_digest" in info else _differs(plan, step, info)
    if clash:
        raise VersionClashError(_clash(step))


def _differs(plan: FrozenPlan, step: FrozenStep, info: Mapping[str, Any]) -> bool:
    """Whether an info of Marin's describes something other than the step; what it does not say is assumed to match."""
    version, record = info.get("version"), plan.record(step)
    if not version:  # Its StepRunner writes none, and the attributes as the config.
        return step.is_spec and step.is_overridden and info.get("config", record.config) != record.config
    if step.is_spec:  # The version depends on the order of dependencies, the path of a StepSpec does not.
        return step.is_overridden and version.get("config", {}).get("attrs") != record.config
    # One that is too large to be written out cannot be compared.
    return not record.abridged and bool(version != plan.version(step))


def version_clash(plan: FrozenPlan, step: FrozenStep) -> str | None:
    """Why the data at a step's output path is not the step's; None if it is, as far as is known."""
    try:
        check_version(plan, step, read_bytes(info_path(step.output_path)))
    except (MarinRulesError, OSError) as error:
        return str(error)
    return None


def _clash(step: FrozenStep) -> str:
    path, info = step.output_path, info_path(step.output_path)
    if step.is_overridden:
        return (
            f"step {step.name!r}: its override_output_path {path} already holds another version (see {info}). Give each"
            " version a path of its own, or delete the folder to rebuild it. If the data there is what you want,"
            f" rename {INFO_FILE}: without it the data is used as it is."
        )
    return (
        f"step {step.name!r}: {path} already holds another version (see {info}): the six digits of the path are the"
        " same by chance. Rename the step, or give it an override_output_path."
    )


def experiment_info(plan: FrozenPlan, worker_id: str) -> dict[str, Any]:
    """The description of a whole experiment."""
    run = plan.run
    return {
        "worker_id": worker_id,
        "git_commit": run.git_commit,
        "caller_path": run.caller_path,
        "created_date": run.created_date,
        "user": run.user,
        "prefix": run.prefix,
        "description": run.description,
        "steps": [step_info(plan, step) for step in plan.steps],
    }


def experiment_info_path(plan: FrozenPlan) -> str:
    """Named after the experiment's file and its steps: the same in every run."""
    content = [[step.name, step.function, step.digest, step.output_path] for step in plan.steps]
    digest = hashlib.md5(to_json(content).encode(), usedforsecurity=False).hexdigest()[:HASH_DIGITS]
    caller = os.path.basename(plan.run.caller_path).removesuffix(".py") or "experiment"
    return os.path.join(plan.run.executor_info_base_path, f"{caller}-{digest}.json")


def write_experiment_info(plan: FrozenPlan, worker_id: str) -> str:
    path = experiment_info_path(plan)
    write_atomic(path, info_bytes(experiment_info(plan, worker_id)))
    return path
