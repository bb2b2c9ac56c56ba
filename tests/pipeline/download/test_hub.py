"""Repositories of the Hugging Face hub, on a loopback server that speaks its API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.download import HubSource
from support.file_server import COMMIT, Answer, FileServer, add_repository

FILES = {
    ".gitattributes": b"*.parquet filter=lfs\n",
    "README.md": b"# Pages\n",
    "data/a.parquet": b"PAR1" * 5000,
    "data/b c.parquet": b"PAR2" * 5000,
    "other/d.parquet": b"PAR3" * 10,
}


@pytest.fixture
def hub(server: FileServer, storage: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    add_repository(server, storage, "me/pages", FILES)
    add_repository(server, storage, "me/model", {"config.json": b"{}"}, kind="model")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_SECRET")
    return server


def test_a_data_set(hub: FileServer, fetch: Any, contents: Any, out: Path) -> None:
    fetch(HubSource("me/pages", COMMIT))
    assert contents() == FILES
    count = len(hub.requests)
    fetch(HubSource("me/pages", COMMIT))
    assert all("/api/" in path for path in hub.paths()[count:]), "only the listing is asked for again"
    provenance = (out / "provenance.json").read_text()
    assert COMMIT in provenance
    assert hub.url not in provenance


def test_a_model(hub: FileServer, fetch: Any, contents: Any) -> None:
    fetch(HubSource("me/model", COMMIT, "model"))
    assert contents() == {"config.json": b"{}"}


def test_patterns(hub: FileServer, fetch: Any, contents: Any) -> None:
    fetch(HubSource("me/pages", COMMIT, patterns=["*.parquet"], leave_out=["other/*"]))
    assert set(contents()) == {"data/a.parquet", "data/b c.parquet"}
    with pytest.raises(
        DataError, match=r"no file of me/pages at 0123\w+ fits .*\*\.csv.*it has 5 files \(\.gitattributes"
    ):
        fetch(HubSource("me/pages", COMMIT, patterns=["*.csv"]))


def test_the_token_goes_to_the_hub_alone(
    hub: FileServer, storage: FileServer, fetch: Any, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch(HubSource("me/pages", COMMIT))
    assert {request.headers.get("Authorization") for request in hub.requests} == {"Bearer hf_SECRET"}
    assert storage.requests
    assert {request.headers.get("Authorization") for request in storage.requests} == {None}
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    said = capfd.readouterr()
    for secret in ("hf_SECRET", "SIGNED"):
        assert secret.encode() not in written
        assert secret not in said.out + said.err


def test_a_listing_without_end_is_refused(hub: FileServer, fetch: Any) -> None:
    again = Answer(b"[]", headers={"Link": '<?recursive=true>; rel="next"'})
    hub.add(f"/api/datasets/me/pages/tree/{COMMIT}", again, again, Answer(status=404))
    with pytest.raises(DataError, match="me/pages: the hub's listing leads back to where it was"):
        fetch(HubSource("me/pages", COMMIT))


@pytest.mark.parametrize("revision", ["main", "v1.0", "", COMMIT[:12], COMMIT.upper()])
def test_a_revision_that_moves_is_refused(revision: str, hub: FileServer, fetch: Any) -> None:
    with pytest.raises(DataError, match=r"me/pages: the revision is .* not a commit.*git ls-remote"):
        fetch(HubSource("me/pages", revision))
    assert hub.requests == []


def test_refusals_say_what_to_try(hub: FileServer, fetch: Any) -> None:
    with pytest.raises(DataError, match=r"answered with 404\. Is the repository or the commit misspelt.*HF_TOKEN"):
        fetch(HubSource("me/nothing", COMMIT))
    hub.add(f"/datasets/me/pages/resolve/{COMMIT}/README.md", Answer(status=403))
    with pytest.raises(DataError, match=r"1 of 5 files failed.*README.md is answered with 403.*gated"):
        fetch(HubSource("me/pages", COMMIT))


def test_contents_are_compared_with_the_listing(
    hub: FileServer, storage: FileServer, fetch: Any, contents: Any
) -> None:
    hub.add(f"/datasets/me/pages/resolve/{COMMIT}/README.md", b"# Pagez\n")
    (large,) = [path for path, (answer,) in storage.answers.items() if answer.body == FILES["data/a.parquet"]]
    storage.add(large, b"PARx" * 5000)
    with pytest.raises(DataError, match=r"README\.md: its git hash is .*; data/a\.parquet: its sha256 is"):
        fetch(HubSource("me/pages", COMMIT))
    assert set(contents()) == {".gitattributes", "data/b c.parquet", "other/d.parquet"}


def test_a_cut_file_in_large_storage_goes_on(hub: FileServer, storage: FileServer, fetch: Any, contents: Any) -> None:
    for path, (answer,) in list(storage.answers.items()):
        storage.add(path, Answer(answer.body, headers=answer.headers, cut_after=11), answer)
    fetch(HubSource("me/pages", COMMIT))
    assert contents() == FILES
    assert all(storage.sent[path] == len(answer.body) for path, (answer,) in storage.answers.items())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(b"<html>a login page</html>"), "does not answer with a list of files"),
        (Answer(b"[]", headers={"X-Repo-Commit": "f" * 40}), "the hub answers with ffff"),
        (Answer(b'[{"type": "file", "path": "../evil", "oid": "", "size": 1}]'), "not a plain relative name"),
        (Answer(b'[{"type": "file", "path": 5}]'), "does not answer with a list of files"),
        (Answer(b'[{"type": "file", "path": "a", "size": "9"}]'), "does not answer with a list of files"),
        (Answer(b'[{"type": "file", "path": "a", "lfs": {"oid": "00"}}]'), "does not answer with a list of files"),
        (Answer(b'[{"type": "file", "path": "\\ud800"}]'), r"a file whose name is not UTF-8, '\\ud800'"),
        (Answer(b'[{"type": "file", "path": ".executor_log"}]'), "a name that the step itself needs"),
        (Answer(b'[{"type": "file", "path": ".artifact.json"}]'), "a name that the step itself needs"),
        (Answer(b"[]", headers={"Link": '<http://elsewhere.test/x>; rel="next"'}), "another host"),
        (Answer(status=500), "answered with 500, 4 times in a row"),
    ],
)
def test_listings_that_are_refused(answer: Answer, why: str, hub: FileServer, fetch: Any) -> None:
    hub.add(f"/api/datasets/me/pages/tree/{COMMIT}", answer)
    with pytest.raises(DataError, match=why):
        fetch(HubSource("me/pages", COMMIT))
