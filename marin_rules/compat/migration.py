"""A script for Marin with its imports rewritten: names that have a counterpart come from `marin_rules`. Pure.

    from marin.execution.executor import ExecutorStep, get_fn_name
    ->
    from marin_rules import ExecutorStep
    from marin.execution.executor import get_fn_name              # and a note: to be edited by hand

Only `from ... import ...` statements are touched; everything else stays the same, to the byte, except that a comment
inside the parentheses of such a statement is lost. What is left of Marin is listed with what to use instead: names
without a counterpart, whole modules, and modules named in a string, as `import_module` and `mock.patch` take them.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from marin_rules.compat.counterparts import COUNTERPARTS, PACKAGES, advice, counterpart


@dataclass(frozen=True)
class Note:
    """Something that a person has to look at."""

    line: int
    text: str


@dataclass(frozen=True)
class Migration:
    """A source with its imports rewritten, and what to edit by hand."""

    source: str
    changed: int
    """How many import statements differ from before."""

    notes: tuple[Note, ...]


def migrate(source: str) -> Migration:
    """Rewrite the imports of a source; `SyntaxError` for anything that is not Python."""
    lines = list(io.StringIO(source, newline=""))  # As Python counts lines: `splitlines` knows more ends than that.
    nodes = list(ast.walk(ast.parse(source)))
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    notes = [note for node in statements for note in _notes(node)]
    notes += [note for node in nodes if isinstance(node, ast.Constant) for note in _notes_of_string(node)]
    rewritten = [node for node in statements if isinstance(node, ast.ImportFrom) and _has_counterparts(node)]
    rewritten.sort(key=_place)
    for neighbours in reversed(_neighbours(rewritten, lines)):
        _replace(lines, neighbours, _as_ours(neighbours))
    return Migration("".join(lines), len(rewritten), tuple(sorted(notes, key=lambda note: note.line)))


def _place(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _is_of_marin(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in PACKAGES


def _has_counterparts(node: ast.ImportFrom) -> bool:
    module = node.module or ""
    return node.level == 0 and any(counterpart(module, alias.name) is not None for alias in node.names)


def _neighbours(nodes: list[ast.ImportFrom], lines: list[str]) -> list[list[ast.ImportFrom]]:
    """Statements in groups that become one import: each alone on its lines, right after the one before."""
    groups: list[list[ast.ImportFrom]] = []
    for node in nodes:
        last = groups[-1][-1] if groups else None
        follows = last is not None and last.end_lineno == node.lineno - 1 and last.col_offset == node.col_offset
        if follows and last is not None and _is_alone(last, lines) and _is_alone(node, lines):
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _is_alone(node: ast.ImportFrom, lines: list[str]) -> bool:
    before, after = _around([node], lines)
    return not before.strip() and not after.strip()


def _as_ours(nodes: list[ast.ImportFrom]) -> list[str]:
    """The statements that say the same with our names."""
    ours: dict[str, None] = {}
    rest: list[str] = []
    indent = " " * nodes[0].col_offset
    for node in nodes:
        module = node.module or ""
        theirs = []
        for alias in node.names:
            name = counterpart(module, alias.name)
            if name is None:
                theirs.append(_imported(alias.name, alias.asname))
            else:
                ours[_imported(name, alias.asname or alias.name)] = None
        rest += [_statement(module, theirs, indent)] if theirs else []
    return [_statement("marin_rules", sorted(ours), indent), *rest]


def _imported(name: str, renamed: str | None) -> str:
    return name if renamed is None or renamed == name else f"{name} as {renamed}"


_LINE_LENGTH = 119


def _statement(module: str, names: list[str], indent: str) -> str:
    one_line = f"from {module} import {', '.join(names)}"
    if len(indent) + len(one_line) <= _LINE_LENGTH:
        return one_line
    return "\n".join([f"from {module} import (", *(f"{indent}    {name}," for name in names), f"{indent})"])


def _replace(lines: list[str], nodes: list[ast.ImportFrom], statements: list[str]) -> None:
    """Replace statements with others."""
    before, after = _around(nodes, lines)
    separator = "; " if before.strip() else f"\n{before}"
    first, last = nodes[0].lineno - 1, nodes[-1].end_lineno
    text = separator.join(statements)
    if lines[first].endswith("\r\n"):
        text = text.replace("\n", "\r\n")
    lines[first:last] = [f"{before}{text}{after}"]


def _around(nodes: list[ast.ImportFrom], lines: list[str]) -> tuple[str, str]:
    """What is on the lines of statements before and after them. Columns are bytes, as `ast` counts them."""
    first, last = nodes[0], nodes[-1]
    end_line = last.end_lineno or last.lineno
    before = lines[first.lineno - 1].encode()[: first.col_offset].decode()
    return before, lines[end_line - 1].encode()[last.end_col_offset :].decode()


_NAMES_ONE_BY_ONE = "write `from marin_rules import ...` for what it uses"

_DOTTED = re.compile(r"\w+(?:\.\w+)+")


def _notes(node: ast.Import | ast.ImportFrom) -> Iterator[Note]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if _is_of_marin(alias.name):
                yield Note(node.lineno, f"import {alias.name}: {_NAMES_ONE_BY_ONE}")
    elif node.level == 0 and node.module is not None and _is_of_marin(node.module):
        for alias in node.names:
            what = f"{node.module}.{alias.name}"
            if alias.name == "*" or what in COUNTERPARTS:
                yield Note(node.lineno, f"{what}: {_NAMES_ONE_BY_ONE}")
            elif counterpart(node.module, alias.name) is None:
                yield Note(node.lineno, f"{what}: {advice(what)}")


def _notes_of_string(node: ast.Constant) -> Iterator[Note]:
    """Of the name of a module of the table, or of something in it. `"fray"` alone is a word."""
    if isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        parts = node.value.split(".")
        if any(".".join(parts[:count]) in COUNTERPARTS for count in range(2, len(parts) + 1)):
            yield Note(node.lineno, f"{node.value!r} in a string: name what marin_rules has instead")
