"""Names that Snakemake can handle: one rule per step function, one target `<key>#<rule>` per step.

A function that has steps which run beside the driver and steps which ask for machines of their own has two rules, since
Snakemake decides by rule what is sent away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenStep

SEPARATOR = "#"


_HERE_SUFFIX = "_here"

type Kind = tuple[str, bool]
"""A step function, and whether its steps ask for machines of their own."""


def kind_of(step: FrozenStep) -> Kind:
    return step.function, step.machines is not None


def rule_names(steps: Sequence[FrozenStep], reserved: Sequence[str] = ("all",)) -> dict[Kind, str]:
    """The rule of each kind of step. Where a function has both, the rule that stays here says so in its name."""
    kinds = list(dict.fromkeys(kind_of(step) for step in steps if step.rule is None))
    names = _function_names([function for function, _ in kinds], steps, reserved)
    taken = {*names.values(), *(step.rule for step in steps if step.rule is not None), *reserved}
    rules: dict[Kind, str] = {}
    for function, is_remote in kinds:
        name = names[function]
        if not is_remote and (function, True) in kinds:
            name += _HERE_SUFFIX
            while name in taken:
                name += "_"
            taken.add(name)
        rules[function, is_remote] = name
    return rules


def _function_names(
    all_functions: Sequence[str], steps: Sequence[FrozenStep], reserved: Sequence[str]
) -> dict[str, str]:
    """Function -> name. A name that two functions share is lengthened by their modules, then counted."""
    functions = list(dict.fromkeys(all_functions))
    taken = {step.rule for step in steps if step.rule is not None} | set(reserved)
    names: dict[str, str] = {}
    for function in functions:
        parts = [safe for part in _telling(function).split(".") if (safe := _identifier(part))] or ["step"]
        same = [other for other in functions if _identifier(_telling(other).rsplit(".", 1)[-1]) == parts[-1]]
        candidates = [parts[-1]] if len(same) <= 1 else []  # None: nothing is left of its own name.
        candidates += ["_".join(parts[-length:]) for length in range(2, len(parts) + 1)]
        candidates += [f"{parts[-1]}_{count}" for count in range(2, len(functions) + 3)]
        names[function] = next(name for name in candidates if name not in taken)
        taken.add(names[function])
    return names


def _telling(function: str) -> str:
    """A lambda made by a function is named after that function: `tokenize_step.<locals>.<lambda>` says little."""
    return function.removesuffix(".<locals>.<lambda>")


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def check_rule_names(
    named: Mapping[str, Collection[str]], steps: Sequence[FrozenStep], rule_of: Callable[[FrozenStep], str]
) -> None:
    """Refuse a step where Snakemake wants a rule; `named` says what was written after which flag."""
    rules = {rule_of(step) for step in steps}
    for flag, names in named.items():
        for name in sorted(set(names) - rules):
            step = next((step for step in steps if name in (step.name, step.key, step.output_path)), None)
            if step is not None:
                rule = rule_of(step)
                again = f" To run it again: `--config force='^{re.escape(step.name)}$'`." if flag == "-R" else ""
                raise SettingsError(
                    f"{flag} takes rules, and {name} is a step.{again} The rule {rule}, which runs it, stands for all"
                    f" its steps: `{flag} {rule}`."
                )


def check_targets(targets: Collection[str], steps: Sequence[FrozenStep], rule_of: Callable[[FrozenStep], str]) -> None:
    """Refuse a step, or the rule of steps, among the targets on the command line: Snakemake would not find such a
    file."""
    for target in sorted(set(targets) - {"all"}):
        step = next((step for step in steps if target in (step.name, step.key, step.output_path)), None)
        if step is not None:
            raise SettingsError(
                f"{target} is a step, and Snakemake wants a target. To run it and what it needs:"
                f" `--config run_only='^{re.escape(step.name)}$'`."
            )
        if any(rule_of(step) == target for step in steps):
            raise SettingsError(
                f"{target} is the rule of steps, and Snakemake wants a target. To run steps and what they need:"
                " `--config run_only=REGEX`, with their names."
            )
