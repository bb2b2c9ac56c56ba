"""Which modules a source mentions in its `import` statements, wherever they are, including inside functions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where statements hold statements; `handlers` and `cases` come in between."""


@functools.lru_cache(maxsize=1024)  # A process that plans again and again, by `Executor.run`, has the same modules.
def imported_modules(source: bytes, package: str = "") -> tuple[str, ...]:
    """Full names of modules that `source` may import, each after those that hold it; nothing if it is not Python.

    `package` is the one that the source belongs to, for relative imports. In `from a import b` only the file system
    knows whether `b` is a module: `a.b` is among the answers.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: dict[str, None] = {}
    for statement in _statements(tree):
        for name in _names(statement, package):
            parts = name.split(".")
            found.update((".".join(parts[:count]), None) for count in range(1, len(parts) + 1))
    return tuple(found)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, and none of the expressions in them: those are most of a tree, and hold no imports."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for block in _BLOCKS:
            pending += getattr(node, block, ())


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if package else []
            base = ".".join([*above, *([node.module] if node.module else [])])
        if base:
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
