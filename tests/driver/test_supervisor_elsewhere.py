"""A driver that starts from its place below the prefix: what it runs, what it refuses, what it leaves there."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from marin_rules.driver.sent_driver import SUPERVISOR
from marin_rules.project import project_folder
from marin_rules.software.bootstrap import EXIT_DAMAGED, EXIT_WRONG_PYTHON
from marin_rules.state.driver_record import STOPPED_CODE, DriverRecord, Holder, place_below
from support.lab import Lab, Result

WITHOUT_SNAKEMAKE = f"""
import runpy, sys
sys.modules["snakemake"] = None
runpy.run_module({SUPERVISOR!r}, run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def driver(lab: Lab) -> DriverRecord:
    """A driver in its place, whose engine is a small module of Python's own that prints something."""
    place = place_below(str(lab.prefix), "x-20261118-101010-abcdef")
    os.makedirs(place)
    record = DriverRecord(
        id="x-20261118-101010-abcdef",
        name=None,
        command=("snakemake",),
        words=("calendar", "2026", "11"),
        is_for_job=False,
        takes_plan_by_flag=False,
        experiment="/home/x.py",
        working_directory="/nowhere",
        digest="",
        plan_path=os.path.join(place, "plan"),
        code="code",
        checksums={},
        submitted=5.0,
        prefix=str(lab.prefix),
        place=place,
    )
    Path(record.path).write_bytes(record.to_bytes())
    return record


def start(lab: Lab, record: DriverRecord, *how: str) -> Result:
    digest = hashlib.sha256(record.to_bytes()).hexdigest()
    words = how or ("-m", SUPERVISOR)
    folder = lab.folder / "scratch"
    folder.mkdir(exist_ok=True)
    environment = {"PYTHONPATH": str(project_folder()), "XDG_STATE_HOME": str(lab.folder / "state there")}
    command = [sys.executable, "-P", *words, record.path, digest]
    return lab.start(command, cwd=folder, env=environment).wait()


def test_a_driver_runs_and_leaves_its_log_and_its_end_in_its_place(lab: Lab, driver: DriverRecord) -> None:
    ran = start(lab, driver)
    assert (ran.code, ran.output) == (0, "")
    log = Path(driver.log_path).read_text()
    assert f"driver {driver.id} on " in log
    assert "November 2026" in log
    end = driver.end()
    assert end is not None
    assert end.exit_code == 0
    assert list((lab.folder / "scratch").iterdir()) == [], "its folder is gone"
    assert start(lab, driver).code == 0
    assert Path(driver.log_path).read_text() == log, "it ran once"


def test_one_job_alone_is_the_driver(lab: Lab, driver: DriverRecord) -> None:
    driver.claim(Holder("grid", "7"))
    ran = start(lab, driver)
    assert ran.code == 0
    assert "is grid job 7; this one, process" in ran.output
    assert driver.end() is None


def test_a_driver_that_is_not_wanted_any_more(lab: Lab, driver: DriverRecord) -> None:
    driver.ask_to_stop()
    assert start(lab, driver).code == STOPPED_CODE
    end = driver.end()
    assert end is not None
    assert end.stopped
    assert not os.path.exists(driver.log_path)


def test_nothing_runs_that_was_not_submitted(lab: Lab, driver: DriverRecord) -> None:
    Path(driver.path).write_bytes(driver.to_bytes().replace(b"calendar", b"platform"))
    ran = start(lab, driver)
    assert ran.code == EXIT_DAMAGED
    assert "is not what was submitted" in ran.output
    os.remove(driver.path)
    ran = start(lab, driver)
    assert ran.code == 1
    assert "its submission was given up" in ran.output
    assert driver.holder() is None


def test_a_python_without_snakemake_is_named(lab: Lab, driver: DriverRecord) -> None:
    ran = start(lab, driver, "-c", WITHOUT_SNAKEMAKE)
    assert ran.code == EXIT_WRONG_PYTHON
    assert f"{sys.executable} has no Snakemake" in Path(driver.log_path).read_text()
    end = driver.end()
    assert end is not None
    assert end.exit_code == EXIT_WRONG_PYTHON
