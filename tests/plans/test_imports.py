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
        ("if a:\n    pass\nelif b:\n    import x", "", ["x"]),
        ("try:\n    pass\nexcept A:\n    import x\nelse:\n    import y\nfinally:\n    import z", "", ["x", "y", "z"]),
        ("match a:\n    case 1:\n        import x", "", ["x"]),
        ("with a:\n    async def f():\n        while b:\n            import x", "", ["x"]),
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
    found = imported_modules(source.encode(), package)
    assert sorted(found) == sorted(expected)
    for place, name in enumerate(found):
        assert name.rpartition(".")[0] in ("", *found[:place]), "each after those that hold it"
