"""What a job without the driver's files runs first: the real script, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.software import bootstrap
from marin_rules.software.code_archive import CodeArchive
from support.emulators.gcs.emulator import GcsEmulator

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
SHOWING = b"""
import os, sys
print(__file__, sys.argv[1:], sys.stdin.read() == "", os.environ["HOME"] != "", os.getcwd())
"""
ARCHIVE = CodeArchive.of({"shown/__init__.py": b"", "shown/__main__.py": SHOWING})

Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.fixture
def start(tmp_path: Path, scratch: Path) -> Start:
    """`start(archive=, digest=, version=, python=, **variables)` runs it, with these variables alone."""

    def run(
        archive: str | Path = tmp_path / "code.zip",
        digest: str = ARCHIVE.digest,
        version: str = VERSION,
        python: str = sys.executable,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        words = [str(archive), digest, version, str(scratch), "shown", "--step", "a b"]
        return subprocess.run(
            [python, "-I", "-", *words],
            input=Path(bootstrap.__file__).read_text(),
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )

    (tmp_path / "code.zip").write_bytes(ARCHIVE.data)
    return run


def folder_in(scratch: Path) -> Path:
    return scratch / f"marin-rules-{os.getuid()}"


@pytest.mark.processes
def test_it_becomes_the_module_with_the_archive_on_its_path(start: Start, scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text("raise SystemExit('the working directory is no place for code')\n")
    folder = folder_in(scratch)
    expected = f"{folder}/code-{ARCHIVE.digest}/shown/__main__.py ['--step', 'a b'] True True {folder}\n"
    for _ in range(2):
        ran = start()
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, expected, "")
    assert [path.name for path in folder.iterdir()] == [f"code-{ARCHIVE.digest}"]


@pytest.mark.processes
def test_what_is_unpacked_already_is_not_fetched_again(start: Start) -> None:
    assert start().returncode == 0
    assert start("/nowhere/code.zip").returncode == 0


def test_it_comes_from_a_bucket(start: Start, gcs: GcsEmulator) -> None:
    gcs.create_bucket("bucket")
    gcs.put("bucket", "x/code.zip", ARCHIVE.data)
    ran = start("gs://bucket/x/code.zip", **gcs.environment)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    "data", [ARCHIVE.data[:-1], CodeArchive.of({"shown/__main__.py": b"print('other')"}).data, b""]
)
def test_another_archive_under_the_same_name_is_refused_by_name(
    start: Start, scratch: Path, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "code.zip").write_bytes(data)
    ran = start()
    assert ran.returncode == bootstrap.EXIT_DAMAGED
    assert ran.stdout == ""
    assert f"{tmp_path / 'code.zip'} is not the code that this run has sent" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [*folder_in(scratch).iterdir()] == []


@pytest.mark.processes
def test_a_store_that_does_not_answer_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = start("memory://nowhere/code.zip")
    assert ran.returncode == bootstrap.EXIT_UNREACHABLE
    assert "cannot fetch memory://nowhere/code.zip: FileNotFoundError" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.processes
def test_a_python_without_the_stores_client_is_told_what_to_install(start: Start) -> None:
    ran = start("never-heard-of://bucket/code.zip")
    assert ran.returncode != 0
    assert "never-heard-of://bucket/code.zip" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.processes
def test_another_minor_version_of_python_is_refused(start: Start) -> None:
    ran = start(version="3.7")
    assert ran.returncode == bootstrap.EXIT_WRONG_PYTHON
    assert f"this machine's Python is {VERSION} ({sys.executable}), but the run was planned with 3.7" in ran.stderr


@pytest.mark.processes
def test_an_old_python_can_say_so_as_well(start: Start) -> None:
    others = (f"python3.{minor}" for minor in range(7, sys.version_info.minor))
    old = next((found for name in others if (found := shutil.which(name, path="/usr/bin:/usr/local/bin"))), None)
    if old is None:
        pytest.skip("there is no older Python on this machine")
    ran = start(python=old)
    assert ran.returncode == bootstrap.EXIT_WRONG_PYTHON, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["link", "open to all"])
def test_a_folder_that_others_can_write_to_is_not_used(start: Start, scratch: Path, tmp_path: Path, kind: str) -> None:
    scratch.mkdir()
    if kind == "link":
        (tmp_path / "theirs").mkdir()
        folder_in(scratch).symlink_to(tmp_path / "theirs")
    else:
        folder_in(scratch).mkdir()
        folder_in(scratch).chmod(0o777)
    ran = start()
    assert ran.returncode == bootstrap.EXIT_NOT_OURS
    assert f"{folder_in(scratch)} is not this user's own folder" in ran.stderr


@pytest.mark.processes
def test_a_scratch_folder_in_which_others_can_exchange_ours_is_not_used(start: Start, scratch: Path) -> None:
    scratch.mkdir()
    scratch.chmod(0o777)
    ran = start()
    assert ran.returncode == bootstrap.EXIT_NOT_OURS
    assert f"everyone can write to {scratch} and rename what is in it" in ran.stderr
    scratch.chmod(0o1777)
    assert start().returncode == 0


def test_two_jobs_that_unpack_at_once_both_find_it_whole(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    bootstrap.unpack(ARCHIVE.data, str(folder))
    bootstrap.unpack(ARCHIVE.data, str(folder))  # The second to rename finds the place taken.
    assert sorted(path.name for path in (folder / "shown").iterdir()) == ["__init__.py", "__main__.py"]
    assert bootstrap.is_whole(str(folder))
    assert not [*tmp_path.glob(".unpacking-*")]


@pytest.mark.processes
@pytest.mark.parametrize("lost", ["shown/__main__.py", "shown", ".names"])
def test_what_a_machine_has_cleared_away_is_unpacked_again(start: Start, scratch: Path, lost: str) -> None:
    assert start().returncode == 0
    code = folder_in(scratch) / f"code-{ARCHIVE.digest}"
    shutil.rmtree(code / lost) if (code / lost).is_dir() else (code / lost).unlink()
    kept = set(code.rglob("*"))
    ran = start()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert bootstrap.is_whole(str(code))
    assert [path for path in kept if not path.exists()] == [], "nothing that others use is taken away"
    assert [path.name for path in folder_in(scratch).iterdir()] == [code.name]
