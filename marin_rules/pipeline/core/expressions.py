"""Conditions on records, written as Python expressions: `len(text) > 200 and metadata["language"] == "en"`.

Names are the fields of the record (None if it has no such field). Only comparisons, `and`, `or`, `not`, `in`,
arithmetic, subscripts, constants and `len(...)` are supported; everything else is refused when the step starts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.records import Record

_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Load),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod),
    *(ast.Name, ast.Constant, ast.Subscript, ast.List, ast.Tuple),
)


class ConditionFailed(Exception):
    """The expression makes no sense for a record, such as a subscript of a field that it does not have."""


def compile_condition(expression: str) -> Callable[[Record], bool]:
    """A function that says whether a record satisfies the expression."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise DataError(f"not an expression: {expression!r} ({error.msg})") from None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1):
                raise DataError(f"{expression!r} calls {ast.unparse(node.func)!r}: only len(...) can be called")
        elif not isinstance(node, _ALLOWED):
            what = ast.unparse(node) or type(node).__name__  # An operator alone has no source.
            raise DataError(f"{expression!r} has {what!r}, which conditions do not know")
        if isinstance(node, ast.Name):
            names.add(node.id)
    code = compile(tree, "<condition>", "eval")
    fields = sorted(names - {"len"})

    def holds(record: Record) -> bool:
        values = {name: record.get(name) for name in fields}
        try:
            return bool(eval(code, {"__builtins__": {}, "len": len}, values))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ConditionFailed(f"{expression}: {type(error).__name__}: {error}") from None

    return holds
