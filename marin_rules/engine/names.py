"""Names that Snakemake can carry: one rule a step function, one target `<key>#<rule>` a step."""

from __future__ import annotations

import re
from collections.abc import Sequence

from marin_rules.execution.frozen import FrozenStep

SEPARATOR = "#"


def rule_names(steps: Sequence[FrozenStep], reserved: Sequence[str] = ("all",)) -> dict[str, str]:
    """Function -> rule name. A name that two functions share is lengthened by their modules, then counted."""
    functions = list(dict.fromkeys(step.function for step in steps if step.rule is None))
    taken = {step.rule for step in steps if step.rule is not None} | set(reserved)
    names: dict[str, str] = {}
    for function in functions:
        parts = [safe for part in function.split(".") if (safe := _identifier(part))] or ["step"]
        same = [other for other in functions if _identifier(other.rsplit(".", 1)[-1]) == parts[-1]]
        candidates = [parts[-1]] if len(same) == 1 else []
        candidates += ["_".join(parts[-length:]) for length in range(2, len(parts) + 1)]
        candidates += [f"{parts[-1]}_{count}" for count in range(2, len(functions) + 3)]
        names[function] = next(name for name in candidates if name not in taken)
        taken.add(names[function])
    return names


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return f"_{name}" if name[:1].isdigit() else name
