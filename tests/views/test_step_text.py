"""One step as `marin-rules show` tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin_rules.state.status import Status
from marin_rules.state.step_lease import lease_path, open_lease
from marin_rules.state.written_steps import WrittenStep
from marin_rules.views.step_text import state_at, step_text
from support.lease_models.clock import elsewhere


def written(folder: Path, status: str | None = None, *uses: WrittenStep, **fields: Any) -> WrittenStep:
    """A step as a run has written it down, in a folder that has its status."""
    folder.mkdir()
    if status is not None:
        (folder / ".executor_status").write_text(status)
    paths = tuple(step.output_path for step in uses)
    return WrittenStep(folder.name, str(folder), paths, experiment="x.py", fields=fields or None)


@pytest.mark.parametrize("status", list(Status))
def test_a_state_in_a_word(status: Status, tmp_path: Path) -> None:
    assert state_at(written(tmp_path / "a", status).output_path) == status


def test_states_that_are_none(tmp_path: Path) -> None:
    assert state_at(str(tmp_path / "nothing")) == "not run"
    assert state_at(written(tmp_path / "a", "SUCC").output_path).startswith("damaged (the status file ")


def test_only_what_is_known_is_told(tmp_path: Path) -> None:
    step = written(tmp_path / "a")
    assert step_text(step, [step], log_lines=20).splitlines() == [
        "step         a",
        f"path         {step.output_path}",
        "status       not run",
        "experiment   x.py",
    ]


def test_all_that_is_known_is_told(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "SUCCESS")
    job = {"job_id": "7", "usd_an_hour": 2.0, "price_date": "2026-02-12"}
    run = {"attempt": 2, "seconds": 558, "error": "no", "other": "never shown", "gcp": job}
    step = written(tmp_path / "a", "FAILED", source, fn_name="x.train", run=run, config={"größe": 1}, version={})
    user = written(tmp_path / "user", "DEP_FAILED", step)
    Path(step.output_path, ".executor_log").write_text("one\ntwo\nthree\n")
    lines = step_text(step, [source, step, user], log_lines=2).splitlines()
    assert lines[2:10] == [
        "status       FAILED",
        "function     x.train",
        "experiment   x.py",
        "attempt      2",
        "seconds      558",
        "cost         about $0.31 (list price of 2026-02-12)",
        "ran on       gcp job 7",
        "error        no",
    ]
    assert lines[10:] == [
        *["", "config:", "  {", '    "größe": 1', "  }"],
        *["", "version:", "  {}"],
        *["", "depends on:", f"  {source.output_path}  SUCCESS"],
        *["", "used by:", f"  {user.output_path}  DEP_FAILED"],
        *["", f"end of {step.output_path}/.executor_log:", "  two", "  three"],
    ]
    assert "end of" not in step_text(step, [], log_lines=0)


def test_who_has_the_step(tmp_path: Path) -> None:
    step = written(tmp_path / "a", "RUNNING")
    assert open_lease(step.output_path, elsewhere("node7")).try_acquire() is None
    (line,) = (line for line in step_text(step, [], log_lines=0).splitlines() if line.startswith("held by"))
    assert "node7" in line
    Path(lease_path(step.output_path)).write_text("{")
    assert "held by      unknown: its lease is damaged" in step_text(step, [], log_lines=0)
