"""The experiment as one HTML page: counts, what needs attention, the graph, sweeps, and a table of all steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_rules.units import duration
from marin_rules.views.closing import last_line
from marin_rules.views.markup import Content, Html, code, link, page, status_mark, tag
from marin_rules.views.step_facts import StepFacts
from marin_rules.views.step_graph import Node, step_graph
from marin_rules.views.sweep import Cell, Sweep, Variant, as_written, sweeps

_MOST_LINES = 50
"""Of failures, and of files that are missing."""

_MANY_ROWS = 25
"""A sweep of more gets a window of its own to scroll in, so that what follows stays within reach."""

_COLUMNS = {
    "step": "text",
    "status": "text",
    "runtime": "number",
    "finished": "text",
    "ran on": "text",
    "function": "text",
    "output path": "text",
}


@dataclass(frozen=True)
class ExperimentFacts:
    """What the overview tells beside its steps."""

    title: str
    description: str | None
    caller_path: str
    prefix: str
    made: str
    """When the report was made."""


def overview_page(experiment: ExperimentFacts, steps: Sequence[StepFacts]) -> str:
    return page(
        experiment.title,
        experiment.description,
        _counts(steps),
        _origin(experiment),
        _section("Failures", [_failure(step) for step in steps if step.status == "FAILED"]),
        _section("Missing report files", [line for step in steps for line in _missing(step)]),
        _section("Could not be read", [tag("li", _step(step), ": ", text) for step in steps for text in step.troubles]),
        [tag("h2", "Graph"), step_graph({step.index: _node(step) for step in steps})] if steps else None,
        _sweeps(steps),
        tag("h2", "Steps"),
        _table(steps),
    ).text


def _origin(experiment: ExperimentFacts) -> Html:
    made = f", as of {_moment(experiment.made)}"
    names = ("Experiment ", code(experiment.caller_path), ", prefix ", code(experiment.prefix), made)
    return tag("p", *names, class_="description")


def counts(steps: Sequence[StepFacts]) -> dict[str, int]:
    """Statuses, the most frequent first."""
    return dict(Counter(step.status for step in steps).most_common())


def total_runtime(steps: Sequence[StepFacts]) -> str:
    return duration(sum(step.seconds or 0.0 for step in steps))


def _counts(steps: Sequence[StepFacts]) -> Html:
    total = f"{len(steps)} {'step' if len(steps) == 1 else 'steps'}"
    marks = [tag("span", f"{count} ", status_mark(status)) for status, count in counts(steps).items()]
    return tag("div", tag("span", total), marks, tag("span", f"{total_runtime(steps)} in all"), class_="counts")


def _section(title: str, lines: Sequence[Html]) -> Content:
    if not lines:
        return None
    rest = len(lines) - _MOST_LINES
    more = tag("li", f"... and {rest} more") if rest > 0 else None
    return [tag("h2", title), tag("ul", lines[:_MOST_LINES], more)]


def _step(step: StepFacts) -> Html:
    return link(step.name, step.page)


def _failure(step: StepFacts) -> Html:
    return tag("li", _step(step), " ", tag("span", last_line(step.error), class_="FAILED"))


def _missing(step: StepFacts) -> list[Html]:
    return [
        tag("li", _step(step), " declares ", code(name), ", which is not there") for name in step.missing_report_files
    ]


def _node(step: StepFacts) -> Node:
    above = [other.index for other in step.dependencies]
    return Node(step.name, step.function.rpartition(".")[2], step.status, step.page, above)


def _table(steps: Sequence[StepFacts]) -> Html:
    head = tag("tr", (tag("th", label, data_sort=kind) for label, kind in _COLUMNS.items()))
    body = (
        tag(
            "tr",
            tag("td", _step(step)),
            tag("td", status_mark(step.status)),
            tag("td", step.runtime, class_="nowrap", data_value="" if step.seconds is None else step.seconds),
            tag("td", _moment(step.finished), class_="nowrap", data_value=step.finished),
            tag("td", step.place),
            tag("td", code(step.function)),
            tag("td", code(step.output_path), class_="path"),
        )
        for step in steps
    )
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll")


def _moment(written: str) -> str:
    """`2026-11-17T21:20:14+01:00` without the offset."""
    return written[:19].replace("T", " ")


def _sweeps(steps: Sequence[StepFacts]) -> Content:
    by_index = {step.index: step for step in steps}
    variants = [Variant(step.index, step.function, step.config, step.returned, _paths(step)) for step in steps]
    return [_sweep(sweep, by_index) for sweep in sweeps(variants)]


def _paths(step: StepFacts) -> frozenset[str]:
    return frozenset({step.output_path, *(other.output_path for other in step.dependencies)})


def _sweep(sweep: Sweep, steps: Mapping[int, StepFacts]) -> Content:
    columns = zip(*(given for _, given, _ in sweep.rows), strict=True)
    fields = (tag("th", name, data_sort=_order(cells)) for name, cells in zip(sweep.fields, columns, strict=True))
    numbers = (tag("th", name, data_sort="number", class_="number") for name in sweep.numbers)
    body = (
        tag(
            "tr",
            tag("td", _step(steps[index])),
            (tag("td", as_written(cell), data_value=_sortable(cell)) for cell in given),
            (tag("td", as_written(cell), class_="number", data_value=_sortable(cell)) for cell in returned),
        )
        for index, given, returned in sweep.rows
    )
    table = tag(
        "table", tag("thead", tag("tr", tag("th", "step", data_sort="text"), fields, numbers)), tag("tbody", body)
    )
    cut = tag("p", f"{sweep.left_out} more columns are left out.") if sweep.left_out else None
    title = f"Sweep of {sweep.function.rpartition('.')[2]}"
    about = tag("p", "Config fields that differ, and the numbers that the steps returned.", class_="description")
    kind = "scroll long" if len(sweep.rows) > _MANY_ROWS else "scroll"
    return [tag("h2", title), about, tag("div", table, class_=kind), cut]


def _order(cells: Sequence[Cell]) -> str:
    """Whether a column is sorted as numbers or as text."""
    return "number" if all(cell is None or isinstance(cell, int | float) for cell in cells) else "text"


def _sortable(value: Cell) -> str:
    """What a cell is sorted by; nothing comes last, and what is not a number with it."""
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None or value != value else str(value)
