"""The step that `marin-rules run STEP` asks for: an experiment without it is refused.

`run_only` only warns of an expression that matches nothing, as Marin does. Whoever names one step does not want to
hear that all is done because there is no such step, nor that another version of it is.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence

from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenPlan, absolute
from marin_rules.state.written_steps import WrittenStep, matching


def check_asked_steps(plan: FrozenPlan, texts: Sequence[str], prefix: str) -> None:
    """Refuse a plan that lacks one of these steps: names, `<name>-<hash>`, output paths or regular expressions."""
    steps = [WrittenStep(step.name, absolute(step.output_path, os.getcwd())) for step in plan.steps]
    for text in texts:
        if not matching(steps, text, prefix):
            raise SettingsError(f"{plan.run.caller_path} has no step {text!r}.{_hint(steps, text, prefix)}")


def _hint(steps: Sequence[WrittenStep], text: str, prefix: str) -> str:
    root = absolute(prefix, os.getcwd()) + "/"
    spellings = (text, absolute(text, os.getcwd()).removeprefix(root))
    names = {found[1] for spelling in spellings if (found := re.fullmatch(r"(.+)-[0-9a-f]{6}", spelling))}
    versions = [step.output_path.removeprefix(root) for step in steps if step.name in names]
    if versions:
        return f" As the file is now, the step has another version: {', '.join(versions)}."
    close = difflib.get_close_matches(text, [step.name for step in steps], n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    return " If another experiment has it, name that with --experiment FILE."
