"""Which modules a source mentions in its `import` statements, wherever they stand: inside functions as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def imported_modules(source: bytes, package: str = "") -> list[str]:
    """Full names of modules that `source` may import, each after those that hold it; nothing for what is no Python.

    `package` is the one that the source belongs to, for relative imports. In `from a import b` only the file system
    knows whether `b` is a module: `a.b` is among the answers.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        for name in _names(node, package):
            parts = name.split(".")
            found.update((".".join(parts[:count]), None) for count in range(1, len(parts) + 1))
    return list(found)


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
