"""The contract of the small control files, for local paths and for URLs."""

import errno
import os
import pickle
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from marin_rules.storage.files import (
    StorageError,
    check_directory,
    file_size,
    local_path,
    make_directory,
    modified_time,
    read_bytes,
    read_part,
    write_atomic,
    write_new,
)
from marin_rules.urls import is_url


@pytest.fixture(params=["local", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place, in each way of naming one."""
    return {
        "local": str(tmp_path),
        "file": f"file://{tmp_path}",
        "memory": f"memory://{uuid.uuid4().hex}",
    }[request.param]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gs://bucket/key", True),
        ("s3://bucket", True),
        ("mirror://tokenized/x", True),
        ("simplecache::gs://bucket/key", True),
        ("/data/x", False),
        ("data/x", False),
        ("", False),
        ("file:///data/x", False),
        ("/raw/https://example.org/page", False),
        ("raw/https://example.org/page", False),
    ],
)
def test_a_url_has_a_scheme_that_is_not_local(path: str, expected: bool) -> None:
    assert is_url(path) is expected


def test_of_several_who_create_a_file_the_first_does(root: str) -> None:
    path = f"{root}/file"
    assert [write_new(path, data) for data in (b"one", b"two")] == [True, False]
    assert read_bytes(path) == b"one"
    if not is_url(root):
        assert os.listdir(local_path(root)) == ["file"]


def test_local_path_takes_the_scheme_off() -> None:
    assert local_path("file:///data/x") == "/data/x"
    assert local_path("/data/x") == "/data/x"
    assert local_path("/raw/file://x") == "/raw/file://x"


def test_an_absent_file_is_none(root: str) -> None:
    assert read_bytes(f"{root}/absent") is None
    assert read_bytes(f"{root}/absent/below") is None
    assert modified_time(f"{root}/absent") is None


def test_below_a_file_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert read_bytes(f"{tmp_path}/file/below") is None
    assert modified_time(f"{tmp_path}/file/below") is None


def test_what_is_written_is_read_and_overwritten(root: str) -> None:
    path = f"{root}/deep/er/status"
    write_atomic(path, b"RUNNING")
    assert read_bytes(path) == b"RUNNING"
    write_atomic(path, b"")
    assert read_bytes(path) == b""


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 1_000_000])
def test_every_size_comes_back(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    write_atomic(str(tmp_path / "file"), data)
    assert read_bytes(str(tmp_path / "file")) == data


def test_modified_time_is_when_it_was_written(root: str) -> None:
    path = f"{root}/status"
    write_atomic(path, b"x")
    written = modified_time(path)
    assert written is not None
    if not is_url(root):
        os.utime(local_path(path), (1_000_000.5, 1_000_000.5))
        assert modified_time(path) == 1_000_000.5


def test_make_directory_twice(root: str) -> None:
    make_directory(f"{root}/a/b")
    make_directory(f"{root}/a/b")
    write_atomic(f"{root}/a/b/c", b"x")
    assert read_bytes(f"{root}/a/b/c") == b"x"


def test_a_reader_that_has_the_old_file_open_keeps_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "status"
    write_atomic(str(path), b"old" * 1000)
    with open(path, "rb") as reader:
        write_atomic(str(path), b"new")
        assert reader.read() == b"old" * 1000


def test_a_relative_path_without_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomic("status", b"x")
    assert read_bytes("status") == b"x"
    assert os.listdir(tmp_path) == ["status"]


def test_the_file_gets_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"")
    write_atomic(str(tmp_path / "status"), b"")
    assert (tmp_path / "status").stat().st_mode == ordinary.stat().st_mode


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "read-only"),
    ],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, cause: str
) -> None:
    path = str(tmp_path / "status")
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageError) as caught:
            write_atomic(path, b"new")

    assert os.listdir(tmp_path) == ["status"]
    assert read_bytes(path) == b"old"
    message = str(caught.value)
    assert message.startswith(f"cannot write {path}: ")
    assert cause in message
    assert "\n" not in message
    assert caught.value.errno == code
    assert isinstance(caught.value.__cause__, OSError)


def test_the_advice_names_a_directory_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "makedirs", deny)
    with pytest.raises(StorageError, match=f"ls -ld '{tmp_path}'"):
        write_atomic(str(tmp_path / "deep" / "er" / "status"), b"x")


def test_what_stands_in_the_way_of_a_directory_shows_before_it_is_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for below in (file, file / "deep" / "er"):
        with pytest.raises(StorageError) as looked:
            check_directory(str(below))
        with pytest.raises(StorageError) as made:
            make_directory(str(below))
        assert str(looked.value) == str(made.value)
    for fine in (tmp_path, tmp_path / "deep" / "er"):
        check_directory(str(fine))
    check_directory("gs://bucket/key")
    assert os.listdir(tmp_path) == ["file"]


def test_a_disk_that_fills_up_in_the_middle_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real_write = str(tmp_path / "status"), os.write
    written: list[int] = []

    def write_three_bytes_once(descriptor: int, data: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(real_write(descriptor, data[:3]))
        return written[0]

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_three_bytes_once)
        with pytest.raises(StorageError, match="no space left"):
            write_atomic(path, b"SUCCESS")
    assert written == [3]
    assert os.listdir(tmp_path) == []


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real_write = str(tmp_path / "status"), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:2]))
        write_atomic(path, b"SUCCESS")
    assert read_bytes(path) == b"SUCCESS"


def test_an_interrupted_write_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_atomic(str(tmp_path / "status"), b"x")
    assert os.listdir(tmp_path) == []


def test_the_data_are_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_fsync, real_replace = os.fsync, os.replace
    calls: list[str] = []

    def noted_fsync(descriptor: int) -> None:
        calls.append("fsync")
        real_fsync(descriptor)

    def noted_replace(source: str, destination: str) -> None:
        calls.append("replace")
        real_replace(source, destination)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noted_fsync)
        patch.setattr(os, "replace", noted_replace)
        write_atomic(str(tmp_path / "status"), b"x")
    assert calls == ["fsync", "replace"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
def test_a_forbidden_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="permission denied"):
        write_atomic(str(tmp_path / "status"), b"x")
    tmp_path.chmod(0o700)


def test_other_errors_keep_their_kind_and_name_the_path(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        read_bytes(str(tmp_path))


def test_a_file_replaced_on_nfs_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real_read, stale = str(tmp_path / "status"), os.read, [True]
    write_atomic(path, b"SUCCESS")

    def read_stale_once(descriptor: int, size: int) -> bytes:
        if stale:
            stale.clear()
            raise OSError(errno.ESTALE, "Stale file handle")
        return real_read(descriptor, size)

    monkeypatch.setattr(os, "read", read_stale_once)
    assert read_bytes(path) == b"SUCCESS"


def test_trouble_with_a_url_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped, unused-ignore]

    def refuse(*_: object, **__: object) -> None:
        raise OSError("Forbidden: bucket/key")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(StorageError, match=r"cannot write memory://bucket/key: permission denied \(Forbidden.*Ask for"):
        write_atomic("memory://bucket/key", b"x")


def test_a_storage_error_survives_the_way_to_another_process() -> None:
    error = StorageError(errno.ENOSPC, "cannot write /x: no space left", "/x")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.errno, copy.filename) == (str(error), errno.ENOSPC, "/x")


@pytest.mark.processes
def test_local_files_never_import_fsspec(tmp_path: Path) -> None:
    program = f"""
import sys
from marin_rules.storage.files import make_directory, modified_time, read_bytes, write_atomic
path = {str(tmp_path / "deep" / "status")!r}
write_atomic(path, b"x"), read_bytes(path), modified_time(path), make_directory(path + ".d")
sys.exit("fsspec" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2]).returncode == 0


@pytest.mark.parametrize(
    ("start", "size", "part"),
    [
        (0, 4, b"0123"), (7, 99, b"789"), (10, 4, b""), (99, 4, b""),
        (-3, 3, b"789"), (-3, 2, b"78"), (-99, 99, b"0123456789"),
    ],
)  # fmt: skip
def test_a_part_of_a_file(root: str, start: int, size: int, part: bytes) -> None:
    path = f"{root}/log"
    assert read_part(path, start, size) is None
    assert file_size(path) is None
    write_atomic(path, b"0123456789")
    assert read_part(path, start, size) == part
    assert file_size(path) == 10
