"""`marin-rules show | delete STEP` in this process."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from marin_rules.commands.main import main
from marin_rules.state.status import Status
from marin_rules.state.task_records import TaskPlace, layout_path
from marin_rules.storage.leases.owner import Owner
from support.small_plans import leave_tasks


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix with `data`, which is done, and `stats`, which uses it and has not run."""
    monkeypatch.chdir(tmp_path)
    prefix = tmp_path / "out"
    data, stats = f"{prefix}/data-a1b2c3", f"{prefix}/stats-d4e5f6"
    steps = [
        {"name": "data", "output_path": data, "dependencies": []},
        {"name": "stats", "output_path": stats, "dependencies": [data]},
    ]
    (prefix / "experiments").mkdir(parents=True)
    content = {"prefix": str(prefix), "caller_path": "x.py", "steps": steps}
    (prefix / "experiments" / "x-000000.json").write_text(json.dumps(content))
    folder = Path(data)
    folder.mkdir()
    (folder / ".executor_status").write_text("SUCCESS")
    (folder / ".executor_log").write_text("one\ntwo\nthree\n")
    (folder / "file").write_bytes(b"x" * 1_500_000)
    return prefix


class Terminal(io.StringIO):
    """Standard input with a person at it."""

    def isatty(self) -> bool:
        return True


def test_the_tasks_of_a_step_are_counted(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_tasks(f"{prefix}/stats-d4e5f6", Status.SUCCESS, Status.FAILED, None)
    assert main(["show", "stats", "--prefix", "out"]) == 0
    assert ["tasks", "1/3, 1 failed"] in [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]


def test_versions_of_one_step_are_listed_with_what_tells_them_apart(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(hash: str, size: int, rate: float) -> dict[str, object]:
        data = {"name": "data", "config": {"size": size}, "dependencies": []}
        version = {"name": "model", "config": {"rate": rate, "seed": 0}, "dependencies": [data]}
        return {"name": "model", "output_path": f"{prefix}/model-{hash}", "dependencies": [], "version": version}

    content = {"prefix": str(prefix), "caller_path": "y.py", "steps": [step("aaaaaa", 3, 0.1), step("bbbbbb", 4, 0.1)]}
    (prefix / "experiments" / "y-000000.json").write_text(json.dumps(content))
    assert main(["show", "model", "--prefix", "out"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "marin-rules: 'model' may be one of several steps; name it by its path:",
        f"  {prefix}/model-aaaaaa",
        "      data: size 3",
        f"  {prefix}/model-bbbbbb",
        "      data: size 4",
    ]
    assert main(["show", "(model|stats)", "--prefix", "out"]) == 1
    assert "size" not in capsys.readouterr().err, "different steps differ anyway"


def test_a_step_is_shown(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "data", "--prefix", "out", "--lines", "1"]) == 0
    shown = capsys.readouterr().out
    assert ["status", "SUCCESS"] in [line.split(maxsplit=1) for line in shown.splitlines()]
    assert f"used by:\n  {prefix}/stats-d4e5f6  not run" in shown
    assert "three" in shown
    assert "two" not in shown


@pytest.mark.parametrize(("answer", "is_deleted"), [("y\n", True), ("YES\n", True), ("\n", False), ("no\n", False)])
def test_a_person_is_asked(
    answer: str,
    is_deleted: bool,
    prefix: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert main(["delete", "data", "--prefix", "out"]) == (0 if is_deleted else 1)
    told = capsys.readouterr().out
    assert f"data  {prefix}/data-a1b2c3  (SUCCESS, 3 files, 1.5 MB)" in told
    assert f"they stay as they are and do not run again:\n  {prefix}/stats-d4e5f6  not run" in told
    assert ("nothing was deleted" in told) != is_deleted
    assert (prefix / "data-a1b2c3").exists() != is_deleted


def test_nobody_can_be_asked(prefix: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["delete", "data", "--prefix", "out"]) == 1
    assert capsys.readouterr().err == "marin-rules: there is no terminal to ask on: add --yes to delete it\n"
    assert (prefix / "data-a1b2c3" / "file").exists()


def test_a_step_without_data(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", "stats", "--prefix", "out", "--yes"]) == 1
    said = f"marin-rules: step stats has no data: {prefix}/stats-d4e5f6 does not exist\n"
    assert capsys.readouterr().err == said


def test_a_step_whose_tasks_are_at_work_without_anybody_who_has_it_as_a_whole_is_not_deleted(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = prefix / "stats-d4e5f6"
    leave_tasks(str(folder), Status.SUCCESS, Status.RUNNING)
    worker = Owner.current()
    lease = TaskPlace(str(folder), 1, 1).open_lease(worker)
    assert lease.try_acquire() is None
    assert main(["delete", "stats", "--prefix", "out", "--yes"]) == 1
    assert f"{folder} is in use: task 1 held by {worker.worker_id}" in capsys.readouterr().err
    lease.verify()
    assert not (folder / ".executor_status.lock").exists()
    lease.release()
    assert main(["delete", "stats", "--prefix", "out", "--yes"]) == 0
    assert not folder.exists()


def test_a_step_that_does_not_say_how_it_is_divided_can_be_deleted(prefix: Path) -> None:
    folder = prefix / "stats-d4e5f6"
    leave_tasks(str(folder), Status.RUNNING)
    Path(layout_path(str(folder))).write_text("?")
    assert main(["delete", "stats", "--prefix", "out", "--yes"]) == 0
    assert not folder.exists()
