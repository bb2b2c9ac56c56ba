"""The experiment as one HTML page: counts, what needs attention, the graph, sweeps, and a table of all steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_rules.clusters.prices import total
from marin_rules.units import duration
from marin_rules.views.rendering import render
from marin_rules.views.step_facts import StepFacts
from marin_rules.views.step_graph import MOST_NODES, Node, step_graph
from marin_rules.views.sweep import Cell, Sweep, Variant, sweeps

_MOST_LINES = 50
"""Of failures, and of files that are missing."""

_MOST_PICTURES = 12

_MANY_ROWS = 25
"""A sweep of more gets a window of its own to scroll in, so that what follows stays within reach."""


@dataclass(frozen=True)
class ExperimentFacts:
    """What the overview shows besides its steps."""

    title: str
    description: str | None
    caller_path: str
    prefix: str
    made: str
    """When the report was made."""


@dataclass(frozen=True)
class _SweepTable:
    """A sweep as the page shows it."""

    function: str
    fields: Sequence[tuple[str, str]]
    """Names of columns, and whether each is sorted as `number` or as `text`."""

    numbers: Sequence[str]
    rows: Sequence[tuple[StepFacts, Sequence[Cell], Sequence[Cell]]]
    left_out: int


def overview_page(experiment: ExperimentFacts, steps: Sequence[StepFacts]) -> str:
    return render(
        "overview.html",
        description=experiment.description,
        experiment=experiment,
        steps=steps,
        counts=counts(steps),
        total_runtime=total_runtime(steps),
        total_cost=total_cost(steps),
        failed=[step for step in steps if step.status == "FAILED"],
        missing=[(step, name) for step in steps for name in step.missing_report_files],
        troubles=[(step, text) for step in steps for text in step.troubles],
        drawing=step_graph({step.index: _node(step) for step in steps}),
        # The results of an experiment are in its last steps.
        pictures=[(step, one) for step in reversed(steps) for one in step.pictures],
        sweeps=_sweeps(steps),
        most_lines=_MOST_LINES,
        most_pictures=_MOST_PICTURES,
        most_nodes=MOST_NODES,
        many_rows=_MANY_ROWS,
    )


def counts(steps: Sequence[StepFacts]) -> dict[str, int]:
    """Statuses, the most frequent first."""
    return dict(Counter(step.status for step in steps).most_common())


def total_runtime(steps: Sequence[StepFacts]) -> str:
    return duration(sum(step.seconds or 0.0 for step in steps))


def total_cost(steps: Sequence[StepFacts]) -> str:
    """The cost of the steps for which it is known; empty if there are none."""
    costs = [step.cost for step in steps if step.cost is not None]
    whole = total(costs)
    return "" if whole is None else f"{whole} for {len(costs)} {'step' if len(costs) == 1 else 'steps'}"


def _node(step: StepFacts) -> Node:
    above = [other.index for other in step.dependencies]
    return Node(step.name, step.function.rpartition(".")[2], step.status, step.page, above)


def _sweeps(steps: Sequence[StepFacts]) -> list[_SweepTable]:
    by_index = {step.index: step for step in steps}
    variants = [Variant(step.index, step.function, step.config, step.returned, _paths(step)) for step in steps]
    return [_sweep_table(sweep, by_index) for sweep in sweeps(variants)]


def _paths(step: StepFacts) -> frozenset[str]:
    return frozenset({step.output_path, *(other.output_path for other in step.dependencies)})


def _sweep_table(sweep: Sweep, steps: Mapping[int, StepFacts]) -> _SweepTable:
    columns = zip(*(given for _, given, _ in sweep.rows), strict=True)
    return _SweepTable(
        function=sweep.function.rpartition(".")[2],
        fields=[(name, _order(cells)) for name, cells in zip(sweep.fields, columns, strict=True)],
        numbers=sweep.numbers,
        rows=[(steps[index], given, returned) for index, given, returned in sweep.rows],
        left_out=sweep.left_out,
    )


def _order(cells: Sequence[Cell]) -> str:
    """Whether a column is sorted as numbers or as text."""
    return "number" if all(cell is None or isinstance(cell, int | float) for cell in cells) else "text"
