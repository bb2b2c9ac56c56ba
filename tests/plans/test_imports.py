"""Which modules a source may import."""

from __future__ import annotations

import pytest

from marin_rules.plans.imports import imported_modules


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("import a", "", ["a"]),
        ("import a.b.c as d, e", "", ["a", "a.b", "a.b.c", "e"]),
        ("from a.b import c, d", "", ["a", "a.b", "a.b.c", "a.b.d"]),
        ("from a import *", "", ["a"]),
        ("def f():\n    class C:\n        def g(self):\n            import deep", "", ["deep"]),
        ("if False:\n    import maybe", "", ["maybe"]),
        ("from . import x", "p.q", ["p", "p.q", "p.q.x"]),
        ("from .x import y", "p.q", ["p", "p.q", "p.q.x", "p.q.x.y"]),
        ("from ..x import y", "p.q", ["p", "p.x", "p.x.y"]),
        ("from . import x", "", []),
        ("this is no Python", "", []),
        ("\0", "", []),
        ("x = 'import a'", "", []),
    ],
)
def test_all_imports_are_found_wherever_they_stand(source: str, package: str, expected: list[str]) -> None:
    assert imported_modules(source.encode(), package) == expected
