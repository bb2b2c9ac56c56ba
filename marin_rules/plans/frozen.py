"""The frozen plan: everything that a run needs, so that no job ever plans again.

The steps are light (names, paths, edges): rules and views read only these. The record of a step is what is stored about
it, as JSON. Its call (function and config) is unpacked only in the process that runs the step's code.

`freezing` makes a plan, `plan_file` writes and reads it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from marin_rules import compat
from marin_rules.identity import HASH_DIGITS, MAX_INLINE_DEPTH
from marin_rules.machines import MachineRequest
from marin_rules.plans.conda import CondaEnvironment
from marin_rules.plans.packing import Unpacker
from marin_rules.plans.plan_checks import digest_of
from marin_rules.plans.run import Run
from marin_rules.plans.sources import FrozenSources
from marin_rules.software.environment import Environment
from marin_rules.spec_identity import spec_label


@dataclass(frozen=True, slots=True)
class FrozenStep:
    """One step, with only what rules and views need."""

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
    variables: int | None = None
    """Position in the plan's list of sets of variables, whose values never touch a file."""

    mirror_budget_gb: float | None = None
    regions: tuple[str, ...] | None = None
    """Where the step may run, None for anywhere."""

    machines: MachineRequest | None = None
    """What the step asks for, None for one that runs beside the driver."""

    software: int | None = None
    """Position in the plan's list of Python environments, None for the driver's own."""

    conda_file: str | None = None
    """What `--sdm conda` makes the step's environment from, None for the default one."""

    job_name: str | None = None
    """What its job is called where it runs, if not like the step."""

    tasks: int | None = None
    """How many tasks the step is divided into, None if it is not divided."""

    version_hash: str | None = None
    """For a StepSpec: the digits of its version, by which the versions of others refer to it. Its digest is its own."""

    @property
    def hash(self) -> str:
        return self.version_hash or self.digest[:HASH_DIGITS]

    @property
    def is_spec(self) -> bool:
        return self.version_hash is not None

    @property
    def label(self) -> str:
        """How the output path ends, unless it is overridden."""
        return spec_label(self.name, self.digest) if self.is_spec else f"{self.name}-{self.hash}"

    @property
    def is_overridden(self) -> bool:
        """Whether the output path was given by hand: nothing in it tells one version from another."""
        return not self.output_path.endswith(self.label)


@dataclass(frozen=True, slots=True)
class Call:
    """What a step's process executes."""

    fn: Any
    config: Any


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What is stored about a step, as plain data."""

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
    """A plan that needs nothing from the process that made it: the index in memory, the rest packed."""

    run: Run
    steps: list[FrozenStep]
    variables: list[dict[str, str]] = field(default_factory=list)
    """Sets of variables that steps are given, in memory only: see `FrozenStep.variables`."""

    software: list[Environment] = field(default_factory=list)
    """Python environments that steps ask for."""

    warnings: tuple[str, ...] = ()
    forced: tuple[int, ...] = ()
    """Steps to run even if they are done."""

    anew: tuple[int, ...] = ()
    """Steps to do again from the start, done or not: nothing that was done of them before counts."""

    unseen: bool = False
    """It is not known what is done, because a store could not be asked: only for a plan that is shown and not run."""

    conda: dict[int, CondaEnvironment] = field(default_factory=dict)
    """The environments that Snakemake has made for steps, by their position; known once it starts jobs."""

    resumed: dict[int, int] = field(default_factory=dict)
    """Steps that an earlier driver of this run has left stopped, by their position, and after how many attempts."""

    definitions: bytes = field(default=b"", repr=False)
    """What several calls share, packed."""

    sources: bytes = field(default=b"", repr=False)
    """The user's own modules, packed."""

    records: list[bytes] = field(default_factory=list, repr=False)
    """For each step a `StepRecord`, as JSON."""

    calls: list[bytes] = field(default_factory=list, repr=False)
    """For each step a `Call`, packed."""

    @cached_property
    def by_key(self) -> dict[str, FrozenStep]:
        return {step.key: step for step in self.steps}

    @cached_property
    def _unpacker(self) -> Unpacker:
        return Unpacker(self.definitions)

    def call(self, step: FrozenStep) -> Call:
        """The step's function and config. Imports whatever they need, the user's own modules as they were planned."""
        FrozenSources(self.sources).install()
        if self.run.compat:
            compat.install()
        return Call(*self._unpacker.unpack(self.calls[step.index]))

    def forget_calls(self) -> None:
        """Let go of everything that `call` has unpacked: its destructors may matter, and the frames that hold the plan
        never end."""
        self.__dict__.pop("_unpacker", None)

    @property
    def unpacked_definitions(self) -> Sequence[Any]:
        """What was packed by value, once a call has needed some of it."""
        return self._unpacker.unpacked

    def record(self, step: FrozenStep) -> StepRecord:
        return StepRecord(*json.loads(self.records[step.index]))

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
    def index(self) -> bytes:
        """The part of the plan's file that says what is in it, and where the parts are: known from the beginning."""
        offset = 0
        offsets = []
        for part in self.parts():
            offsets.append([offset, len(part), zlib.crc32(part)])
            offset += len(part)
        return json.dumps(
            {
                "run": asdict(self.run),
                "steps": [_to_row(step) for step in self.steps],
                "software": [environment.to_fields() for environment in self.software],
                "warnings": self.warnings,
                "parts": offsets,
            }
        ).encode()

    def parts(self) -> list[bytes]:
        """What the plan's file holds beside the index, in this order."""
        return [self.definitions, self.sources, *self.records, *self.calls]

    @cached_property
    def digest(self) -> str:
        """Distinguishes this plan from every other one, although what is known last may still change."""
        return digest_of(self.index, self.parts())


_ROW = tuple(item.name for item in fields(FrozenStep) if item.name != "index")


_MACHINES = _ROW.index("machines")


def _to_row(step: FrozenStep) -> list[Any]:
    row = [getattr(step, name) for name in _ROW]
    if step.machines is not None:
        row[_MACHINES] = step.machines.to_fields()
    return row


def step_from_row(index: int, row: list[Any]) -> FrozenStep:
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
    if values[_MACHINES] is not None:
        values[_MACHINES] = MachineRequest.from_fields(values[_MACHINES])
    return FrozenStep(index, *values)
