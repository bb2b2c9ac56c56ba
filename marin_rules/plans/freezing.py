"""Freezing: a plan made independent of its process. What cannot be packed is refused, by the step's name."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from marin_rules.errors import PlanError, SettingsError
from marin_rules.functions import no_function
from marin_rules.handwritten import SnakemakeRule
from marin_rules.identity import to_json
from marin_rules.machines import MachineRequest, resources_of, tasks_of
from marin_rules.plan import Plan, PlannedStep
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.packing import Packer, secret_values
from marin_rules.plans.plain import to_plain
from marin_rules.plans.run import Run
from marin_rules.plans.sources import collect_sources
from marin_rules.project import project_folder
from marin_rules.remote import RemoteCallable
from marin_rules.settings.ownership import check_not_planted
from marin_rules.software.environment import Environment

MAX_WRITTEN_VERSION_BYTES = 1 << 20
MAX_WRITTEN_NESTING = 100
"""Versions above these are written to info files with their dependencies as `name-hash`."""


def freeze(plan: Plan, run: Run, regions: Mapping[int, tuple[str, ...] | None] | None = None) -> FrozenPlan:
    """Make the plan independent of this process. What cannot be packed is refused, by the step's name.

    `regions` says where each step may run, by its index.
    """
    packer = Packer()
    roots = frozenset(plan.roots)
    sets: list[dict[str, str]] = []
    positions: dict[frozenset[tuple[str, str]], int] = {}
    software = _Software(run)
    steps, records, calls = [], [], []
    keys: set[str] = set()
    for planned in plan.steps:
        fn = planned.step.fn
        variables = job_name = None
        groups = tuple(planned.step.pip_dependency_groups or ())
        conda_file = planned.step.conda
        if isinstance(fn, RemoteCallable):
            groups, job_name, conda_file = fn.pip_dependency_groups or groups, fn.name, conda_file or fn.conda
            if fn.env_vars:
                values = dict(fn.env_vars)
                packer.secrets.update(secret_values(values))
                variables = positions.setdefault(frozenset(values.items()), len(sets))
                if variables == len(sets):
                    sets.append(values)
            fn = fn.fn
        steps.append(
            FrozenStep(
                index=planned.index,
                key=_key(planned, keys),
                name=planned.name,
                output_path=planned.output_path,
                digest=planned.digest,
                depth=planned.identity.depth,
                function=planned.function_name,
                dependencies=planned.dependencies,
                needed=planned.needed,
                root=planned.index in roots,
                rule=fn.name if isinstance(fn, SnakemakeRule) else None,
                description=planned.step.description,
                report=tuple(planned.step.report),
                variables=variables,
                mirror_budget_gb=planned.mirror_budget_gb,
                regions=None if regions is None else regions.get(planned.index),
                machines=_machines(planned),
                software=software.position(groups, planned) if groups else None,
                conda_file=None if conda_file is None else _conda_file(conda_file, run, planned),
                job_name=job_name,
                tasks=tasks_of(planned.step),
                version_hash=None if planned.step.spec is None else planned.identity.hash,
            )
        )
        records.append(_record(planned))
        fn = no_function if fn is None else fn
        calls.append(packer.pack((fn, planned.config), f"step {planned.name!r} ({planned.function_name})"))
    return FrozenPlan(
        run=run,
        steps=steps,
        variables=sets,
        software=software.environments,
        warnings=plan.warnings,
        records=records,
        calls=calls,
        definitions=packer.definitions(),
        sources=collect_sources(run.python_path, packer.secrets, os.path.abspath(run.caller_path)),
    )


class _Software:
    """Collects the Python environments that steps ask for."""

    def __init__(self, run: Run) -> None:
        self.environments: list[Environment] = []
        self._folder = os.path.dirname(os.path.abspath(run.caller_path))
        self._prefix = run.prefix
        self._positions: dict[tuple[str, ...], int] = {}

    def position(self, groups: tuple[str, ...], planned: PlannedStep) -> int:
        if groups not in self._positions:
            try:
                environment = Environment.of_groups(groups, self._folder, prefix=self._prefix)
            except SettingsError as error:
                raise PlanError(f"step {planned.name!r}: {error}") from error
            if environment not in self.environments:
                self.environments.append(environment)
            self._positions[groups] = self.environments.index(environment)
        return self._positions[groups]


def _machines(planned: PlannedStep) -> MachineRequest | None:
    resources = resources_of(planned.step)
    return None if resources is None else MachineRequest.from_resources(resources)


def _conda_file(name: str, run: Run, planned: PlannedStep) -> str:
    """A conda file by its path: beside the experiment, or else in the project's `envs/`."""
    folders = (os.path.dirname(os.path.abspath(run.caller_path)), os.getcwd(), str(project_folder() / "envs"))
    candidates = list(dict.fromkeys(os.path.join(folder, name) for folder in folders))
    for path in candidates:
        if os.path.isfile(path):
            check_not_planted(path, os.path.dirname(path), "the conda file", maker=run.caller_path)
            return path
    raise PlanError(
        f"step {planned.name!r}: there is no conda environment file {name}: looked for {' and '.join(candidates)}"
    )


def _record(planned: PlannedStep) -> bytes:
    """A `StepRecord` as JSON, its fields in order."""
    identity = planned.identity
    abridged = identity.size > MAX_WRITTEN_VERSION_BYTES or identity.nesting > MAX_WRITTEN_NESTING
    version = to_json(identity.version["config"])
    rest = [planned.mentions, planned.pseudo_mentions, abridged]
    head = json.dumps(_config_and_override(planned))
    return f"{head[:-1]}, {version}, {json.dumps(rest)[1:]}".encode()


def _config_and_override(planned: PlannedStep) -> list[Any]:
    """What an info shows of what the author wrote: for a StepSpec, its attributes and its own override."""
    spec = planned.step.spec
    if spec is None:
        return [to_plain(planned.config), planned.step.override_output_path]
    return [to_plain(planned.config.attrs), spec.override_output_path]


_SAFE_IN_KEYS = "/-_.+=@,"

_KEY_DIGITS = 32

_MAX_KEY_PART = 120
"""Characters in a part of a key: logs and files of Snakemake are named after it, and a file's name has 255 bytes."""


def _key(planned: PlannedStep, taken: set[str]) -> str:
    """A key that no other step of the plan has, the same in every run."""
    for text, digits in _key_texts(planned):
        # A path library would fold empty and dotted parts together, so then no slash stays a slash.
        foldable = any(part in ("", ".", "..") for part in text.split("/"))
        key = _quoted(text, _SAFE_IN_KEYS[1:] if foldable else _SAFE_IN_KEYS)
        if any(len(part) > _MAX_KEY_PART for part in key.split("/")):
            parts = [planned.name] if foldable else planned.name.split("/")
            key = "/".join(map(_shortened, parts)) + f"-{digits}"
        if key.startswith("-"):  # It would look like an option.
            key = "%2D" + key[1:]
        if key not in taken:
            break
    taken.add(key)
    return key


def _key_texts(planned: PlannedStep) -> Iterator[tuple[str, str]]:
    """What a step may be called, and the digits for one whose name is too long. Only StepSpecs that differ in nothing
    but their place need the last."""
    digits = planned.digest[:_KEY_DIGITS]
    yield planned.label, digits
    yield f"{planned.name}-{digits}", digits
    place = hashlib.sha256(planned.output_path.encode()).hexdigest()[:_KEY_DIGITS]
    yield f"{planned.name}-{place}", place


def _quoted(text: str, safe: str) -> str:
    return quote(text, safe=safe).replace("~", "%7E")  # A shell would expand it to a home directory.


def _shortened(part: str) -> str:
    """The beginning of a part of a step's name that fits into a key."""
    room = _MAX_KEY_PART - _KEY_DIGITS - 1
    part = part[:room]
    while len(quoted := _quoted(part, _SAFE_IN_KEYS[1:])) > room:
        part = part[:-1]
    return quoted
