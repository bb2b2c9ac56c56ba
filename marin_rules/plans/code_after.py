"""Code of an experiment file that follows `executor_main` or `StepRunner().run`.

`python x.py` runs it when the steps are done. Under Snakemake the whole file is executed first, to learn its steps,
and that code runs before any of them. The file is not cut off there: it may call `executor_main` several times, in
functions and `try` blocks, and code that relies on the end of the file (to close something, say) would not run. So it
is reported instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_DOOR = "executor_main"
_RUNNER = "StepRunner"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def line_after_executor_main(source: str | bytes) -> int | None:
    """The line of the first statement that follows a call of `executor_main` and is not another such call."""
    found = [line for line in _following(ast.parse(source).body, None) if line is not None]
    return min(found, default=None)


def _following(block: Sequence[ast.stmt], outer: int | None) -> Iterator[int | None]:
    """For each call in a block the next statement: of the block itself, or else (`outer`) of the one around it."""
    for position, statement in enumerate(block):
        rest = (later for later in block[position + 1 :] if not _is_call(later) and not _is_definition(later))
        following = next((later.lineno for later in rest), outer)
        if _is_call(statement):
            yield following
        around = None if isinstance(statement, _FUNCTIONS) else following
        last = getattr(statement, "finalbody", None)
        within = last[0].lineno if last else around
        for handler in getattr(statement, "handlers", []):
            yield from _following(handler.body, within)
        for name, next_line in (("body", within), ("orelse", within), ("finalbody", around)):
            yield from _following(getattr(statement, name, None) or [], next_line)


def _is_call(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    if isinstance(called, ast.Attribute) and called.attr == "__wrapped__":
        called = called.value
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Call):
        return called.attr == "run" and _last_name(called.value.func) == _RUNNER
    return _last_name(called) == _DOOR


def _last_name(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")


def _is_definition(statement: ast.stmt) -> bool:
    """Statements that do nothing on their own."""
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Pass | ast.Return)
