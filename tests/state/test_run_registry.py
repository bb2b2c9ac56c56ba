"""The runs of a user, as long as they are active."""

import json
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import new_run
from marin_rules.state.run_registry import RegisteredRun, find_run, forget, register, registered_runs
from marin_rules.storage.leases.owner import Owner


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "marin-rules" / "runs"


def plan(name: str = "mine") -> FrozenPlan:
    return FrozenPlan(run=new_run(prefix="out", caller_path=f"{name}: 100%.py"), steps=[])


def test_a_run_is_known_until_it_is_forgotten(state: Path) -> None:
    assert registered_runs() == []
    mine = plan()
    register(mine)
    (known,) = registered_runs()
    assert known.id == mine.run.id
    assert known.plan_path == os.path.abspath(mine.run.plan_path)
    assert known.driver.pid == os.getpid()
    assert not known.driver_is_gone
    assert find_run(mine.run.id) == known
    forget(mine.run)
    forget(mine.run)
    assert registered_runs() == []
    assert find_run(mine.run.id) is None


def test_a_driver_that_ended_is_gone(state: Path) -> None:
    register(plan())
    (known,) = registered_runs()
    ticks = known.driver.start_ticks
    assert ticks is not None
    assert replace(known, driver=replace(known.driver, start_ticks=ticks + 1)).driver_is_gone


DAMAGED = {
    "empty": b"",
    "cut": b'{"id": ',
    "other": b"{}",
    "list": b"[1, 2]",
    "number": b"7",
    "bytes": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_files_that_are_no_runs_are_left_alone(name: str, state: Path) -> None:
    register(plan())
    file = state / f"{name}.json"
    file.write_bytes(DAMAGED[name])
    (state / "note.txt").write_text("hello")
    assert len(registered_runs()) == 1
    assert find_run(name) is None
    assert file.read_bytes() == DAMAGED[name]


@pytest.mark.parametrize("field", ["id", "experiment", "prefix", "plan_path", "working_directory", "started", "driver"])
@pytest.mark.parametrize("value", [None, 7, [], {}, {"pid": "x"}])
def test_a_run_with_a_damaged_field_hides_no_other_run(field: str, value: object, state: Path) -> None:
    register(plan())
    damaged = plan("damaged")
    register(damaged)
    file = state / f"{quote(damaged.run.id)}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
    assert len(registered_runs()) == 1
    assert find_run(damaged.run.id) is None


def test_a_folder_or_a_dangling_link_in_the_place_of_a_run(state: Path) -> None:
    register(plan())
    (state / "folder.json").mkdir()
    (state / "link.json").symlink_to("nowhere")
    assert len(registered_runs()) == 1


def test_the_run_of_a_later_version_is_read(state: Path) -> None:
    register(plan())
    (file,) = state.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), "colour": "blue"}))
    assert len(registered_runs()) == 1


def test_a_home_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "below"))
    register(plan())
    assert registered_runs() == []


def test_a_run_survives_being_written_down() -> None:
    known = RegisteredRun("id", "/x.py", "out", "/plan", "/", "2026-11-16T12:00:00+00:00", Owner.current())
    assert RegisteredRun.parse(known.to_bytes()) == known
