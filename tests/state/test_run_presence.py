"""A driver gives signs of life, and comes back if it was taken for dead."""

import os
import time
from pathlib import Path

import pytest

from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import new_run
from marin_rules.state import run_presence
from marin_rules.state.run_presence import RunPresence
from marin_rules.state.run_registry import find_run, forget
from support.lab import Lab


def test_a_driver_is_seen_again_and_again_until_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(run_presence, "BEAT_SECONDS", 0.05)
    plan = FrozenPlan(run=new_run(prefix="out", caller_path="mine.py"), steps=[])
    presence = RunPresence(plan)
    presence.begin()
    (file,) = (tmp_path / "marin-rules" / "runs").iterdir()
    os.utime(file, (1, 1))

    def is_seen() -> bool:
        run = find_run(plan.run.id)
        return run is not None and abs(run.seen - time.time()) < 60

    lab.wait_until(is_seen, "a sign of life")
    forget(plan.run)
    lab.wait_until(is_seen, "its return")
    presence.end()
    assert find_run(plan.run.id) is None
