"""What all tests of plans share."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _without_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules are packed into plans, if anything has imported them: other tests of the same process do."""
    for name in [name for name in sys.modules if name.startswith("marin_rules.pipeline")]:
        monkeypatch.delitem(sys.modules, name)
