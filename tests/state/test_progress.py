"""Whether the last attempt of a step got anywhere."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from marin_rules.state.progress import made_progress, was_stopped_in

BEGAN = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, int], None]:
    """`write(name, seconds)` writes a file that changed so long after the attempt began."""

    def make(name: str, seconds: int) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("data")
        moment = BEGAN.timestamp() + seconds
        os.utime(path, (moment, moment))

    (tmp_path / ".executor_info").write_text(json.dumps({"run": {"started": BEGAN.isoformat()}}))
    return make


def test_a_file_that_changed_since_the_attempt_began_is_progress(
    write: Callable[[str, int], None], tmp_path: Path
) -> None:
    write("checkpoints/step-1/state", -60)
    assert not made_progress(str(tmp_path))
    write("checkpoints/step-2/state", 5)
    assert made_progress(str(tmp_path))


def test_our_own_files_are_no_progress(write: Callable[[str, int], None], tmp_path: Path) -> None:
    for name in (".executor_log", ".executor_log.rank-1", ".executor_status", ".executor_status.lock"):
        write(name, 60)
    assert not made_progress(str(tmp_path))


def test_without_an_attempt_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("data")
    assert not made_progress(str(tmp_path))


@pytest.mark.parametrize(
    ("status", "run", "expected"),
    [
        ("CANCELLED", {"slurm": {"job_id": "7"}}, True),
        ("CANCELLED", {"cloud": {"job_id": "7"}}, True),
        ("CANCELLED", {"slurm": {"job_id": "8"}}, False),
        ("CANCELLED", {"host": "n1"}, False),
        ("FAILED", {"slurm": {"job_id": "7"}}, False),
    ],
)
def test_whether_the_last_attempt_was_stopped_in_a_job(
    status: str, run: object, expected: bool, tmp_path: Path
) -> None:
    (tmp_path / ".executor_status").write_text(status)
    (tmp_path / ".executor_info").write_text(json.dumps({"run": run}))
    assert was_stopped_in(str(tmp_path), "7") == expected


def test_a_step_that_never_ran_was_stopped_in_no_job(tmp_path: Path) -> None:
    assert not was_stopped_in(str(tmp_path), "7")
