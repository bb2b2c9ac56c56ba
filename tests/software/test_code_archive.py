"""The package as an archive: what is in it, what it is called, and how it gets to the prefix."""

from __future__ import annotations

import io
import os
import shutil
import socket
import threading
import zipfile
from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.project import PACKAGE
from marin_rules.software.code_archive import CodeArchive, package_files, publish, unpacked
from marin_rules.storage.explain import StorageError
from support.emulators.gcs.emulator import GcsEmulator

FILES = {"pkg/b.py": b"B = 2\n", "pkg/a.py": b"A = 1\n"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pkg"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "code.py").write_text("X = 1\n")
    (folder / "inner" / "run-step").write_text("#!/bin/sh\n")
    return folder


def names_in(archive: CodeArchive) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive.data)).namelist()


def test_equal_content_has_an_equal_digest_whatever_its_order_and_dates() -> None:
    again = CodeArchive.of(dict(reversed(FILES.items())))
    assert again.data == CodeArchive.of(FILES).data
    # Pinned: archives that are in a bucket already serve the next release of Python, too.
    assert again.digest == "2be13d2af629b035ed954106d207438b2660545eb4c8de3381217fe4ef190bd0"
    assert CodeArchive.of({**FILES, "pkg/a.py": b"A = 2\n"}).digest != again.digest


def test_the_package_is_whole_and_the_same_from_every_copy(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "_workflow"))
    ours = CodeArchive.of(package_files())
    assert CodeArchive.of(package_files(tmp_path / PACKAGE.name)) == ours
    names = names_in(ours)
    assert {"marin_rules/__init__.py", "marin_rules/worker/run-step", "marin_rules/worker/__main__.py"} <= {*names}
    assert not [name for name in names if "__pycache__" in name or not name.startswith("marin_rules/")]


def test_what_is_no_code_stays(package: Path) -> None:
    expected = package_files(package)
    assert sorted(expected) == ["pkg/__init__.py", "pkg/inner/code.py", "pkg/inner/run-step"]
    (package / ".env").write_text("TOKEN=secret\n")
    (package / ".git").mkdir()
    (package / ".git" / "config").write_text("")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "code.pyc").write_bytes(b"")
    (package / "dangling.py").symlink_to(package / "nowhere")
    (package / "loop").symlink_to(package)
    os.mkfifo(package / "pipe.py")
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.getcwd()
        os.chdir(package)  # Names of sockets are short.
        listening.bind("socket.py")
        os.chdir(before)
        assert package_files(package) == expected


def test_a_linked_file_is_as_good_as_a_file(package: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("Y = 1\n")
    (package / "linked.py").symlink_to(tmp_path / "elsewhere.py")
    assert package_files(package)["pkg/linked.py"] == b"Y = 1\n"


def test_a_huge_file_is_refused_by_name_and_not_read(package: Path) -> None:
    with (package / "inner" / "weights.bin").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(SettingsError, match=r"weights\.bin \(2048 MB\)"):
        package_files(package)


def test_what_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    (tmp_path / "code").write_text("in the way")
    with pytest.raises(StorageError, match=f"cannot unpack marin-rules to {tmp_path}/code/[0-9a-f]{{64}}: "):
        unpacked(CodeArchive.of(FILES), str(tmp_path / "code"))


@pytest.mark.parametrize("scheme", ["file", pytest.param("gs", marks=pytest.mark.processes)])
def test_it_is_published_once_and_mended_when_it_is_damaged(
    scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    said: list[str] = []
    archive = CodeArchive.of(FILES)
    if scheme == "gs":
        gcs: GcsEmulator = request.getfixturevalue("gcs_here")
        folder = "gs://bucket/x/experiments"
    else:
        folder = str(tmp_path / "experiments")
    path = publish(archive, folder, said.append)
    assert path == f"{folder}/.code/{archive.digest}.zip"
    assert publish(archive, folder, said.append) == path
    assert said == []
    if scheme == "gs":
        name = path.removeprefix("gs://bucket/")
        assert gcs.history("bucket", name) == [archive.data]
        gcs.put("bucket", name, b"other code")
    else:
        Path(path).write_bytes(b"other code")
    publish(archive, folder, said.append)
    (remark,) = said
    assert path in remark
    assert "replaced" in remark
    assert publish(archive, folder, said.append) == path
    assert len(said) == 1


def test_drivers_that_publish_at_the_same_time_write_it_once(gcs_here: GcsEmulator) -> None:
    archive = CodeArchive.of(FILES)
    together = threading.Barrier(4)
    said: list[str] = []

    def drive() -> None:
        together.wait()
        publish(archive, "gs://bucket/x", said.append)

    drivers = [threading.Thread(target=drive) for _ in range(4)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert gcs_here.history("bucket", f"x/.code/{archive.digest}.zip") == [archive.data]
    assert said == []
