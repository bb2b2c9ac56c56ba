"""Some items of each task as rows for the report: what was asked, what was wanted, what the model said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("task", "item", "prompt", "wanted", "given", "metric", "score")
ITEMS_OF_A_TASK = 5
_LONGEST = 300
"""Characters of a text; of a prompt the last ones, which ask."""


def sample_rows(task: str, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first items of a task. What lm-eval has no text for is left empty."""
    return [_row(task, item) for item in items[:ITEMS_OF_A_TASK]]


def _row(task: str, item: Mapping[str, Any]) -> dict[str, Any]:
    metric, score = next(((name, value) for name, value in item["metrics"].items() if _is_number(value)), ("", None))
    return {
        "task": task,
        "item": item["id"],
        "prompt": _end(item["prompts"][0]) if item["prompts"] else "",
        "wanted": _shortened(_wanted(item)),
        "given": _shortened(_given(item)),
        "metric": metric,
        "score": score,
    }


def _wanted(item: Mapping[str, Any]) -> str:
    target, choices = item["target"], item["continuations"]
    if isinstance(target, str) and target.isdigit():
        target = int(target)
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(choices):
        target = choices[target]
    return str(target)


def _given(item: Mapping[str, Any]) -> str:
    """The text that was generated, or the most probable of the answers."""
    responses, choices = item["responses"], item["continuations"]
    if responses and isinstance(responses[0], str):
        return responses[0]
    if len(responses) == len(choices) > 1 and all(_is_scored(one) for one in responses):
        return str(choices[max(range(len(choices)), key=lambda number: responses[number][0])])
    return ""


def _is_scored(response: Any) -> bool:
    return isinstance(response, Sequence) and not isinstance(response, str) and bool(response)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _end(text: Any) -> str:
    text = str(text)
    return text if len(text) <= _LONGEST else f"...{text[-_LONGEST:]}"
