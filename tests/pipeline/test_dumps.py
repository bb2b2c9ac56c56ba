"""Dumps in the shapes in which they are published, and every record of them accounted for."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from warcio.warcwriter import WARCWriter

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.shard_map import ShardSettings
from marin_rules.pipeline.dumps import DumpConfig, read_dump
from marin_rules.pipeline.extract import ExtractConfig, extract

PAGES = Path(__file__).parents[1] / "data" / "sqlite_pages"


def place(corpus: Any, name: str, body: bytes) -> str:
    path = Path(corpus.path("in"), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return str(corpus.path("in"))


def article(number: Any, name: Any = "A title", html: Any = "<p>x</p>") -> dict[str, Any]:
    url = f"https://wiki.test/{number}"
    return {"identifier": number, "name": name, "url": url, "article_body": {"html": html, "wikitext": "x"}}


def test_wikipedia(corpus: Any) -> None:
    bad = [article(1), article(3, html=None), article(None), {"identifier": 4, "name": "x"}, "no JSON"]
    lines = [article(1, "One"), article(2, "Zwölf"), *bad]
    body = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()
    given = place(corpus, "enwiki/0.ndjson", body)
    place(corpus, "enwiki/1.ndjson.gz", gzip.compress(json.dumps(article(7)).encode()))
    read_dump(DumpConfig(given, "wikipedia", output_path=corpus.path("out")))
    shards = corpus.read("out")
    assert shards["enwiki/0.jsonl.zst"] == [
        {"id": "1", "title": "One", "url": "https://wiki.test/1", "html": "<p>x</p>", "source": "wikipedia"},
        {"id": "2", "title": "Zwölf", "url": "https://wiki.test/2", "html": "<p>x</p>", "source": "wikipedia"},
    ]
    assert [record["id"] for record in shards["enwiki/1.jsonl.zst"]] == ["7"]
    assert corpus.summary("out")["rejected"] == {
        "no html in article_body": 2,
        "no identifier or name": 1,
        "not JSON": 1,
        "the id was there before": 1,
    }


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return buffer.getvalue()


@pytest.mark.parametrize("parts", [1, 3])
def test_ar5iv(parts: int, corpus: Any) -> None:
    articles = {f"no-problem/99{number:02}/{number}.0001.html": b"<p>%d</p>" % number for number in range(7)}
    others = {"README.txt": b"x", "large/9.html": b"x" * 2000}
    given = place(corpus, "ar5iv.zip", zipped(articles | others))
    shards = ShardSettings(largest_record_bytes=1000)
    read_dump(DumpConfig(given, "ar5iv", parts, shards=shards, output_path=corpus.path("out")))
    assert len(corpus.read("out")) == parts
    found = {record["id"]: record["html"] for record in corpus.records("out")}
    assert found == {f"{number}.0001": f"<p>{number}</p>" for number in range(7)}
    summary = corpus.summary("out")
    assert (summary["read"], summary["dropped"], summary["rejected"]) == (9, {"not HTML": 1}, {"too large": 1})


def posts(*rows: dict[str, Any]) -> bytes:
    lines = [" ".join(f"{name}={quoteattr(str(value))}" for name, value in row.items()) for row in rows]
    return ("<?xml version='1.0'?>\n<posts>\n" + "".join(f"<row {line} />\n" for line in lines) + "</posts>").encode()


ROWS = (
    {
        "Id": 1,
        "PostTypeId": 1,
        "Title": "Why?",
        "Body": "<p>Why & how?</p>",
        "Tags": "<a><b>",
        "Score": 5,
        "AcceptedAnswerId": 4,
    },
    {"Id": 2, "PostTypeId": 1, "Title": "Who?", "Body": "<p>Who?</p>", "Tags": "|c|d|", "Score": -1},
    {"Id": 3, "PostTypeId": 2, "ParentId": 1, "Body": "<p>good</p>", "Score": 9},
    {"Id": 4, "PostTypeId": 2, "ParentId": 1, "Body": "<p>accepted</p>", "Score": 2},
    {"Id": 5, "PostTypeId": 2, "ParentId": 99, "Body": "<p>lost</p>", "Score": 0},
    {"Id": 6, "PostTypeId": 5, "Body": "a wiki of a tag"},
    {"Id": 7, "PostTypeId": 1, "Title": "Empty", "Body": ""},
)


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("name", ["Posts.xml", "Posts.xml.gz"])
def test_stack_exchange(parts: int, name: str, corpus: Any) -> None:
    body = posts(*ROWS)
    given = place(corpus, name, gzip.compress(body) if name.endswith(".gz") else body)
    read_dump(DumpConfig(given, "stack_exchange", parts, source="stack", output_path=corpus.path("out")))
    assert sorted(corpus.records("out"), key=lambda record: record["id"]) == [
        {
            "id": "1",
            "title": "Why?",
            "html": "<p>Why & how?</p>",
            "tags": ["a", "b"],
            "score": 5,
            "source": "stack",
            "answers": [
                {"id": "4", "html": "<p>accepted</p>", "score": 2, "accepted": True},
                {"id": "3", "html": "<p>good</p>", "score": 9, "accepted": False},
            ],
        },
        {
            "id": "2",
            "title": "Who?",
            "html": "<p>Who?</p>",
            "tags": ["c", "d"],
            "score": -1,
            "source": "stack",
            "answers": [],
        },
    ]
    summary = corpus.summary("out")
    assert summary["rejected"] == {"a post without number or body": 1, "an answer without its question": 1}
    assert summary["dropped"] == {"a post of another kind": 1}
    assert summary["tallies"] == {"answers": 2}


@pytest.mark.parametrize(
    ("name", "kind", "body", "why"),
    [
        ("Posts.xml", "stack_exchange", posts(*ROWS)[:-20], "damaged or cut"),
        (
            "Posts.xml",
            "stack_exchange",
            b'<!DOCTYPE x [<!ENTITY e "eee">]><posts>&e;</posts>',
            "declares a document type",
        ),
        ("a.zip", "ar5iv", zipped({"a.html": b"x" * 999})[:-30], "is damaged"),
        ("a.wet.gz", "wet", b"", "is empty"),
    ],
    ids=["cut posts", "posts with a document type", "cut archive", "no text at all"],
)
def test_damaged_dumps_are_named(name: str, kind: Any, body: bytes, why: str, corpus: Any) -> None:
    with pytest.raises(DataError, match=rf"{name}.*{why}"):
        read_dump(DumpConfig(place(corpus, name, body), kind, output_path=corpus.path("out")))


def test_texts_of_common_crawl(corpus: Any) -> None:
    buffer = io.BytesIO()
    writer = WARCWriter(buffer, gzip=True)
    writer.write_record(writer.create_warcinfo_record("a.wet", {"software": "a test"}))
    for url, body in (("http://a/", "Größe".encode()), ("http://b/", b" \n"), ("http://c/", b"\xff\xfe")):
        writer.write_record(
            writer.create_warc_record(url, "conversion", payload=io.BytesIO(body), warc_content_type="text/plain")
        )
    given = place(corpus, "CC-1.warc.wet.gz", buffer.getvalue())
    read_dump(DumpConfig(given, "wet", output_path=corpus.path("out")))
    (document,) = corpus.read("out")["CC-1.warc.jsonl.zst"]
    assert (document["text"], document["metadata"]["url"], document["source"]) == ("Größe", "http://a/", "wet")
    summary = corpus.summary("out")
    assert summary["rejected"] == {"a page without text": 1, "not UTF-8": 1}
    assert summary["dropped"] == {"a WARC record of another kind (warcinfo)": 1}


def test_a_folder_of_pages_up_to_documents(corpus: Any) -> None:
    names = sorted(path.name for path in PAGES.glob("*.html"))
    config = DumpConfig(str(PAGES), "html_files", 4, source="sqlite", output_path=corpus.path("pages"))
    read_dump(config)
    assert sorted(corpus.read("pages")) == [f"part-{part:05}-of-00004.jsonl.zst" for part in range(min(4, len(names)))]
    extract(ExtractConfig(corpus.path("pages"), output_path=corpus.path("documents")))
    documents = {document["id"]: document for document in corpus.records("documents")}
    assert sorted(documents) == names
    assert "SQLite is an in-process library" in " ".join(documents["about.html"]["text"].split())
    assert {document["source"] for document in documents.values()} == {"sqlite"}


def test_a_folder_that_has_changed_is_read_as_it_is_when_an_attempt_goes_on(corpus: Any) -> None:
    """One file less and one more move all others between parts, without a change of sizes."""
    for number in range(1, 5):
        given = place(corpus, f"{number}.txt", b"%d" % number)
    config = DumpConfig(given, "text_files", parts=2, output_path=corpus.path("out"))
    read_dump(config)
    Path(given, "4.txt").unlink()
    place(corpus, "0.txt", b"0")
    Path(corpus.path("out/counts/part-00001-of-00002.txt.json")).unlink()
    read_dump(config)
    assert sorted((record["id"], record["text"]) for record in corpus.records("out")) == [
        (f"{number}.txt", f"{number}") for number in range(4)
    ]


def test_a_folder_of_texts(corpus: Any) -> None:
    given = place(corpus, "a/1.txt", "Größe".encode())
    place(corpus, "a/2.txt", b"\xff")
    place(corpus, "a/README.TXT", b"in capitals")
    place(corpus, "b/3.txt", b"left out")
    read_dump(DumpConfig(given, "text_files", patterns=["a/*"], output_path=corpus.path("out")))
    assert corpus.records("out") == [
        {"id": "a/1.txt", "text": "Größe", "source": "text_files"},
        {"id": "a/README.TXT", "text": "in capitals", "source": "text_files"},
    ]
    assert corpus.summary("out")["rejected"] == {"not UTF-8": 1}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "reddit"}, "no kind of dump 'reddit'"),
        ({"kind": "wet", "parts": 2}, "wet dumps are not divided"),
        ({"kind": "ar5iv"}, r"no \.zip files below"),
    ],
)
def test_refusals(changes: dict[str, Any], why: str, corpus: Any) -> None:
    given = place(corpus, "a.txt", b"a")
    with pytest.raises(DataError, match=why):
        read_dump(DumpConfig(given, output_path=corpus.path("out"), **changes))


def test_a_folder_that_is_not_there_is_named_in_full(
    corpus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is one from where the run was started."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as missing:
        read_dump(DumpConfig("text", "text_files", output_path=corpus.path("out")))
    assert str(missing.value) == f"no .txt or .md files below {tmp_path / 'text'}: there is no such folder"
    (tmp_path / "text").mkdir()
    with pytest.raises(DataError) as empty:
        read_dump(DumpConfig("text", "text_files", patterns=["a*"], output_path=corpus.path("out")))
    assert str(empty.value) == f"no .txt or .md files below {tmp_path / 'text'} whose names fit ['a*']"
