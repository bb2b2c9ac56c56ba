"""Files over HTTP: whatever the server does, a file is whole and right or has failed by name; no byte comes twice."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.download import FilesystemSource, RemoteFile, UrlSource
from support.file_server import Answer, FileServer, etag_of

BODY = random.Random(7).randbytes(3_000_000)
TAG = {"ETag": etag_of(BODY)}


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def whole(**changes: Any) -> Answer:
    return Answer(BODY, headers=dict(TAG), **changes)


def test_files_with_their_sizes_and_digests(
    server: FileServer, fetch: Any, contents: Any, manifest: Any, out: Path
) -> None:
    urls = [server.add("/a.bin", BODY), RemoteFile(server.add("/b", b"b"), "deep/b.txt", sha256(b"b"), 1)]
    assert fetch(UrlSource(urls), licence="CC0-1.0") == {"files": 2, "bytes": len(BODY) + 1}
    assert contents() == {"a.bin": BODY, "deep/b.txt": b"b"}
    assert manifest()["contents"] == {
        "a.bin": {"size": len(BODY), "sha256": sha256(BODY)},
        "deep/b.txt": {"size": 1, "sha256": sha256(b"b")},
    }
    assert '"licence": "CC0-1.0"' in (out / "provenance.json").read_text()
    assert not (out / ".partial").exists()


def test_the_second_run_fetches_nothing_and_changes_nothing(server: FileServer, fetch: Any, out: Path) -> None:
    source = UrlSource([server.add("/a", BODY), server.add("/b", b"b")])
    fetch(source)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    fetch(source)
    assert sorted(server.paths()) == ["/a", "/b"]
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    (out / "b").unlink()
    fetch(source)
    assert sorted(server.paths()) == ["/a", "/b", "/b"], "only what is missing"


def test_a_cut_connection_goes_on_where_it_ended(server: FileServer, fetch: Any, contents: Any) -> None:
    url = server.add("/a", whole(cut_after=1_000_000), whole(cut_after=500_000), whole())
    fetch(UrlSource([url]))
    assert contents() == {"a": BODY}
    assert server.sent["/a"] == len(BODY), "no byte came twice"
    assert [request.headers.get("Range") for request in server.requests] == [
        None,
        "bytes=1000000-",
        "bytes=1500000-",
    ]
    assert server.requests[1].headers["If-Range"] == TAG["ETag"]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([whole(cut_after=1000), whole(ranges=False)], "a server that ignores the range"),
        ([Answer(BODY[::-1], headers={"ETag": '"old"'}, cut_after=1000), whole()], "a file that changed in between"),
        (
            [Answer(BODY[::-1], headers={"ETag": '"old"'}, cut_after=1000), whole(heed_if_range=False), whole()],
            "one that changed, on a server that ignores If-Range",
        ),
        ([Answer(BODY, headers={"ETag": 'W/"weak"'}, cut_after=1000), whole()], "a version without an exact name"),
        ([Answer(BODY, cut_after=1000), whole()], "a version without a name"),
        (
            [whole(cut_after=1000), Answer(BODY[1000:], 206, {**TAG, "Content-Range": "bytes 7-9/3000000"}), whole()],
            "another part",
        ),
        (
            [
                Answer(BODY[::-1], headers={"ETag": '"old"'}, cut_after=1000),
                Answer(BODY[1000:], 206, {"Content-Range": f"bytes 1000-2999999/{len(BODY)}"}),
                whole(),
            ],
            "a part of a version without a name, of a file that changed in between",
        ),
        (
            [
                whole(cut_after=1000),
                Answer(BODY[999:], 206, {**TAG, "Content-Range": "bytes 1000-3000000/3000001"}),
                whole(),
            ],
            "a part of a file of another length",
        ),
        ([Answer(status=500), Answer(status=503), whole()], "a server with hiccups"),
        ([Answer(status=429, headers={"Retry-After": "0"}), whole()], "a server that asks to wait"),
        ([Answer(status=429, headers={"Retry-After": "\xb2"}), whole()], "a server that asks to wait for nonsense"),
        ([whole(length=len(BODY) + 5), whole(ranges=False)], "half a file"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_the_file_is_right_in_spite_of(
    answers: list[Answer], why: str, server: FileServer, fetch: Any, contents: Any
) -> None:
    fetch(UrlSource([server.add("/a", *answers)]))
    assert contents() == {"a": BODY}, why


def test_a_part_without_the_name_of_its_version_is_taken_if_a_digest_tells(
    server: FileServer, fetch: Any, contents: Any
) -> None:
    part = Answer(BODY[1000:], 206, {"Content-Range": f"bytes 1000-2999999/{len(BODY)}"})
    url = server.add("/a", whole(cut_after=1000), part)
    fetch(UrlSource([RemoteFile(url, sha256=sha256(BODY))]))
    assert contents() == {"a": BODY}
    assert server.sent["/a"] == len(BODY)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/a", "redirected too often"),
        ("file:///etc/passwd", "redirected to something that is not an http"),
        ("ftp://x/y", "redirected to something that is not an http"),
    ],
)
def test_redirects_that_lead_nowhere_are_not_tried_again(
    target: str, why: str, server: FileServer, fetch: Any, out: Path
) -> None:
    url = server.add("/a", Answer(status=302, headers={"Location": target}))
    with pytest.raises(DataError, match=rf"/a: {why}"):
        fetch(UrlSource([url]))
    assert len(server.requests) <= 31
    assert not (out / "a").exists()


def test_what_attempts_that_were_killed_have_left_is_removed(server: FileServer, fetch: Any, out: Path) -> None:
    left = out / ".partial" / "tmp1234" / "words-1.0.0.tgz"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a package")
    fetch(UrlSource([server.add("/a", whole())]))
    assert not (out / ".partial").exists()


def test_a_shorter_length_than_the_file_is_noticed_by_its_digest(server: FileServer, fetch: Any, out: Path) -> None:
    url = server.add("/a", Answer(BODY[:1000], headers={"ETag": '"x"'}))
    with pytest.raises(DataError, match=f"a: its sha256 is {sha256(BODY[:1000])}, not {sha256(BODY)}"):
        fetch(UrlSource([RemoteFile(url, sha256=sha256(BODY))]))
    assert not (out / "a").exists()
    with pytest.raises(DataError, match="a: it has 1,000 bytes, not 3,000,000"):
        fetch(UrlSource([RemoteFile(url, size=len(BODY))]))
    assert not (out / "manifest.json").exists()


def test_a_wrong_file_is_fetched_once_more(server: FileServer, fetch: Any, contents: Any) -> None:
    fetch(UrlSource([RemoteFile(server.add("/a", b"garbled", BODY), sha256=sha256(BODY))]))
    assert contents() == {"a": BODY}


def test_an_answer_of_unknown_length_needs_a_digest(server: FileServer, fetch: Any, contents: Any) -> None:
    url = server.add("/a", whole(length=-1))
    with pytest.raises(DataError, match="does not say how long it is"):
        fetch(UrlSource([url]))
    fetch(UrlSource([RemoteFile(url, sha256=sha256(BODY))]))
    assert contents() == {"a": BODY}


def test_a_file_that_fails_keeps_no_other_from_coming(server: FileServer, fetch: Any, contents: Any) -> None:
    source = UrlSource(
        [server.add("/a", b"a"), server.url + "/gone", server.add("/c", Answer(status=500)), server.add("/d", b"d")]
    )
    with pytest.raises(
        DataError, match=r"2 of 4 files failed.*c: answered with 500, 4 times in a row.*/gone is answered with 404"
    ):
        fetch(source)
    assert contents() == {"a": b"a", "d": b"d"}
    server.add("/gone", b"gone")
    server.add("/c", b"c")
    fetch(source)
    assert contents() == {"a": b"a", "c": b"c", "d": b"d", "gone": b"gone"}
    assert server.paths().count("/a") == 1


def test_a_server_that_asks_for_hours_is_reported(server: FileServer, fetch: Any) -> None:
    url = server.add("/a", Answer(status=429, headers={"Retry-After": "7200"}))
    with pytest.raises(DataError, match="asks to come back in 7,200 seconds"):
        fetch(UrlSource([url]))
    assert server.paths() == ["/a"]


def test_a_server_that_is_not_there(fetch: Any) -> None:
    with pytest.raises(DataError, match=r"a: could not connect, 4 times in a row: http://127\.0\.0\.1:9/a"):
        fetch(UrlSource(["http://127.0.0.1:9/a?key=SECRET"]))


def test_queries_stay_out_of_files_and_messages(
    server: FileServer, fetch: Any, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch(UrlSource([server.add("/a", Answer(status=500), whole(cut_after=7), whole()) + "?key=SECRET"]))
    with pytest.raises(DataError) as refused:
        fetch(UrlSource([f"{server.url}/gone?key=SECRET"]))
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file()).replace(BODY, b"")
    assert b"SECRET" not in written
    assert "SECRET" not in str(refused.value)
    said = capfd.readouterr()
    assert "again in" in said.out
    assert "SECRET" not in said.out + said.err


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "without files"),
        (["http://h/a", "http://other/a"], "two files are called a"),
        (["http://h/"], "ends without a file name"),
        (["ftp://h/a"], "not an http"),
        (["http://user:password@h/a"], r"~/\.netrc"),
        (["http://h/%2e%2e%2fetc"], "not a plain relative name"),
        ([RemoteFile("http://h/a", "../a")], "not a plain relative name"),
        ([RemoteFile("http://h/a", "manifest.json")], "a name that the step itself needs"),
        ([RemoteFile("http://h/a", sha256="ABC")], "is not a sha256"),
    ],
)
def test_lists_that_are_refused(files: Any, why: str, fetch: Any, out: Path) -> None:
    with pytest.raises(DataError, match=why) as refused:
        fetch(UrlSource(files))
    assert "password@" not in str(refused.value)
    assert not out.exists()


def test_tasks_share_the_files_and_the_last_writes_the_manifest(
    server: FileServer, fetch: Any, manifest: Any, out: Path, as_task: Any
) -> None:
    source = UrlSource([server.add(f"/{number}", b"%d" % number) for number in range(7)])
    fetch(source, output_path=str(out.parent / "alone"))
    alone = {path.name: path.read_bytes() for path in (out.parent / "alone").rglob("*") if path.is_file()}
    server.requests.clear()
    for task in (2, 0, 1):
        assert not (out / "manifest.json").exists()
        as_task(task, 3)
        fetch(source)
    assert sorted(server.paths()) == [f"/{number}" for number in range(7)], "each file once"
    assert {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()} == alone


CHILD = """
import sys
from marin_rules.pipeline.download import *
download(DownloadConfig(UrlSource([sys.argv[1]]), output_path=sys.argv[2]))
"""


@pytest.mark.processes
def test_a_killed_download_goes_on(server: FileServer, fetch: Any, contents: Any, out: Path) -> None:
    reached, killed = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        killed.wait(60)

    sent = 2_500_000
    url = server.add("/a", whole(cut_after=sent, pause=pause), whole())
    child = subprocess.Popen([sys.executable, "-c", CHILD, url, str(out)], stdout=subprocess.DEVNULL)
    try:
        assert reached.wait(60)
        while not any(path.stat().st_size > 1_000_000 for path in (out / ".partial").glob("*")):
            assert child.poll() is None
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        killed.set()
    assert contents() == {}
    kept = max(path.stat().st_size for path in (out / ".partial").glob("*"))
    fetch(UrlSource([url]))
    assert contents() == {"a": BODY}
    assert server.requests[-1].headers["Range"] == f"bytes={kept}-"
    assert server.sent["/a"] == sent + len(BODY) - kept, "only what was not on disk came again"


def test_a_file_that_another_process_fetches_is_refused(
    server: FileServer, fetch: Any, contents: Any, out: Path
) -> None:
    reached, done = threading.Event(), threading.Event()
    url = server.add("/a", whole(cut_after=1000, pause=lambda: (reached.set(), done.wait(60))), whole())
    first = threading.Thread(target=fetch, args=(UrlSource([url]),))
    first.start()
    assert reached.wait(60)
    with pytest.raises(DataError, match="a is being fetched by another process"):
        fetch(UrlSource([url]))
    done.set()
    first.join()
    assert contents() == {"a": BODY}


@pytest.mark.processes
def test_a_full_disk(server: FileServer, out: Path, tmp_path: Path) -> None:
    """As a limit on the size of files, which the system reports in the same way, while writing."""
    source = server.add("/small", b"small"), server.add("/large", whole())
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
        "from marin_rules.pipeline.download import *\n"
        "download(DownloadConfig(UrlSource(sys.argv[2:]), output_path=sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(out), *source], capture_output=True, text=True)
    assert done.returncode == 1
    assert "1 of 2 files failed, and the others are here: large: [Errno 27] File too large" in done.stderr
    assert (out / "small").read_bytes() == b"small"
    assert not (out / "large").exists()
    subprocess.run([sys.executable, "-c", CHILD, source[1], str(out)], check=True, stdout=subprocess.DEVNULL)
    assert (out / "large").read_bytes() == BODY
    assert server.paths().count("/small") == 1


def test_any_file_system(fetch: Any, contents: Any, tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({"/pages/a.txt": b"a", "/pages/b/c.txt": BODY, "/pages/d.bin": b"d"})
    try:
        fetch(FilesystemSource("memory://pages", patterns=["*.txt"]))
        assert contents() == {"a.txt": b"a", "b/c.txt": BODY}
        with pytest.raises(DataError, match=r"no file of memory://pages fits the patterns \['\*\.csv'\].*3 files"):
            fetch(FilesystemSource("memory://pages", patterns=["*.csv"]), output_path=str(tmp_path / "none"))
    finally:
        memory.rm("/pages", recursive=True)


def test_a_file_that_has_grown_since_is_fetched_again(fetch: Any, contents: Any, out: Path, tmp_path: Path) -> None:
    """An attempt that failed may have left files of last week."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_bytes(b"old")
    fetch(FilesystemSource(str(folder)))
    (out / "manifest.json").unlink()
    (folder / "a.txt").write_bytes(b"new and longer")
    fetch(FilesystemSource(str(folder)))
    assert contents() == {"a.txt": b"new and longer", "b.txt": b"old"}


def test_files_that_the_source_no_longer_has_are_removed(fetch: Any, contents: Any, out: Path, tmp_path: Path) -> None:
    """Whether the download was finished or not; what somebody else has put there is left alone."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_text(name)
    fetch(FilesystemSource(str(source)))
    (out / "notes").write_text("somebody's")
    (source / "a").unlink()
    (out / ".executor_again").write_text('{"id": "1", "after_done": "1"}')
    fetch(FilesystemSource(str(source)))
    assert visible(contents()) == {"b": b"b", "c": b"c", "notes": b"somebody's"}
    (out / "manifest.json").unlink()
    (source / "b").unlink()
    fetch(FilesystemSource(str(source)))
    assert visible(contents()) == {"c": b"c", "notes": b"somebody's"}
    assert sorted(path.name for path in (out / ".fetched").iterdir()) == ["c.json"]


@pytest.mark.parametrize("list_of_files", ["manifest.json", ".fetched/gone.json"])
def test_lists_that_somebody_has_written_remove_nothing_elsewhere(
    list_of_files: str, fetch: Any, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("a")
    (out / ".fetched").mkdir(parents=True)
    (out / list_of_files).write_text('{"contents": {"../mine": {}}, "files": {"../mine": {}}}')
    with pytest.raises(DataError, match=rf"{list_of_files} has a file named '\.\./mine', which is not a plain"):
        fetch(FilesystemSource(str(tmp_path / "source")))
    assert (tmp_path / "mine").read_text() == "precious"


def visible(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: body for name, body in files.items() if not name.startswith(".")}


def test_into_a_url(server: FileServer, fetch: Any) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    try:
        source = UrlSource([server.add("/a", whole(cut_after=1000), whole())])
        fetch(source, output_path="memory://fetched/into")
        fetch(source, output_path="memory://fetched/into")
        assert memory.cat("/fetched/into/a") == BODY
        assert server.sent["/a"] == len(BODY)
    finally:
        memory.rm("/fetched", recursive=True)
