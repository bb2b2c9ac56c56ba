"""A step as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marin_rules.views.markup import Content, Html, as_json, code, join, link, page, status_mark, tag
from marin_rules.views.step_facts import Reference, StepFacts

_WRITTEN_DOWN = {
    "attempt": "attempt",
    "started": "started",
    "finished": "finished",
    "user": "user",
    "git_commit": "git commit",
    "caller_path": "experiment",
    "id": "run",
}


def step_page(facts: StepFacts, overview: str | None = None) -> str:
    """Everything about one step. `overview` is the page of the experiment."""
    rows = tag("table", (tag("tr", tag("th", label), tag("td", cell)) for label, cell in _rows(facts)))
    way_back = tag("p", link("← overview", overview)) if overview else None
    troubles = [tag("p", trouble, class_="warning") for trouble in facts.troubles]
    error = tag("p", facts.error, class_="FAILED") if facts.error and facts.status == "FAILED" else None
    return page(facts.name, facts.description, way_back, troubles, error, _log(facts), rows).text


def _rows(facts: StepFacts) -> Iterator[tuple[str, Content]]:
    yield "status", status_mark(facts.status)
    if facts.error:
        yield "error", facts.error
    yield "runtime", facts.runtime
    yield "ran on", facts.place
    yield "function", code(facts.function)
    yield "output path", code(facts.output_path)
    if facts.returned is not None:
        yield "returned", as_json(facts.returned)
    yield "versioned config", as_json(facts.version)
    yield "dependencies", _references(facts.dependencies)
    if facts.dependents:
        yield "used by", tag("ul", (tag("li", link(step.name, step.page)) for step in facts.dependents))
    yield "config", as_json(facts.config)
    if facts.report_files or facts.missing_report_files:
        missing = (
            tag("li", code(name), tag("span", " is missing", class_="missing")) for name in facts.missing_report_files
        )
        yield "report files", tag("ul", (tag("li", code(name)) for name in facts.report_files), missing)
    for key, label in _WRITTEN_DOWN.items():
        if facts.run.get(key) is not None:
            yield label, str(facts.run[key])
    if facts.gpus:
        yield "GPUs", facts.gpus
    environment = facts.run.get("environment")
    if isinstance(environment, dict):
        yield "environment", code(str(environment.get("path", "")))
        if environment.get("conda_file"):
            yield "conda file", code(str(environment["conda_file"]))
        yield "packages", as_json(environment.get("packages", {}))
        if environment.get("pip_packages"):
            yield "added by pip", as_json(environment["pip_packages"])


def _references(steps: Sequence[Reference]) -> Html:
    if not steps:
        return join("none")
    return tag("ul", (tag("li", code(link(step.output_path, step.page, title=step.name))) for step in steps))


def _log(facts: StepFacts) -> Content:
    if not facts.log:
        return None
    shown = [tag("p", "The end of ", code(facts.log_path), ":"), tag("pre", "\n".join(facts.log), class_="log")]
    return shown
