"""What is brought to the disk of a folder: all of it, whatever is in it, and nothing elsewhere."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from marin_rules.storage import flush
from marin_rules.storage.flush import flush_folder


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and folders that were waited for one by one."""
    found: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        found.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", noting)
    return found


@pytest.fixture
def file_systems(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose file systems were."""
    found: list[str] = []
    real = flush._flush_file_system

    def noting(path: str) -> None:
        real(path)
        found.append(path)

    monkeypatch.setattr(flush, "_flush_file_system", noting)
    return found


def test_all_of_a_folder(tmp_path: Path, flushed: list[str], file_systems: list[str]) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "empty").mkdir()
    elsewhere.mkdir()
    for path in (folder / "x", folder / "a" / "b" / ".y", folder / "a" / ".books", elsewhere / "z"):
        path.write_text("")
    (folder / ".books").mkdir()
    (folder / ".books" / "w").write_text("")
    (folder / "link").symlink_to(elsewhere)
    (folder / "file link").symlink_to(elsewhere / "z")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        flush_folder(str(folder), leave_out=".books")
    names = ("", "x", "a", "a/b", "a/b/.y", "a/.books", "empty")
    assert sorted(flushed) == sorted(str(folder / name) for name in names)
    assert file_systems == []


@pytest.mark.parametrize(("number", "one_by_one"), [(0, 0), (1, 2), (63, 64), (64, 0), (200, 0)])
def test_many_files_are_waited_for_at_once(
    number: int, one_by_one: int, tmp_path: Path, flushed: list[str], file_systems: list[str]
) -> None:
    for name in range(number):
        (tmp_path / str(name)).write_text("")
    (tmp_path / ".books").write_text("")
    flush_folder(str(tmp_path), leave_out=".books")
    assert len(flushed) == one_by_one
    assert file_systems == ([] if number < 64 else [str(tmp_path)])


@pytest.mark.parametrize("path", ["gs://bucket/folder", "/there/is/none"])
def test_nothing_to_wait_for(path: str, flushed: list[str], file_systems: list[str]) -> None:
    flush_folder(path, leave_out=".")
    assert flushed == file_systems == []


def test_a_file_that_cannot_be_opened(tmp_path: Path, file_systems: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can open all, so the refusal is made."""
    (tmp_path / "x").write_text("")
    real = os.open

    def refusing(path: str, *rest: int) -> int:
        if path.endswith("x"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refusing)
    flush_folder(str(tmp_path), leave_out=".")
    assert file_systems == [str(tmp_path)]


def test_a_folder_that_cannot_be_listed(
    tmp_path: Path, file_systems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    real = os.scandir

    def refusing(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    flush_folder(str(tmp_path), leave_out=".")
    assert file_systems == [str(tmp_path)]


def test_of_very_many_files_only_a_few_are_listed(
    tmp_path: Path, file_systems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in range(1000):
        (tmp_path / str(name)).write_text("")
    listed = []
    real = os.scandir

    @contextmanager
    def noting(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(path) as entries:
            yield (listed.append(entry.name) or entry for entry in entries)

    monkeypatch.setattr(os, "scandir", noting)
    flush_folder(str(tmp_path), leave_out=".")
    assert file_systems == [str(tmp_path)]
    assert len(listed) < 100


@pytest.mark.parametrize("is_ours", [False, True])
def test_what_the_file_system_has_lost_may_be_somebody_elses(
    is_ours: bool, tmp_path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was full half an hour ago says so to whoever asks next about all of it."""

    def failing(path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(flush, "_flush_file_system", failing)
    for name in range(100):
        (tmp_path / str(name)).write_text("")
    if not is_ours:
        flush_folder(str(tmp_path), leave_out=".")
        assert sorted(flushed) == sorted([str(tmp_path), *(str(tmp_path / str(name)) for name in range(100))])
        return
    fsync = os.fsync

    def losing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/42"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", losing)
    with pytest.raises(OSError, match=rf"Input/output error: '{tmp_path}/42'"):
        flush_folder(str(tmp_path), leave_out=".")


@pytest.mark.parametrize(
    ("number", "fails"),
    [(errno.EINVAL, False), (errno.ENOENT, False), (errno.ESTALE, False), (errno.EIO, True), (errno.ENOSPC, True)],
)
def test_what_the_disk_refuses_is_said_and_what_it_does_not_know_is_not(
    number: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("")

    def failing(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    if not fails:
        flush_folder(str(tmp_path), leave_out=".")
        return
    with pytest.raises(OSError, match=rf"{os.strerror(number)}: '{tmp_path}/x'"):
        flush_folder(str(tmp_path), leave_out=".")
