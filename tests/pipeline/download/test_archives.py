"""Archives: taken apart into the same files whatever their format, and refused when they mean harm."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.download import RemoteFile, UrlSource
from marin_rules.pipeline.download.archives import UnpackLimits
from support.file_server import FileServer

FILES = {"a.txt": b"a" * 1000, "deep/b.txt": b"b"}


def tar(files: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(body), 0o4777
            archive.addfile(entry, io.BytesIO(body))
        for entry in others:
            archive.addfile(entry)
    return buffer.getvalue()


def zipped(files: dict[str, bytes], *links: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
        for name in links:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o120777 << 16
            archive.writestr(entry, "/etc/passwd")
    return buffer.getvalue()


def deb(files: dict[str, bytes]) -> bytes:
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": lzma.compress(tar({})),
        "data.tar.xz": lzma.compress(tar(files)),
    }
    made = b"!<arch>\n"
    for name, body in parts.items():
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    return made


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "x.tar": bytes,
    "x.tar.gz": gzip.compress,
    "x.tgz": gzip.compress,
    "x.tar.bz2": bz2.compress,
    "x.tar.xz": lzma.compress,
    "x.tar.zst": zstandard.compress,
}

FORMATS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    **{name: lambda files, compress=compress: compress(tar(files)) for name, compress in COMPRESS.items()},
    "x.zip": zipped,
    "x.deb": deb,
}


@pytest.mark.parametrize("name", FORMATS)
def test_taken_apart_or_kept(
    name: str, server: FileServer, fetch: Any, contents: Any, manifest: Any, tmp_path: Path
) -> None:
    body = FORMATS[name](FILES)
    source = UrlSource([server.add(f"/{name}", body)])
    fetch(source, archives="unpack")
    assert contents() == {f"x/{member}": text for member, text in FILES.items()}
    assert list(manifest()["contents"]) == ["x/a.txt", "x/deep/b.txt"]
    assert list(manifest()["archives"]) == [name]
    fetch(source, archives="unpack")
    assert server.paths() == [f"/{name}"]
    fetch(source, output_path=str(tmp_path / "kept"))
    assert (tmp_path / "kept" / name).read_bytes() == body


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bad", ["../evil", "/etc/evil", "a/../../evil", "a\\..\\evil", "a\nb"])
def test_names_that_lead_elsewhere(name: str, bad: str, server: FileServer, fetch: Any, tmp_path: Path) -> None:
    source = UrlSource([server.add(f"/{name}", FORMATS[name]({**FILES, bad: b"evil"}))])
    with pytest.raises(DataError, match=rf"{name}.*(not a plain relative name|two files)"):
        fetch(source, archives="unpack")
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_names_that_are_not_utf8(server: FileServer, fetch: Any, out: Path) -> None:
    source = UrlSource([server.add("/x.tar", tar({**FILES, "caf\udce9.txt": b"c"}))])
    with pytest.raises(DataError, match=r"x\.tar has a file whose name is not UTF-8, 'caf\\udce9\.txt'"):
        fetch(source, archives="unpack")
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize("name", [".executor_status.tar", ".fetched.tar", "manifest.json.zip", ".tar", "a/.tar.gz"])
def test_archives_cannot_stand_where_the_step_writes(name: str, server: FileServer, fetch: Any, out: Path) -> None:
    url = server.add("/x", tar({".executor_status": b"SUCCESS"}))
    with pytest.raises(DataError, match=r"a name that the step itself needs|has no name that its files could stand"):
        fetch(UrlSource([RemoteFile(url, name)]), archives="unpack")
    assert not out.exists()


def test_links_and_devices_are_left_out_and_counted(
    server: FileServer, fetch: Any, contents: Any, manifest: Any
) -> None:
    entries = []
    for name, kind in (("soft", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)):
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/passwd"
        entries.append(entry)
    source = UrlSource([server.add("/t.tar", tar(FILES, *entries)), server.add("/z.zip", zipped(FILES, "soft"))])
    fetch(source, archives="unpack")
    assert set(contents()) == {f"{folder}/{name}" for folder in "tz" for name in FILES}
    assert manifest()["archives"]["t.tar"]["left_out"] == {"devices": 1, "links": 2}
    assert manifest()["archives"]["z.zip"]["left_out"] == {"links": 1}


def test_a_file_through_a_link_stays_inside(server: FileServer, fetch: Any, tmp_path: Path, out: Path) -> None:
    """An archive that makes a link to another folder, and then a file in it."""
    link = tarfile.TarInfo("door")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    body = tar({}, link)[:512] + tar({"door/evil": b"evil"})
    fetch(UrlSource([server.add("/t.tar", body)]), archives="unpack")
    assert (out / "t/door/evil").read_bytes() == b"evil"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tar.xz", "x.tar.zst", "x.zip"])
def test_bombs(name: str, server: FileServer, fetch: Any, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "marin_rules.pipeline.download.archives._FREE_BYTES", 1 << 20
    )  # A bomb of 1 GiB takes a minute.
    source = UrlSource([server.add(f"/{name}", FORMATS[name]({"zeros": bytes(20 << 20)}))])
    with pytest.raises(DataError, match=rf"{name} has .* and unpacks to more than .*: refused as a bomb, at 'zeros'"):
        fetch(source, archives="unpack")
    assert not (out / "x" / "zeros").exists()
    with pytest.raises(DataError, match="more than 1 files"):
        fetch(UrlSource([server.add("/y.tar", tar(FILES))]), archives="unpack", limits=UnpackLimits(most_files=1))


@pytest.mark.parametrize("name", FORMATS)
def test_cut_archives_are_named(name: str, server: FileServer, fetch: Any, out: Path) -> None:
    body = FORMATS[name]({"a": bytes(range(256)) * 40})
    with pytest.raises(DataError, match=rf"{name}.*(cannot be unpacked|is not a Debian package)"):
        fetch(UrlSource([server.add(f"/{name}", body[: len(body) // 2])]), archives="unpack")
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize("name", COMPRESS)
def test_an_archive_cut_between_two_members_is_whole_only_by_its_digest(
    name: str, server: FileServer, fetch: Any, out: Path
) -> None:
    cut = COMPRESS[name](tar({"a": b"a" * 512, "b": b"b"})[:1024])  # The head of a member, and what is in it.
    url = server.add(f"/{name}", cut)
    with pytest.raises(DataError, match=r"it has no end marker, so it may have been cut.* give its digest"):
        fetch(UrlSource([url]), archives="unpack")
    assert not (out / "manifest.json").exists()
    fetch(UrlSource([RemoteFile(url, sha256=hashlib.sha256(cut).hexdigest())]), archives="unpack")
    assert (out / "x" / "a").read_bytes() == b"a" * 512


def test_two_archives_into_one_folder_are_refused(server: FileServer, fetch: Any) -> None:
    with pytest.raises(DataError, match=r"both a\.tar and a\.zip would become a"):
        fetch(UrlSource([server.url + "/a.tar", server.url + "/a.zip"]), archives="unpack")


def test_files_that_an_archive_no_longer_has_are_removed(
    server: FileServer, fetch: Any, manifest: Any, out: Path
) -> None:
    source = UrlSource([server.add("/x.zip", zipped(FILES))])
    fetch(source, archives="unpack")
    server.add("/x.zip", zipped({"deep/b.txt": b"new"}))
    (out / ".executor_again").write_text('{"id": "1", "after_done": "1"}')
    fetch(source, archives="unpack")
    assert {path.name: path.read_bytes() for path in (out / "x").rglob("*.txt")} == {"b.txt": b"new"}
    assert list(manifest()["contents"]) == ["x/deep/b.txt"]


def test_a_file_that_two_archives_have_is_refused(server: FileServer, fetch: Any, out: Path) -> None:
    inner, outer = server.add("/a/b.tar", tar({"x": b"inner"})), server.add("/a.tar", tar({"b/x": b"outer"}))
    with pytest.raises(DataError, match=r"both a\.tar and a/b\.tar have a file a/b/x: leave one out"):
        fetch(UrlSource([RemoteFile(inner, "a/b.tar"), outer]), archives="unpack")
    assert not (out / "manifest.json").exists()
