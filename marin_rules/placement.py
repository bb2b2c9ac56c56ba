"""Where the steps of a plan may run, so that no data crosses regions unseen. Pure: the caller passes a function that
gives the locations of buckets.

- A step belongs to the region of the `gs://` paths in its config (its dependencies' outputs are among them) and of its
  output path. Two regions in one step that asks for machines, neither of which covers the other, are an error. A step
  beside the driver is where the driver is: it is only warned about, and what it reads is charged to its budget.
- `ResourceConfig.regions` and `zone` narrow that further.
- All steps that are connected to a TPU step through dependencies, up or down, run in one region: a TPU is where it
  is, and the data that it reads and writes should be there too.
- `mirrored()` paths are ignored, and do not connect steps: their purpose is to cross regions, within their budget.

A location that is a multi-region stands for each of its regions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from marin_rules.configs import MIRROR_SCHEME, field_names
from marin_rules.errors import PlanError
from marin_rules.geography import bucket_of, common, is_region, normalised, region_of_zone
from marin_rules.machines import resources_of
from marin_rules.plan import Plan, PlannedStep
from marin_rules.resources import ANY_REGION, ResourceConfig, TpuConfig

type Locations = tuple[str, ...]
"""Where a step may run: any of these."""

_PLAIN = frozenset({bool, int, float, type(None)})

_SHOWN = 12
"""Lines of evidence in a message; more would not help."""

_ADVICE = (
    "Use data and a prefix in one region, or wrap a path that may be copied in mirrored(path, budget_gb=...), or change"
    " the regions of the step's resources."
)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """One reason why a step has to be somewhere."""

    step: str
    where: str
    value: str
    locations: Locations

    def __str__(self) -> str:
        return f"{self.where} = {self.value} -> {' or '.join(self.locations)}"


def place(
    plan: Plan, region_of: Callable[[str], str | None], warnings: list[str] | None = None
) -> dict[int, Locations | None]:
    """For each step, by its index, the locations where it may run; None for anywhere.

    Steps that do not run themselves are not examined, and may be anywhere. `region_of` gives the location of a
    `gs://` URL, or None; it is asked once for each bucket. What is not an error but worth mentioning is added to
    `warnings`.
    """
    find = _Finder(region_of)
    found: dict[int, list[_Evidence]] = {}
    tpu_steps: list[int] = []
    for step in plan.steps:
        if not step.needed:
            continue
        resources = resources_of(step.step)
        evidence = list(find.evidence(step)) if find.mentions_bucket(step) else []
        if resources is not None:
            evidence.extend(_of_resources(step, resources))
            if isinstance(resources.device, TpuConfig):
                tpu_steps.append(step.index)
        if evidence:
            found[step.index] = evidence
    placed: dict[int, Locations | None] = dict.fromkeys(range(len(plan.steps)))
    for index, evidence in found.items():
        step = plan.steps[index]
        headline = f"step {step.name!r} is cross-region: it would move data between regions."
        try:
            placed[index] = _agreed(evidence, headline)
        except PlanError as error:
            if resources_of(step.step) is not None:
                raise
            if warnings is not None:
                warnings.append(f"{error} It runs beside the driver, so it is not refused; its reads have a budget.")
    for tpu_step, group in _groups(plan, tpu_steps):
        evidence = [item for index in group for item in found.get(index, ())]
        if evidence:
            name = plan.steps[tpu_step].name
            headline = f"cross-region: step {name!r} needs a TPU, and no region suits it and all steps connected to it."
            placed.update(dict.fromkeys(group, _one_region(_agreed(evidence, headline))))
    return placed


class _Finder:
    """Looks for `gs://` paths in configs. Parts that several configs share are searched once."""

    def __init__(self, region_of: Callable[[str], str | None]) -> None:
        self._region_of = region_of
        self._buckets: dict[str, str | None] = {}
        self._without_bucket: set[int] = set()

    def mentions_bucket(self, step: PlannedStep) -> bool:
        """Whether there is anything to find: quick, because most plans have nothing."""
        return _google(step.output_path) or self._holds_bucket(step.config)

    def evidence(self, step: PlannedStep) -> Iterator[_Evidence]:
        for where, url in _urls("config", step.config):
            # Its own output is better known by that name than by that of a field.
            if not _below(url, step.output_path) and (evidence := self._at(step, where, url)):
                yield evidence
        if evidence := self._at(step, "output path", step.output_path):
            yield evidence

    def _at(self, step: PlannedStep, where: str, url: str) -> _Evidence | None:
        bucket = bucket_of(url)
        if bucket is None:
            return None
        if bucket not in self._buckets:
            self._buckets[bucket] = self._region_of(f"gs://{bucket}")
        location = self._buckets[bucket]
        return _Evidence(step.name, where, url, (normalised(location),)) if location else None

    def _holds_bucket(self, config: Any) -> bool:
        clean = self._without_bucket
        seen: list[int] = []
        pending = [config]
        while pending:
            value = pending.pop()
            kind = type(value)
            if kind in _PLAIN:
                continue
            if kind is str or isinstance(value, str):
                if "s://" in value and _google(value):
                    return True
                continue
            if id(value) not in clean:
                seen.append(id(value))
                pending.extend(_values(value))
        # All configs live as long as the plan, so that no other object can get one of these numbers.
        clean.update(seen)
        return False


def _google(text: str) -> bool:
    return text.startswith(("gs://", "gcs://")) or "::gs://" in text or "::gcs://" in text


def _values(value: Any) -> Iterable[Any]:
    names = field_names(type(value))
    if names is not None:
        return [getattr(value, name) for name in names]
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    return ()


def _urls(where: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each `gs://` path in a config with the field that holds it. `mirror://gs://...` is none."""
    if isinstance(value, str):
        if _google(value):
            # Chained URLs of fsspec: simplecache::gs://bucket/file
            yield from ((where, part) for part in value.split("::") if _google(part))
        return
    names = field_names(type(value))
    if names is not None:
        for name in names:
            yield from _urls(f"{where}.{name}", getattr(value, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _urls(f"{where}.{key}", item)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield from _urls(f"{where}[{index}]", item)


def _of_resources(step: PlannedStep, resources: ResourceConfig) -> Iterator[_Evidence]:
    if resources.regions and ANY_REGION not in resources.regions:
        regions = tuple(normalised(region) for region in resources.regions)
        yield _Evidence(step.name, "resources.regions", repr(list(resources.regions)), regions)
    if resources.zone is not None:
        try:
            region = region_of_zone(resources.zone)
        except ValueError as error:
            raise PlanError(f"step {step.name!r}: resources.zone: {error}") from error
        yield _Evidence(step.name, "resources.zone", resources.zone, (region,))


def _agreed(evidence: Sequence[_Evidence], headline: str) -> Locations:
    """The locations that all evidence allows; a `PlanError` that shows the evidence if there are none."""
    agreed = evidence[0].locations
    for item in evidence[1:]:
        if item.locations != agreed:
            both = [common(one, other) for one in agreed for other in item.locations]
            agreed = tuple(dict.fromkeys(place for place in both if place is not None))
            if not agreed:
                raise PlanError(f"{headline}\n{_shown(evidence)}\n{_ADVICE}")
    return agreed


def _shown(evidence: Sequence[_Evidence]) -> str:
    """The first piece of evidence for each answer, with its step when there are several."""
    distinct = list({item.locations: item for item in reversed(evidence)}.values())[::-1]
    several = len({item.step for item in evidence}) > 1
    lines = [f"  step {item.step!r}: {item}" if several else f"  {item}" for item in distinct[:_SHOWN]]
    if len(distinct) > _SHOWN:
        lines.append(f"  ... and {len(distinct) - _SHOWN} more")
    return "\n".join(lines)


def _one_region(locations: Locations) -> Locations:
    """The first of several regions by their names, as Marin chooses. A multi-region stays: any place in it will do."""
    return next(((location,) for location in sorted(locations) if is_region(location)), locations)


def _groups(plan: Plan, tpu_steps: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """A TPU step, and the needed steps that are connected to it by dependencies that are not mirrored."""
    if not tpu_steps:
        return
    neighbours: dict[int, set[int]] = {step.index: set() for step in plan.steps if step.needed}
    for step in plan.steps:
        if step.needed:
            for other in _near_dependencies(plan, step):
                neighbours[step.index].add(other)
                neighbours[other].add(step.index)
    grouped: set[int] = set()
    for start in tpu_steps:
        if start in grouped:
            continue
        group: set[int] = set()
        pending = [start]
        while pending:
            index = pending.pop()
            if index not in group:
                group.add(index)
                pending.extend(neighbours[index])
        grouped |= group
        yield start, sorted(group)


def _near_dependencies(plan: Plan, step: PlannedStep) -> Iterable[int]:
    """Dependencies whose data is read where it is, and not only through `mirror://`."""
    if step.mirror_budget_gb is None:
        return step.dependencies
    texts = list(_texts(step.config))
    plain = [text for text in texts if not text.startswith(MIRROR_SCHEME)]
    mirrored = [text.removeprefix(MIRROR_SCHEME) for text in texts if text.startswith(MIRROR_SCHEME)]

    def only_mirrored(dependency: int) -> bool:
        path = plan.steps[dependency].output_path
        return any(_below(text, path) for text in mirrored) and not any(_below(text, path) for text in plain)

    return [dependency for dependency in step.dependencies if not only_mirrored(dependency)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for item in _values(value):
            yield from _texts(item)


def _below(text: str, path: str) -> bool:
    return text == path or text.startswith(os.path.join(path, ""))
