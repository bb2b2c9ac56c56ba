"""`marin-rules migrate`: shows what it would change, and changes it when asked to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from marin_rules.commands.main import main

SCRIPT = "from marin.execution.executor import ExecutorStep, executor_main\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, source in {
        "experiments/a.py": SCRIPT,
        "experiments/plain.py": "import os\n",
        "experiments/b.py": "from marin.processing.tokenize import tokenize\n",
        ".venv/lib/c.py": SCRIPT,
        "notes.md": SCRIPT,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    return tmp_path


def test_without_write_nothing_is_changed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(repository)]) == 1
    told = capsys.readouterr()
    assert "+from marin_rules import ExecutorStep, executor_main" in told.out
    assert f"{repository}/experiments/b.py:1: marin.processing.tokenize.tokenize: " in told.err
    assert "1 imports to rewrite (--write does it), 1 places to edit by hand" in told.err
    assert (repository / "experiments/a.py").read_text() == SCRIPT


def test_with_write_scripts_are(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(repository / "experiments/a.py"), "--write"]) == 0
    assert (repository / "experiments/a.py").read_text() == "from marin_rules import ExecutorStep, executor_main\n"
    assert main(["migrate", str(repository), "--write"]) == 1
    assert (repository / ".venv/lib/c.py").read_text() == SCRIPT
    assert (repository / "notes.md").read_text() == SCRIPT


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbf" + SCRIPT.encode(), b"\xef\xbb\xbffrom marin_rules import ExecutorStep, executor_main\n"),
        (
            b"# coding: latin-1\n# \xe9\nfrom fray.types import JobRequest, ResourceConfig\n",
            b"# coding: latin-1\n# \xe9\nfrom marin_rules import ResourceConfig\nfrom fray.types import JobRequest\n",
        ),
        (
            b"import os\r\nfrom fray.types import JobRequest, ResourceConfig\r\nos\r\n",
            b"import os\r\nfrom marin_rules import ResourceConfig\r\nfrom fray.types import JobRequest\r\nos\r\n",
        ),
    ],
    ids=["a mark of UTF-8", "another encoding", "line ends of Windows"],
)
def test_nothing_else_of_a_file_changes(before: bytes, after: bytes, tmp_path: Path) -> None:
    script = tmp_path / "x.py"
    script.write_bytes(before)
    script.chmod(0o751)
    main(["migrate", str(script), "--write"])
    assert script.read_bytes() == after
    assert script.stat().st_mode & 0o777 == 0o751


def test_a_disk_that_is_full_costs_no_source(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["migrate", str(repository / "experiments"), "--write"]) == 1
    assert (repository / "experiments/a.py").read_text() == SCRIPT
    assert sorted(os.listdir(repository / "experiments")) == ["a.py", "b.py", "plain.py"]


def test_what_is_no_python_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.py").write_text("def (:")
    (tmp_path / "y.py").write_bytes(b"# \xe9 without a coding")
    assert main(["migrate", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"{tmp_path}/x.py: not rewritten, it is not Python" in told
    assert f"{tmp_path}/y.py: not rewritten, it is not Python" in told
    assert main(["migrate", str(tmp_path / "nothing")]) == 1
    assert "there is no" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_being_rewritten(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "experiments/a0.py").symlink_to("gone.py")
    assert main(["migrate", str(repository / "experiments"), "--write"]) == 1
    told = capsys.readouterr().err
    assert f"{repository}/experiments/a0.py: not rewritten, it cannot be read (No such file or directory)" in told
    assert "1 imports rewritten, 2 places to edit by hand" in told
    assert "marin_rules" in (repository / "experiments/a.py").read_text()
