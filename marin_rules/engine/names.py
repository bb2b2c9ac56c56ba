"""Names that Snakemake can carry: one rule a step function, one target a step.

Rule names may hold letters, digits and underscores only. A target is `<key>#<rule>`, where the key is the step's
`<name>-<hash>` with the characters escaped that mean something to Snakemake, to a shell or to a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from marin_rules.execution.frozen import FrozenStep

_SAFE = "/-_.~+=@,"
SEPARATOR = "#"


def rule_names(steps: Iterable[FrozenStep], reserved: Iterable[str] = ("all",)) -> dict[str, str]:
    """Function -> rule name. A name that two functions share is lengthened by their modules, then counted."""
    functions = list(dict.fromkeys(step.function for step in steps if step.rule is None))
    taken = {step.rule for step in steps if step.rule is not None} | set(reserved)
    names: dict[str, str] = {}
    for function in functions:
        parts = [safe for part in function.split(".") if (safe := _identifier(part))]
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


def step_keys(steps: Sequence[FrozenStep]) -> list[str]:
    """A key for each step, unique in the plan and the same in every run."""
    keys: list[str] = []
    taken: set[str] = set()
    for step in steps:
        key = _escaped(f"{step.name}-{step.hash}")
        if key in taken:
            key = _escaped(f"{step.name}-{step.digest}")
        taken.add(key)
        keys.append(key)
    return keys


def _escaped(text: str) -> str:
    # A path library would fold empty and dotted parts together, so then no slash stays a slash.
    foldable = any(part in ("", ".", "..") for part in text.split("/"))
    return quote(text, safe=_SAFE.replace("/", "") if foldable else _SAFE)
