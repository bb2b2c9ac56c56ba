"""The plan: every step of an experiment with its path, resolved config and dependencies. Pure: no I/O.

Identity accepts whatever Marin accepts. A plan is what will really run, so it is stricter: what would be
silently wrong in a run (two versions on one path, a reference that can never be resolved, a path that leaves
the prefix) is refused here, by the name of the step, before anything starts. No path is ever changed.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from marin_rules.configs import resolve_config
from marin_rules.errors import PlanError
from marin_rules.functions import function_name
from marin_rules.identity import Identity, IdentityGraph, Step
from marin_rules.placeholders import InputName
from marin_rules.refusals import StepChecks, check_length, check_steps
from marin_rules.steps import ExecutorStep, get_executor_step
from marin_rules.twins import twins_warning

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PlannedStep:
    """One step as it will run. Never changed; not frozen, because frozen objects are slow to create."""

    index: int
    """Position in `Plan.steps`; dependencies come before their dependents."""

    step: Step
    identity: Identity
    output_path: str
    config: Any
    """The config with every placeholder resolved."""

    dependencies: tuple[int, ...]
    """Steps that must be done before this one, each once."""

    mentions: tuple[int, ...]
    """Dependencies as the config mentions them, repeats included: their order is part of the version."""

    pseudo_mentions: tuple[int, ...]
    """Steps that only count in the version, as the config mentions them."""

    needed: bool
    """False for a step that only counts in versions (a non-blocking reference): the plan does not run it."""

    mirror_budget_gb: float | None

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def digest(self) -> str:
        """Distinguishes the step's data from that of every other step: the version's digest, or a StepSpec's own."""
        return self.identity.digest if self.step.spec is None else self.step.spec.identity.digest

    @property
    def label(self) -> str:
        """`<name>-<hash>`, or a StepSpec's `<name>_<hash>`: the end of the output path, unless that is overridden."""
        return self.identity.name_and_hash if self.step.spec is None else self.step.spec.identity.name_with_hash

    @property
    def function_name(self) -> str:
        """`module.function`, without addresses: the same in every run."""
        return function_name(self.step.fn)


@dataclass(frozen=True, eq=False)
class Plan:
    """All steps of an experiment, dependencies first."""

    prefix: str
    steps: tuple[PlannedStep, ...]
    roots: tuple[int, ...]
    """The steps that were asked for: those named, or with `run_only` those that match."""

    warnings: tuple[str, ...] = ()


def make_plan(
    steps: Iterable[ExecutorStep[Any] | InputName],
    *,
    prefix: str,
    run_only: Sequence[str] | None = None,
    graph: IdentityGraph | None = None,
) -> Plan:
    """Plan `steps` and all they depend on, or with `run_only` (regular expressions) only what matches.

    `graph` is an empty one, to be filled with the identities of all steps, those of twins among them.
    """
    with _without_garbage_collection():
        return _make_plan(steps, prefix, run_only, IdentityGraph() if graph is None else graph)


def narrowed(plan: Plan, roots: Sequence[int]) -> Plan:
    """The same plan, asked for these steps alone."""
    needed = _reachable(roots, [step.dependencies for step in plan.steps])
    steps = tuple(replace(step, needed=step.index in needed) for step in plan.steps)
    return replace(plan, steps=steps, roots=tuple(roots))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Everything that planning makes stays alive: a garbage collector would scan more and more of it and find
    nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _make_plan(
    steps: Iterable[ExecutorStep[Any] | InputName], prefix: str, run_only: Sequence[str] | None, graph: IdentityGraph
) -> Plan:
    roots = [get_executor_step(step) for step in check_steps(steps)]
    ordered = [step for root in roots for step in graph.add(root)]
    checks = StepChecks()
    for step in ordered:
        checks.check(step)
    warnings: list[str] = []
    canonical = _one_step_a_version(graph, ordered, prefix, warnings)

    unique = list(dict.fromkeys(canonical[step] for step in ordered))
    position = {step: index for index, step in enumerate(unique)}
    paths = {step: graph.identities[step].output_path(prefix, canonical[step].override_output_path) for step in ordered}
    mentions, pseudo_mentions = (
        [tuple(position[canonical[mentioned]] for mentioned in getattr(graph.collected[step], kind)) for step in unique]
        for kind in ("dependencies", "pseudo_dependencies")
    )
    dependencies = [tuple(dict.fromkeys(mentioned)) for mentioned in mentions]
    if run_only is None:
        asked = list(dict.fromkeys(position[canonical[root]] for root in roots))
    else:
        asked = _matching([step.name for step in unique], run_only, warnings)
    needed = _reachable(asked, dependencies)

    planned = []
    for index, step in enumerate(unique):
        checks.check_config(step, graph.collected[step])
        check_length(step, paths[step])
        config, mirror_budget_gb = _resolved(step, paths, prefix)
        planned.append(
            PlannedStep(
                index=index,
                step=step,
                identity=graph.identities[step],
                output_path=paths[step],
                config=config,
                dependencies=dependencies[index],
                mentions=mentions[index],
                pseudo_mentions=pseudo_mentions[index],
                needed=index in needed,
                mirror_budget_gb=mirror_budget_gb,
            )
        )
    _check_collisions(planned)
    return Plan(prefix=prefix, steps=tuple(planned), roots=tuple(asked), warnings=(*warnings, *checks.warnings))


def _one_step_a_version(
    graph: IdentityGraph, ordered: Sequence[Step], prefix: str, warnings: list[str]
) -> dict[Step, Step]:
    """For each step the first one of the same version; twins must agree on where they write.

    StepSpecs are one if they are the same in the same place: a team may write one to several prefixes.
    """
    first: dict[str | tuple[str, str], Step] = {}
    twins: dict[Step, list[Step]] = {}
    canonical: dict[Step, Step] = {}
    for step in ordered:
        key: str | tuple[str, str] = graph.identities[step].digest
        if step.spec is not None:
            place = graph.identities[step].output_path(prefix, step.override_output_path)
            key = (step.spec.identity.digest, _same_path(place))
        twin = canonical[step] = first.setdefault(key, step)
        if twin is step:
            continue
        twins.setdefault(twin, [twin]).append(step)
        mine, other = (graph.identities[s].output_path(prefix, s.override_output_path) for s in (step, twin))
        if _same_path(mine) != _same_path(other):
            raise PlanError(
                f"step {step.name!r} appears in the experiment twice with the same version but different output paths,"
                f" {other} and {mine}: only one would be written. Give both the same override_output_path, or build"
                " the step once and share it."
            )
        if function_name(step.fn) != function_name(twin.fn):
            logger.warning(
                "two steps named %s have the same version but different functions, %s and %s: the first is used",
                step.name, function_name(twin.fn), function_name(step.fn),
            )  # fmt: skip
    for twin, alike in twins.items():
        warning = twins_warning(alike, graph.identities[twin].name_and_hash)
        if warning is not None:
            warnings.append(warning)
    return canonical


def _matching(names: Sequence[str], patterns: Sequence[str], warnings: list[str]) -> list[int]:
    matched: set[int] = set()
    for pattern in patterns:
        try:
            search = re.compile(pattern).search
        except re.error as error:
            raise PlanError(
                f"run_only: {pattern!r} is not a regular expression ({error}). Step names are searched for it;"
                " write it as in Python's re module, for example '^tokenized/'."
            ) from error
        found = {index for index, name in enumerate(names) if search(name)}
        if not found:
            warnings.append(f"run_only: {pattern!r} matches no step")
        matched |= found
    return sorted(matched)


def _reachable(roots: Iterable[int], dependencies: Sequence[Sequence[int]]) -> set[int]:
    reached: set[int] = set()
    pending = list(roots)
    while pending:
        index = pending.pop()
        if index not in reached:
            reached.add(index)
            pending.extend(dependencies[index])
    return reached


def _resolved(step: Step, paths: dict[Step, str], prefix: str) -> tuple[Any, float | None]:
    try:
        return resolve_config(step.config, paths[step], paths, prefix)
    except Exception as error:
        raise PlanError(f"step {step.name!r}: its config cannot be resolved: {error}") from error


def _check_collisions(planned: Sequence[PlannedStep]) -> None:
    taken: dict[str, PlannedStep] = {}
    for step in planned:
        other = taken.setdefault(_same_path(step.output_path), step)
        if other is not step:
            raise PlanError(collision(other, step))


def collision(one: PlannedStep, two: PlannedStep) -> str:
    """The message about two steps that would write to one place."""
    same = one.output_path == two.output_path
    where = two.output_path if same else f"{one.output_path}, which is also {two.output_path}"
    return (
        f"two versions share the output path {where}: step {one.name!r} ({one.digest}) and step"
        f" {two.name!r} ({two.digest}). The second would never run. Rename one of them, or give it an"
        " override_output_path of its own."
    )


def _same_path(path: str) -> str:
    """Paths that are spelt differently but name one place, links apart: `x`, `x/`, `./x`, `y/../x`."""
    return os.path.normpath(path)
