"""The frozen plan: one file that holds all a run needs, so that no job ever plans again.

    magic line | lengths of the next two | index (JSON) | what is known last (JSON): forced steps, conda environments
    definitions | sources | for each step: its record and its call

The index is light (names, paths, edges): rules and views read only that. The record is what is written down about a
step, as JSON. The call (function and config) is unpacked only in the process that runs the step's code. Each part
carries a checksum; a plan that is truncated or damaged is refused with a named error.

Jobs execute what they find in the file, so it must be the driver's work: the driver gives them the plan's digest, which
covers everything but what is known last. A plan without a digest, or with conda environments, must be in a file and a
folder that only the user can write to.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any
from urllib.parse import quote

from marin_rules.errors import MarinRulesError, PlanError, SettingsError
from marin_rules.handwritten import SnakemakeRule
from marin_rules.identity import HASH_DIGITS, MAX_INLINE_DEPTH, to_json
from marin_rules.machines import MachineRequest, resources_of
from marin_rules.plan import Plan, PlannedStep
from marin_rules.plans.conda import CondaEnvironment
from marin_rules.plans.packing import Packer, Unpacker, secret_values
from marin_rules.plans.plain import to_plain
from marin_rules.plans.plan_checks import check_part, check_writers, digest_of
from marin_rules.plans.sources import FrozenSources, collect_sources
from marin_rules.project import project_folder
from marin_rules.remote import RemoteCallable
from marin_rules.settings.ownership import check_not_planted
from marin_rules.software.environment import Environment
from marin_rules.storage.files import local_path, write_atomic
from marin_rules.storage.private_files import make_private_folder, read_within
from marin_rules.urls import is_url

_MAGIC = b"marin-rules plan 3\n"
_LENGTHS = struct.Struct("<QIQI")
"""Length and checksum of the index, and of what is known last."""

MAX_WRITTEN_VERSION_BYTES = 1 << 20
MAX_WRITTEN_NESTING = 100
"""Versions above these are written to info files with their dependencies as `name-hash`."""


class PlanFileError(MarinRulesError):
    """The frozen plan is missing or damaged."""


def absolute(path: str, folder: str) -> str:
    """A path or URL that means the same everywhere; a relative one is below `folder`."""
    return path.rstrip("/") if is_url(path) else os.path.normpath(os.path.join(folder, local_path(path)))


@dataclass(frozen=True)
class Run:
    """One start of an experiment: what all its jobs have in common."""

    id: str
    directory: str
    """Where this run keeps its plan and the failures of its steps."""

    prefix: str
    executor_info_base_path: str
    description: str | None
    caller_path: str
    created_date: str
    user: str | None
    git_commit: str | None
    working_directory: str
    python_path: tuple[str, ...] = ()
    """Folders that jobs put in front of their module search path."""

    force_run_failed: bool = True
    rule_files: tuple[str, ...] = ()
    """Hand-written Snakemake rules to include."""

    python_version: str = ""
    """The driver's, `3.13`: functions travel as bytecode, which no other minor version understands."""

    def absolute(self, path: str) -> str:
        """A path of this run as others see it: a relative one is below the run's working directory."""
        return absolute(path, self.working_directory)

    @property
    def plan_path(self) -> str:
        return os.path.join(self.directory, "plan")

    @property
    def failures_directory(self) -> str:
        return os.path.join(self.directory, "failures")


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_python(run: Run) -> None:
    """Refuse to run steps of a run with another Python than its driver's: they would crash in odd ways."""
    if run.python_version != python_version():
        raise MarinRulesError(
            f"the run was planned with Python {run.python_version}, but its step is to run with Python"
            f" {python_version()} ({sys.executable}): functions do not travel between the two. Give the step's"
            f" environment Python {run.python_version}, or start the run with Python {python_version()}."
        )


@dataclass(frozen=True, slots=True)
class FrozenStep:
    """One step, as light as rules and views need it."""

    index: int
    key: str
    """What jobs call the step: `<name>-<hash>`, without characters that mean something to a shell or a path."""

    name: str
    output_path: str
    digest: str
    depth: int
    function: str
    dependencies: tuple[int, ...]
    needed: bool
    root: bool
    rule: str | None = None
    """The hand-written Snakemake rule that runs the step, None for a Python function."""

    description: str | None = None
    report: tuple[str, ...] = ()
    environment: int | None = None
    """Position in the run's list of environment variables, whose values never touch a file."""

    mirror_budget_gb: float | None = None
    regions: tuple[str, ...] | None = None
    """Where the step may run, None for anywhere."""

    machines: MachineRequest | None = None
    """What the step asks for, None for one that runs beside the driver."""

    software: int | None = None
    """Position in the plan's list of Python environments, None for the driver's own."""

    conda: str | None = None
    """The conda environment file of the step, None for the default one."""

    job_name: str | None = None
    """What its job is called where it runs, if not like the step."""

    @property
    def hash(self) -> str:
        return self.digest[:HASH_DIGITS]

    @property
    def is_overridden(self) -> bool:
        """Whether the output path was given by hand: nothing in it tells one version from another."""
        return not self.output_path.endswith(f"{self.name}-{self.hash}")


@dataclass(frozen=True, slots=True)
class Call:
    """What a step's process executes."""

    fn: Any
    config: Any


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What is written down about a step, as plain data."""

    config: Any
    override_output_path: str | None
    version: dict[str, Any]
    """The step's own part of its version: dotted path -> value."""

    mentions: Sequence[int]
    pseudo_mentions: Sequence[int]
    abridged: bool
    """The version is too large to be written out; dependencies are given as `name-hash`."""


@dataclass(eq=False)
class FrozenPlan:
    """A plan as it travels: the index in memory, the rest as bytes."""

    run: Run
    steps: list[FrozenStep]
    environments: list[dict[str, str]] = field(default_factory=list)
    """Values of environment variables, in memory only: see `FrozenStep.environment`."""

    software: list[Environment] = field(default_factory=list)
    """Python environments that steps ask for."""

    warnings: tuple[str, ...] = ()
    forced: tuple[int, ...] = ()
    """Steps to run although they are done."""

    conda: dict[int, CondaEnvironment] = field(default_factory=dict)
    """The environments that Snakemake has made for steps, by their position; known once it starts jobs."""

    _records: list[bytes] = field(default_factory=list, repr=False)
    _calls: list[bytes] = field(default_factory=list, repr=False)
    _definitions: bytes = field(default=b"", repr=False)
    _sources: bytes = field(default=b"", repr=False)

    @cached_property
    def by_key(self) -> dict[str, FrozenStep]:
        return {step.key: step for step in self.steps}

    @cached_property
    def _unpacker(self) -> Unpacker:
        return Unpacker(self._definitions)

    def call(self, step: FrozenStep) -> Call:
        """The step's function and config. Imports whatever they need, the user's own modules as they were planned."""
        FrozenSources(self._sources).install()
        return Call(*self._unpacker.unpack(self._calls[step.index]))

    def forget_calls(self) -> None:
        """Let go of all that `call` has unpacked: its end may matter, and the frames that hold the plan never end."""
        self.__dict__.pop("_unpacker", None)

    @property
    def unpacked_definitions(self) -> Sequence[Any]:
        """What travelled by value, once a call has needed some of it."""
        return self._unpacker.unpacked

    def record(self, step: FrozenStep) -> StepRecord:
        return StepRecord(*json.loads(self._records[step.index]))

    def version(self, step: FrozenStep) -> dict[str, Any]:
        """The step's whole version, as Marin writes it in info files."""
        record = self.record(step)
        version = {
            "name": step.name,
            "config": record.version,
            "dependencies": self._versions(record.mentions, record.abridged),
        }
        if record.pseudo_mentions:
            version["pseudo_dependencies"] = self._versions(record.pseudo_mentions, record.abridged)
        return version

    def _versions(self, indices: Sequence[int], abridged: bool) -> list[Any]:
        steps = [self.steps[index] for index in indices]
        return [
            f"{step.name}-{step.hash}" if abridged or step.depth > MAX_INLINE_DEPTH else self.version(step)
            for step in steps
        ]

    @cached_property
    def _index(self) -> bytes:
        offset = 0
        places = []
        for part in self._parts():
            places.append([offset, len(part), zlib.crc32(part)])
            offset += len(part)
        return json.dumps(
            {
                "run": asdict(self.run),
                "steps": [_to_row(step) for step in self.steps],
                "software": [environment.to_fields() for environment in self.software],
                "warnings": self.warnings,
                "places": places,
            }
        ).encode()

    @cached_property
    def digest(self) -> str:
        """Tells this plan from every other one, though what is known last may still change."""
        return digest_of(self._index, self._parts())

    def write(self, path: str) -> None:
        """Write the plan, for this user's eyes only, into a folder of the same kind."""
        conda = {str(index): environment.to_fields() for index, environment in self.conda.items()}
        index, last = self._index, json.dumps({"forced": self.forced, "conda": conda}).encode()
        lengths = _LENGTHS.pack(len(index), zlib.crc32(index), len(last), zlib.crc32(last))
        make_private_folder(os.path.dirname(path) or ".")
        write_atomic(path, b"".join([_MAGIC, lengths, index, last, *self._parts()]), mode=0o600)

    def _parts(self) -> list[bytes]:
        return [self._definitions, self._sources, *self._records, *self._calls]

    @classmethod
    def read(cls, path: str, digest: str | None = None) -> FrozenPlan:
        """The plan at `path`: the one with this digest, or else one that this user has written."""
        data, is_ours = read_within(*os.path.split(path))
        if data is None:
            raise PlanFileError(
                f"the plan {path} is gone: the run it belongs to was cleaned up. Start the experiment again."
            )
        try:
            start = len(_MAGIC) + _LENGTHS.size
            if not data.startswith(_MAGIC):
                raise ValueError("it does not start like a plan of this version")
            length, checksum, last_length, last_checksum = _LENGTHS.unpack_from(data, len(_MAGIC))
            index = data[start : start + length]
            check_part(index, length, checksum, "index")
            base = start + length + last_length
            last = data[start + length : base]
            check_part(last, last_length, last_checksum, "index")
            content = json.loads(index) | json.loads(last)
            parts = []
            for offset, size, part_checksum in content["places"]:
                part = data[base + offset : base + offset + size]
                check_part(part, size, part_checksum, "content")
                parts.append(part)
        except (ValueError, KeyError, struct.error) as error:
            raise PlanFileError(
                f"the plan {path} is damaged ({error}). Nothing was run from it; start the experiment again to"
                " write a new one."
            ) from error
        if digest is None or content["conda"]:
            check_writers(path, is_ours)
        if digest not in (None, digest_of(index, parts)):
            raise PlanFileError(
                f"the plan {path} is not the one that this run wrote: somebody has put another in its place. Nothing"
                f" was run from it. See who can write to {os.path.dirname(path)}, and start the experiment again."
            )
        run = content["run"] | {key: tuple(content["run"][key]) for key in ("python_path", "rule_files")}
        return cls(
            run=Run(**run),
            steps=[_from_row(index, row) for index, row in enumerate(content["steps"])],
            software=[Environment.from_fields(fields) for fields in content["software"]],
            warnings=tuple(content["warnings"]),
            forced=tuple(content["forced"]),
            conda={int(index): CondaEnvironment.from_fields(fields) for index, fields in content["conda"].items()},
            _definitions=parts[0],
            _sources=parts[1],
            _records=parts[2 : len(content["steps"]) + 2],
            _calls=parts[len(content["steps"]) + 2 :],
        )


def freeze(plan: Plan, run: Run, regions: Mapping[int, tuple[str, ...] | None] | None = None) -> FrozenPlan:
    """Make the plan independent of this process. What cannot travel is refused, by the step's name.

    `regions` says where each step may run, by its index.
    """
    packer = Packer()
    roots = frozenset(plan.roots)
    environments: list[dict[str, str]] = []
    positions: dict[frozenset[tuple[str, str]], int] = {}
    software = _Software(run)
    steps, records, calls = [], [], []
    keys: set[str] = set()
    for planned in plan.steps:
        fn = planned.step.fn
        environment = groups = job_name = None
        conda = planned.step.conda
        if isinstance(fn, RemoteCallable):
            groups, job_name, conda = fn.pip_dependency_groups, fn.name, conda or fn.conda
            if fn.env_vars:
                variables = dict(fn.env_vars)
                packer.secrets.update(secret_values(variables))
                environment = positions.setdefault(frozenset(variables.items()), len(environments))
                if environment == len(environments):
                    environments.append(variables)
            fn = fn.fn
        steps.append(
            FrozenStep(
                index=planned.index,
                key=_key(planned, keys),
                name=planned.name,
                output_path=planned.output_path,
                digest=planned.identity.digest,
                depth=planned.identity.depth,
                function=planned.function_name,
                dependencies=planned.dependencies,
                needed=planned.needed,
                root=planned.index in roots,
                rule=fn.name if isinstance(fn, SnakemakeRule) else None,
                description=planned.step.description,
                report=tuple(planned.step.report),
                environment=environment,
                mirror_budget_gb=planned.mirror_budget_gb,
                regions=None if regions is None else regions.get(planned.index),
                machines=_machines(planned),
                software=software.position(groups, planned) if groups else None,
                conda=None if conda is None else _conda_file(conda, run, planned),
                job_name=job_name,
            )
        )
        records.append(_record(planned))
        calls.append(packer.pack((fn, planned.config), f"step {planned.name!r} ({planned.function_name})"))
    return FrozenPlan(
        run=run,
        steps=steps,
        environments=environments,
        software=software.environments,
        warnings=plan.warnings,
        _records=records,
        _calls=calls,
        _definitions=packer.definitions(),
        _sources=collect_sources(run.python_path, packer.secrets),
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
    """A conda environment file by its path: beside the experiment, or else in the project's `envs/`."""
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
    head = json.dumps([to_plain(planned.config), planned.step.override_output_path])
    return f"{head[:-1]}, {version}, {json.dumps(rest)[1:]}".encode()


_SAFE_IN_KEYS = "/-_.+=@,"

_MAX_KEY_PART = 120
"""Characters in a part of a key: logs and files of Snakemake are named after it, and a file's name has 255 bytes."""


def _key(planned: PlannedStep, taken: set[str]) -> str:
    """A key that no other step of the plan has, the same in every run."""
    for digits in (planned.identity.hash, planned.identity.digest):
        text = f"{planned.name}-{digits}"
        # A path library would fold empty and dotted parts together, so then no slash stays a slash.
        foldable = any(part in ("", ".", "..") for part in text.split("/"))
        key = _quoted(text, _SAFE_IN_KEYS[1:] if foldable else _SAFE_IN_KEYS)
        if any(len(part) > _MAX_KEY_PART for part in key.split("/")):
            parts = [planned.name] if foldable else planned.name.split("/")
            key = "/".join(map(_shortened, parts)) + f"-{planned.identity.digest}"
        if key.startswith("-"):  # It would look like an option.
            key = "%2D" + key[1:]
        if key not in taken:
            break
    taken.add(key)
    return key


def _quoted(text: str, safe: str) -> str:
    return quote(text, safe=safe).replace("~", "%7E")  # A shell would take it for a home directory.


def _shortened(part: str) -> str:
    """The beginning of a part of a step's name that fits into a key."""
    room = _MAX_KEY_PART - 33  # For the digest.
    part = part[:room]
    while len(quoted := _quoted(part, _SAFE_IN_KEYS[1:])) > room:
        part = part[:-1]
    return quoted


_ROW = tuple(item.name for item in fields(FrozenStep) if item.name != "index")


_MACHINES = _ROW.index("machines")


def _to_row(step: FrozenStep) -> list[Any]:
    row = [getattr(step, name) for name in _ROW]
    if step.machines is not None:
        row[_MACHINES] = step.machines.to_fields()
    return row


def _from_row(index: int, row: list[Any]) -> FrozenStep:
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
    if values[_MACHINES] is not None:
        values[_MACHINES] = MachineRequest.from_fields(values[_MACHINES])
    return FrozenStep(index, *values)
