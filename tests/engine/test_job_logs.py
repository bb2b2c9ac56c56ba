"""The logs of jobs on clusters: where they are, and when they go."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from marin_rules.engine.job_logs import JobLogs
from marin_rules.plans.frozen import FrozenStep

STEP = FrozenStep(0, "data/books-1a2b3c", "data/books", "/out/x", "1a2b3c", 0, "x.f", (), True, True)
JOB = SimpleNamespace(name="both")
DAY = 24 * 60 * 60


def logs(folder: Path, *, keep_successful: bool = False, days: int = 10) -> JobLogs:
    return JobLogs(str(folder), keep_successful=keep_successful, days=days)


def test_each_job_has_a_log_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = logs(Path("logs"))
    monkeypatch.chdir("/")  # Jobs start where they like.
    assert found.of(JOB, STEP) == f"{tmp_path}/logs/steps/data/books-1a2b3c/{{job}}.log"
    assert found.of(JOB, None) == f"{tmp_path}/logs/groups/both/{{job}}.log"


def test_no_percent_sign_reaches_a_cluster(tmp_path: Path) -> None:
    assert "%" not in logs(tmp_path).of(JOB, replace(STEP, key="a%j-1"))


@pytest.mark.parametrize("keeps", [True, False])
def test_the_log_of_a_job_that_succeeded(keeps: bool, tmp_path: Path) -> None:
    log = tmp_path / "7.log"
    log.write_text("done")
    found = logs(tmp_path, keep_successful=keeps)
    found.remove(str(log))
    assert log.exists() == keeps
    found.remove(str(tmp_path / "never written.log"))


@pytest.mark.parametrize(
    ("keeps", "days", "left"),
    [
        (False, 10, {"steps/new/1.log", "steps/both/2.log", "steps/notes.txt"}),
        (False, 1, {"steps/notes.txt"}),
        (False, 0, {"steps/new/1.log", "steps/old/1.log", "steps/both/1.log", "steps/both/2.log", "steps/notes.txt"}),
        (True, 10, {"steps/new/1.log", "steps/old/1.log", "steps/both/1.log", "steps/both/2.log", "steps/notes.txt"}),
    ],
)
def test_old_logs_go_and_with_them_their_folders(keeps: bool, days: int, left: set[str], tmp_path: Path) -> None:
    ages = {"new/1.log": 9, "old/1.log": 11, "both/1.log": 11, "both/2.log": 9, "notes.txt": 99}
    for name, age in ages.items():
        file = tmp_path / "logs" / "steps" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        os.utime(file, (time.time() - age * DAY,) * 2)
    (tmp_path / "logs" / "groups").mkdir()
    logs(tmp_path / "logs", keep_successful=keeps, days=days).clean()
    files = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path / "logs")) for path in files} == left
    folders = [path for path in (tmp_path / "logs").rglob("*") if path.is_dir()]
    is_clean = not keeps and days > 0
    assert not is_clean or all(any(path.iterdir()) for path in folders)


def test_a_folder_that_is_not_there_is_clean(tmp_path: Path) -> None:
    logs(tmp_path / "nothing").clean()
    assert not (tmp_path / "nothing").exists()
