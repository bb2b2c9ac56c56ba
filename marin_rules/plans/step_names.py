"""Which steps a person means by a name, `<name>-<hash>`, an output path or a regular expression."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from marin_rules.errors import SettingsError
from marin_rules.plan import Plan
from marin_rules.plans.run import absolute


class NamedStep(Protocol):
    """Anything with the name and the output path of a step."""

    @property
    def name(self) -> str: ...

    @property
    def output_path(self) -> str: ...


def matching[StepT: NamedStep](steps: Iterable[StepT], text: str, prefix: str) -> list[StepT]:
    """The steps that a text may mean: by name, `<name>-<hash>` or path, or else as a regular expression for names."""
    steps = list(steps)
    root = absolute(prefix, os.getcwd()) + "/"
    path = absolute(text, os.getcwd())
    exact = [
        step for step in steps if text in (step.name, _absolute(step).removeprefix(root)) or path == _absolute(step)
    ]
    if exact:
        return exact
    try:
        search = re.compile(text).search
    except re.error:
        return []
    return [step for step in steps if search(step.name)]


def indices(plan: Plan, texts: Iterable[str]) -> list[int]:
    """The positions of the steps that these texts mean."""
    return sorted({step.index for text in texts for step in matching(plan.steps, text, plan.prefix)})


def check_asked_steps(plan: Plan, texts: Sequence[str], experiment: str) -> None:
    """Refuse a plan that lacks one of these steps.

    `run_only` only warns of an expression that matches nothing, as Marin does. Naming one step must not end with the
    message that everything is done because there is no such step, or because another version of it is done.
    """
    for text in texts:
        if not matching(plan.steps, text, plan.prefix):
            raise SettingsError(f"{experiment} has no step {text!r}.{_hint(plan, text)}")


def _hint(plan: Plan, text: str) -> str:
    root = absolute(plan.prefix, os.getcwd()) + "/"
    spellings = (text, absolute(text, os.getcwd()).removeprefix(root))
    names = {name for spelling in spellings if (name := name_of_label(spelling)) is not None}
    versions = [_absolute(step).removeprefix(root) for step in plan.steps if step.name in names]
    if versions:
        return f" As the file is now, the step has another version: {', '.join(versions)}."
    close = difflib.get_close_matches(text, [step.name for step in plan.steps], n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    return " If another experiment has it, name that with --experiment FILE."


def name_of_label(text: str) -> str | None:
    """The step that `<name>-<hash>`, or a StepSpec's `<name>_<hash>`, is a version of; None for any other text."""
    found = re.fullmatch(r"(.+)(?:-[0-9a-f]{6}|_[0-9a-f]{8})", text)
    return None if found is None else found[1]


def _absolute(step: NamedStep) -> str:
    return absolute(step.output_path, os.getcwd())
