"""A step as an HTML page."""

from __future__ import annotations

from marin_rules.views.rendering import render
from marin_rules.views.step_facts import StepFacts

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
    environment = facts.run.get("environment")
    written_down = [(label, facts.run[key]) for key, label in _WRITTEN_DOWN.items() if facts.run.get(key) is not None]
    return render(
        "step.html",
        description=facts.description,
        facts=facts,
        overview=overview,
        written_down=written_down,
        environment=environment if isinstance(environment, dict) else None,
    )
