"""Hand-written rules, checked before they are used: are they valid, and does every rule that a step names exist?

Snakemake loses the line of some errors, names another file, or answers with its own stack.
"""

from __future__ import annotations

import difflib
import tokenize
from collections.abc import Collection, Sequence
from typing import Any

from snakemake.parser import parse
from snakemake.sourcecache import infer_source_file

from marin_rules.errors import PlanError, SettingsError
from marin_rules.plans.frozen import FrozenStep


def check_rule_file(path: str, workflow: Any) -> None:
    """Refuse a file of rules that Snakemake's parser or Python's does not understand, with its line."""
    lines: dict[int, int] = {}
    try:
        code, _ = parse(infer_source_file(path), workflow, linemap=lines)
    except SyntaxError as error:
        raise _invalid(path, error.lineno, error.msg) from None
    except tokenize.TokenError as error:
        raise _invalid(path, error.args[1][0], str(error.args[0])) from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"the rules in {path} are not text in UTF-8: {error}") from None
    try:
        compile(code, path, "exec")
    except SyntaxError as error:
        line = lines.get(error.lineno or 0, error.lineno)
        raise _invalid(path, line, error.msg) from None


def _invalid(path: str, line: int | None, trouble: str | None) -> SettingsError:
    where = "" if line is None else f"line {line}: "
    return SettingsError(f"the rules in {path} are not valid: {where}{' '.join(str(trouble).split())}")


def check_rules_of_steps(
    steps: Sequence[FrozenStep], rules: Collection[str], files: Sequence[str], caller: str
) -> None:
    """Refuse a step whose hand-written rule is in none of the files."""
    for step in steps:
        if step.rule is None or step.rule in rules:
            continue
        close = difflib.get_close_matches(step.rule, sorted(rules), n=1, cutoff=0.6)
        hint = f"Write it in {caller.removesuffix('.py')}.smk, or name its file: --config rules=FILE."
        if close:
            hint = f"Did you mean {close[0]!r}?"
        raise PlanError(
            f"step {step.name!r}: there is no Snakemake rule {step.rule!r} in {', '.join(files) or 'any file'}. {hint}"
        )
