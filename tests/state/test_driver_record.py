"""The records of submitted drivers: private files, one driver for each, and gone some days after its end."""

from __future__ import annotations

import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.settings.ownership import UntrustedError
from marin_rules.state.driver_record import (
    KEPT_DAYS,
    DriverRecord,
    Holder,
    all_drivers,
    code_folder,
    drivers_beginning,
    drivers_folder,
    make_folders,
    named_driver,
    place_below,
    remove_old,
)
from marin_rules.storage.leases.owner import Owner
from support.lease_models.clock import elsewhere

DAY = 86400.0


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def record(id: str = "x-20261118-101010-abcdef", name: str | None = None, submitted: float = 5.0) -> DriverRecord:
    make_folders()
    code = os.path.join(code_folder(), "digest")
    made = DriverRecord(
        id=id,
        name=name,
        command=("snakemake", "-j", "3"),
        words=("snakemake", "-j", "3"),
        is_for_job=True,
        takes_plan_by_flag=False,
        experiment="/home/x.py",
        working_directory="/home",
        digest="d",
        plan_path="out/plan",
        code=code,
        checksums={"/home/x.smk": "c"},
        submitted=submitted,
    )
    os.makedirs(made.folder, mode=0o700, exist_ok=True)
    os.makedirs(code, exist_ok=True)
    made.write()
    return made


def test_a_record_comes_back_as_it_was_and_is_nobody_elses_to_read() -> None:
    made = record()
    made.claim(Holder("slurm", "7"))
    made.ask_to_stop()
    made.write_end(1)
    assert DriverRecord.read(made.folder) == made
    for folder, _, names in os.walk(drivers_folder()):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for name in names:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600


def test_the_first_to_come_is_the_driver() -> None:
    made = record()
    assert made.holder() is None
    assert made.claim(Holder("slurm", "7")).job == "7"
    assert made.claim(Holder("slurm", "8")).job == "7"
    assert made.claim(Holder("slurm", "7")).is_same(Holder("slurm", "7"))
    assert str(made.holder()) == "slurm job 7"
    here = Holder(owner=Owner.current())
    assert here.is_same(Holder.parse(here.to_bytes()))
    assert not here.is_same(Holder(owner=elsewhere("other")))
    assert not here.is_same(Holder("slurm", "7"))


def test_a_driver_is_found_by_its_id_its_name_or_the_beginning_of_its_id() -> None:
    one = record("x-20261118-101010-aaaaaa", "mine", 1.0)
    two = record("x-20261118-101011-bbbbbb", "mine", 2.0)
    assert all_drivers() == [one, two]
    assert named_driver("mine") == two
    assert named_driver(one.id) == one
    assert named_driver("x") is None
    assert drivers_beginning("x-20261118-101010") == [one]
    assert drivers_beginning("x") == [one, two]
    assert drivers_beginning("nosuch") == drivers_beginning("") == []
    two.write_end(0)
    assert drivers_beginning("x") == [one], "the one that goes on is meant"
    one.write_end(0)
    assert drivers_beginning("x") == [one, two]


def test_damaged_records_are_passed_over(tmp_path: Path) -> None:
    made = record()
    for name, text in (("empty", ""), ("list", "[]"), ("other", '{"id": "y"}')):
        folder = Path(drivers_folder(), name)
        folder.mkdir()
        (folder / "driver.json").write_text(text)
    assert all_drivers() == [made]


@pytest.mark.parametrize(
    ("ended", "is_over", "days", "stays"),
    [
        (True, True, KEPT_DAYS - 1, True),
        (True, True, KEPT_DAYS + 1, False),
        (False, True, KEPT_DAYS + 1, False),
        (False, False, KEPT_DAYS + 1, True),
    ],
)
def test_a_driver_is_forgotten_some_days_after_its_end(ended: bool, is_over: bool, days: float, stays: bool) -> None:
    made = record()
    if ended:
        made.write_end(0)
    remove_old(time.time() + days * DAY, lambda found: is_over)
    assert all_drivers() == ([made] if stays else [])
    assert os.path.isdir(made.code) == stays


def test_what_a_killed_submission_leaves_is_removed_a_day_later() -> None:
    make_folders()
    left = Path(drivers_folder(), ".submitting-abc")
    left.mkdir()
    remove_old(time.time() + DAY / 2, lambda found: True)
    assert left.exists()
    remove_old(time.time() + 2 * DAY, lambda found: True)
    assert not left.exists()


def test_a_stop_that_came_too_late_is_none() -> None:
    made = record()
    made.ask_to_stop()
    made.write_end(0)
    end = made.end()
    assert end is not None
    assert not end.stopped
    made.write_end(1)
    assert replace(end, exit_code=1, stopped=True, ended=0.0) == replace(made.end() or end, ended=0.0)


def test_a_folder_that_others_can_write_to_is_not_used() -> None:
    make_folders()
    os.chmod(code_folder(), 0o777)
    with pytest.raises(UntrustedError, match="everyone can write to it"):
        make_folders()


def sent(tmp_path: Path) -> DriverRecord:
    """A driver whose machine does not see this user's folder."""
    here, prefix = record(), tmp_path / "out"
    made = replace(here, place=place_below(str(prefix / "experiments"), here.id), prefix=str(prefix))
    Path(here.folder, "plan").write_bytes(b"a plan")
    made.write()
    made.publish()
    return made


def on_its_machine(made: DriverRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DriverRecord:
    """The same driver, for a process that has the state folder of another machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of the other machine"))
    return DriverRecord.parse(Path(made.path).read_bytes())


def test_a_driver_that_was_sent_is_known_on_both_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sent(tmp_path)
    assert made.registered_run() is None
    with monkeypatch.context() as there:
        driver = on_its_machine(made, tmp_path, there)
        assert driver == made
        assert Path(driver.own_plan_path).read_bytes() == b"a plan"
        assert driver.claim(Holder("cloud", "7")).job == "7"
        assert driver.claim(Holder("cloud", "8")).job == "7"
        driver.register_run(Owner.current())
    assert str(made.holder()) == "cloud job 7"
    run = made.registered_run()
    assert run is not None
    assert (run.id, run.plan_path, run.driver.pid) == (made.id, made.own_plan_path, os.getpid())
    made.ask_to_stop()
    with monkeypatch.context() as there:
        driver = on_its_machine(made, tmp_path, there)
        assert driver.is_asked_to_stop
        driver.write_end(3)
        assert not Path(drivers_folder()).exists()
    assert all_drivers() == [made]
    end = made.end()
    assert end is not None
    assert (end.exit_code, end.stopped) == (3, True)
    assert made.registered_run() is None


def test_what_does_not_change_is_asked_for_once(tmp_path: Path) -> None:
    made = sent(tmp_path)
    made.claim(Holder("cloud", "7"))
    made.write_end(0)
    known = (made.holder(), made.end())
    shutil.rmtree(tmp_path / "out")
    assert (made.holder(), made.end()) == known


def test_a_driver_that_is_forgotten_leaves_nothing_below_the_prefix(tmp_path: Path) -> None:
    made = sent(tmp_path)
    made.write_end(0)
    remove_old(time.time() + (KEPT_DAYS + 1) * DAY, lambda found: True)
    assert all_drivers() == []
    assert not Path(str(made.place)).exists()
