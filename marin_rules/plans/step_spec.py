"""StepSpec: a step that states what to hash and where its inputs are, instead of having them found in a config.

    raw = StepSpec(name="raw/wiki", hash_attrs={"dump": "20260601"}, fn=lambda path: download(path, "20260601"))
    clean = StepSpec(name="clean/wiki", deps=[raw], fn=lambda path: clean_pages(raw.output_path, path))

Its fields, identity (see `marin_rules.spec_identity`) and paths are Marin's. A plan knows it as an ExecutorStep, so
both kinds belong to one DAG: in `executor_main(steps=[...])`, or in a config through `as_executor_step()`. An output
path without a prefix of its own is below `marin_prefix()`, as in Marin: functions are given it before there is a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from marin_rules.configs import is_relative
from marin_rules.errors import PlanError
from marin_rules.functions import OnOutputPath
from marin_rules.placeholders import THIS_OUTPUT_PATH, VersionedValue
from marin_rules.remote import RemoteCallable
from marin_rules.resources import ResourceConfig
from marin_rules.spec_identity import SpecIdentity, identify_spec
from marin_rules.steps import ExecutorStep
from marin_rules.storage.prefix import marin_prefix


@dataclass(frozen=True)
class SpecConfig:
    """The config of the ExecutorStep that stands for a StepSpec: Marin's, since its fields are in the version."""

    output_path: Any
    attrs: Any
    deps: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class StepSpec:
    """One node of an experiment: a name, what its identity covers, and a function of its output path."""

    name: str
    """What the step is called, and the start of its output path; slashes make folders."""

    output_path_prefix: str | None = None
    """Where the step is stored; None for `marin_prefix()`."""

    deps: Sequence[StepSpec] = field(default_factory=list)
    """Steps that must be done first. Their names and hashes are part of the identity, in any order."""

    hash_attrs: dict[str, Any] = field(default_factory=dict)
    """What else is part of the identity: data that JSON can hold."""

    override_output_path: str | None = None
    """Use this output path instead of `<prefix>/<name>_<hash>`; a relative one is taken below the prefix."""

    fn: Callable[[str], Any] | None = None
    """Called with the output path. May be marked with `remote()`."""

    resources: ResourceConfig | None = None
    """What the step needs to run; wins over what `remote()` gives its function. Either makes the step remote."""

    @cached_property
    def identity(self) -> SpecIdentity:
        """What the step is, apart from where it is stored."""
        for spec in _dependencies_first(self, known=lambda spec: "identity" in spec.__dict__):
            if spec is not self:
                _ = spec.identity  # Kept by each, so that a long chain needs no deep stack.
        return identify_spec(self.name, self.hash_attrs, self.dep_names)

    @property
    def hash_id(self) -> str:
        """The digits in the output path."""
        return self.identity.hash_id

    @property
    def name_with_hash(self) -> str:
        return self.identity.name_with_hash

    @property
    def dep_names(self) -> list[str]:
        """`<name>_<hash>` of each dependency."""
        return [dependency.name_with_hash for dependency in self.deps]

    @property
    def dep_paths(self) -> list[str]:
        """The output path of each dependency."""
        return [dependency.output_path for dependency in self.deps]

    @cached_property
    def output_path(self) -> str:
        """Where the step is stored. Decided on first use: later changes of MARIN_PREFIX do not move it."""
        override = self.override_output_path
        if override is not None and not is_relative(override):
            return override
        # Marin does not join: below a prefix that ends with a slash, its paths have two.
        return f"{self.output_path_prefix or marin_prefix()}/{self.name_with_hash if override is None else override}"

    @property
    def is_below_default_prefix(self) -> bool:
        """Whether `marin_prefix()` decides where the step is stored."""
        override = self.override_output_path
        return self.output_path_prefix is None and (override is None or is_relative(override))

    def __getstate__(self) -> dict[str, Any]:
        """For functions that take a StepSpec along: its path stays what it is here."""
        return {name: value for name, value in self.__dict__.items() if name != "_executor_step"} | {
            "output_path": self.output_path
        }

    def as_executor_step(self) -> ExecutorStep[SpecConfig]:
        """The same step for `executor_main`, `Executor` and the configs of ExecutorSteps; the same object each time."""
        return self._executor_step

    @cached_property
    def _executor_step(self) -> ExecutorStep[SpecConfig]:
        for spec in _dependencies_first(self, known=lambda spec: "_executor_step" in spec.__dict__):
            if spec is not self:
                _ = spec._executor_step
        path = self.output_path
        return ExecutorStep(
            name=self.name,
            fn=_on_output_path(self.fn),
            config=SpecConfig(
                output_path=THIS_OUTPUT_PATH,
                attrs=VersionedValue(self.hash_attrs),
                deps=[dependency.as_executor_step() for dependency in self.deps],
            ),
            # A relative one would be joined to the prefix of the run, which need not be this one.
            override_output_path=os.path.abspath(path) if is_relative(path) else path,
            resources=self.resources,
            spec=self,
        )


def resolve_executor_step(
    step: ExecutorStep[Any], config: Any, output_path: str, deps: Sequence[StepSpec] | None = None
) -> StepSpec:
    """A step as a StepSpec with this path: the one that it stands for, or one that calls its function with `config`."""
    if isinstance(step.spec, StepSpec):
        original = step.spec
        return replace(original, deps=list(deps or original.deps), override_output_path=original.output_path)
    fn: Callable[[str], Any] | None = step.fn
    if isinstance(fn, RemoteCallable):
        fn = replace(fn, fn=_WithConfig(fn.fn, config))
    elif fn is not None:
        fn = _WithConfig(fn, config)
    return StepSpec(
        name=step.name, deps=list(deps or ()), override_output_path=output_path, fn=fn, resources=step.resources
    )


@dataclass(frozen=True)
class _WithConfig:
    """The function of an ExecutorStep, which knows its output path from its config."""

    fn: Callable[[Any], Any]
    config: Any

    def __call__(self, output_path: str) -> Any:
        return self.fn(self.config)


def _on_output_path(fn: Callable[[str], Any] | None) -> Callable[[Any], Any] | None:
    if fn is None:
        return None
    if isinstance(fn, RemoteCallable):
        return replace(fn, fn=OnOutputPath(fn.fn))
    return OnOutputPath(fn)


def _dependencies_first(root: StepSpec, known: Callable[[StepSpec], bool]) -> list[StepSpec]:
    """`root` and everything that it depends on, except what is already known. Walked with a stack, never by
    recursion."""
    ordered: list[StepSpec] = []
    done: set[int] = set()
    path: dict[int, StepSpec] = {}
    pending = [root]
    while pending:
        spec = pending[-1]
        if id(spec) in path or id(spec) in done or known(spec):
            pending.pop()
            if path.pop(id(spec), None) is not None:
                done.add(id(spec))
                ordered.append(spec)
            continue
        path[id(spec)] = spec
        _check_dependencies(spec)
        if any(id(dependency) in path for dependency in spec.deps):
            raise PlanError(f"the StepSpecs depend on each other in a circle: {[item.name for item in path.values()]}")
        pending.extend(reversed(spec.deps))
    return ordered


def _check_dependencies(spec: StepSpec) -> None:
    for dependency in spec.deps:
        if not isinstance(dependency, StepSpec):
            raise TypeError(
                f"StepSpec {spec.name!r}: deps must be StepSpecs, and has {dependency!r}. What depends on an"
                " ExecutorStep is an ExecutorStep, with that one in its config; a path that no step makes goes into"
                " hash_attrs."
            )
