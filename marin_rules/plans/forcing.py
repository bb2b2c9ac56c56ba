"""Steps that a run is asked to do again, by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence

from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenPlan


def forced_steps(plan: FrozenPlan, patterns: Sequence[str], again: Collection[int] = ()) -> tuple[int, ...]:
    """The steps whose names match one of these regular expressions, among those that the run deals with; and those that
    are named by their positions.

    A pattern that matches nothing is refused: forcing a step must not end with the message that everything is done.
    """
    names = {step.index: step.name for step in plan.steps if step.needed}
    found = set(again)
    for pattern in patterns:
        try:
            search = re.compile(pattern).search
        except re.error as error:
            raise SettingsError(f"force: {pattern!r} is not a regular expression ({error}).") from error
        matched = {index for index, name in names.items() if search(name)}
        if not matched:
            close = difflib.get_close_matches(pattern, list(names.values()), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"force: {pattern!r} matches no step that this run needs.{hint}")
        found |= matched
    return tuple(sorted(found))
