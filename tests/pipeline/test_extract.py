"""Text from pages: what each library makes of real ones, and every page accounted for."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import tracemalloc
import zlib
from pathlib import Path
from typing import Any, ClassVar

import brotli
import fsspec
import pytest
import zstandard
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.shard_files import ShardWriter, format_of
from marin_rules.pipeline.core.shard_map import ShardSettings
from marin_rules.pipeline.extract import ExtractConfig, extract

PAGES = Path(__file__).parents[1] / "data" / "sqlite_pages"
SENTENCE = "SQLite is an in-process library that implements"
NAVIGATION = "Support"


def pages(*names: str) -> list[dict[str, Any]]:
    return [{"id": name, "html": (PAGES / f"{name}.html").read_text(), "metadata": {"page": name}} for name in names]


@pytest.mark.parametrize(
    ("library", "text_format", "words"),
    [
        ("resiliparse", "text", "About SQLite"),
        ("trafilatura", "text", "public domain"),
        ("trafilatura", "markdown", "public domain"),
        ("html-to-markdown", "markdown", "# Executive Summary"),
    ],
)
def test_a_real_page(library: Any, text_format: Any, words: str, corpus: Any) -> None:
    given = corpus.write("in", {"a.jsonl": pages("about")})
    extract(ExtractConfig(given, library, text_format, output_path=corpus.path("out")))
    (document,) = corpus.read("out")["a.jsonl.zst"]
    text = document.pop("text")
    assert document == {"id": "about", "source": "web", "metadata": {"page": "about"}}
    assert SENTENCE in " ".join(text.split())
    assert words in text
    assert "<p>" not in text
    assert "window." not in text, "no scripts"


@pytest.mark.parametrize(("text_format", "word"), [("text", "bold"), ("markdown", "**bold**")])
def test_trafilatura_makes_both(text_format: Any, word: str, corpus: Any) -> None:
    page = f"<html><body><article>{'<p>A sentence with a <b>bold</b> word in it.</p>' * 9}</article></body></html>"
    given = corpus.write("in", {"a.jsonl": [{"id": "1", "html": page}]})
    extract(ExtractConfig(given, "trafilatura", text_format, output_path=corpus.path("out")))
    (document,) = corpus.records("out")
    assert document["text"].startswith(f"A sentence with a {word} word in it.")


def test_main_content_leaves_navigation_out(corpus: Any) -> None:
    given = corpus.write("in", {"a.jsonl": pages("about")})
    for name, main_content in (("main", True), ("all", False)):
        extract(ExtractConfig(given, main_content=main_content, output_path=corpus.path(name)))
    (main,), (whole,) = corpus.records("main"), corpus.records("all")
    assert NAVIGATION in whole["text"]
    assert NAVIGATION not in main["text"]
    assert SENTENCE in " ".join(main["text"].split())


@pytest.mark.parametrize(("library", "text_format"), [("resiliparse", "markdown"), ("html-to-markdown", "text")])
def test_what_a_library_cannot_do_is_refused(library: Any, text_format: Any, corpus: Any) -> None:
    given = corpus.write("in", {"a.jsonl": pages("about")})
    with pytest.raises(DataError, match=f"'{library}' makes no '{text_format}'"):
        extract(ExtractConfig(given, library, text_format, output_path=corpus.path("out")))


def test_pages_that_would_take_hours_are_rejected(corpus: Any) -> None:
    pages = [{"id": "long", "html": "<p>x</p>" * 20}, {"id": "short", "html": "<p>short enough</p>"}]
    given = corpus.write("in", {"a.jsonl": pages})
    extract(ExtractConfig(given, largest_page=100, output_path=corpus.path("out")))
    assert [document["id"] for document in corpus.records("out")] == ["short"]
    (reject,) = corpus.rejects("out")
    assert (reject["id"], reject["reason"], reject["detail"]) == ("long", "too large a page", "160 characters")


def test_pages_without_text_are_rejected_and_not_empty_documents(corpus: Any) -> None:
    bad = [{"id": "empty", "html": "<p> </p>"}, {"id": "none"}, {"html": "<p>x</p>"}, {"id": "n", "html": None}]
    given = corpus.write("in", {"a.jsonl": [*pages("about", "csv"), *bad]})
    extract(ExtractConfig(given, output_path=corpus.path("out")))
    assert [document["id"] for document in corpus.records("out")] == ["about", "csv"]
    reasons = [(reject.get("id"), reject["reason"]) for reject in corpus.rejects("out")]
    assert reasons == [("empty", "a page without text"), ("none", "no html"), (None, "no id"), ("n", "no html")]
    assert corpus.summary("out")["rejected"] == {"a page without text": 1, "no html": 2, "no id": 1}


# --- WARC


def warc(compressed: bool) -> bytes:
    buffer = io.BytesIO()
    writer = WARCWriter(buffer, gzip=compressed)

    def add(kind: str, url: str, body: bytes, headers: list[tuple[str, str]], status: str = "200 OK") -> None:
        http = StatusAndHeaders(status, headers, protocol="HTTP/1.1")
        writer.write_record(writer.create_warc_record(url, kind, payload=io.BytesIO(body), http_headers=http))

    html = [("Content-Type", "text/html")]
    writer.write_record(writer.create_warcinfo_record("pages.warc", {"software": "a test"}))
    add("response", "http://sqlite/about", (PAGES / "about.html").read_bytes(), html)
    request = StatusAndHeaders("GET /about", [("Host", "sqlite")], protocol="HTTP/1.1", is_http_request=True)
    writer.write_record(writer.create_warc_record("http://sqlite/about", "request", http_headers=request))
    add("response", "http://sqlite/gone", b"<p>Not found</p>", html, status="404 Not Found")
    add("response", "http://sqlite/logo", b"GIF89a", [("Content-Type", "image/gif")])
    latin = "<p>Ein Äpfelchen für Zoë</p>".encode("latin-1")
    add("response", "http://latin/said", latin, [("Content-Type", "text/html; charset=iso-8859-1")])
    meta = '<meta charset="windows-1251"><p>Белый кит</p>'.encode("cp1251")
    add("response", "http://cyrillic/meta", meta, html)
    packed = [*html, ("Content-Encoding", "gzip")]
    add("response", "http://packed/page", gzip.compress(b"<p>It was packed</p>"), packed)
    add("response", "http://large/page", b"<p>" + b"large " * 3000 + b"</p>", html)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["pages.warc", "pages.warc.gz"])
def test_every_record_of_a_warc_file_is_accounted_for(name: str, corpus: Any) -> None:
    folder = Path(corpus.path("in"))
    folder.mkdir()
    (folder / name).write_bytes(warc(compressed=name.endswith(".gz")))
    shards = ShardSettings(largest_record_bytes=15_000)
    config = ExtractConfig(
        str(folder), main_content=False, source="crawl", shards=shards, output_path=corpus.path("out")
    )
    extract(config)
    documents = {document["metadata"]["url"]: document for document in corpus.read("out")["pages.jsonl.zst"]}
    assert SENTENCE in " ".join(documents.pop("http://sqlite/about")["text"].split())
    assert {url: document["text"].strip() for url, document in documents.items()} == {
        "http://latin/said": "Ein Äpfelchen für Zoë",
        "http://cyrillic/meta": "Белый кит",
        "http://packed/page": "It was packed",
    }
    assert {document["source"] for document in documents.values()} == {"crawl"}
    summary = corpus.summary("out")
    assert (summary["read"], summary["written"], summary["rejected"]) == (9, 4, {"too large": 1})
    assert summary["dropped"] == {
        "a WARC record of another kind (request)": 1,
        "a WARC record of another kind (warcinfo)": 1,
        "not HTML": 1,
        "not answered with 200": 1,
    }


@pytest.mark.parametrize("name", ["pages.warc", "pages.warc.gz"])
@pytest.mark.parametrize("lost", [3, 1000])
def test_a_cut_warc_file_is_named_and_gives_no_half_page(name: str, lost: int, corpus: Any) -> None:
    folder = Path(corpus.path("in"))
    folder.mkdir()
    (folder / name).write_bytes(warc(compressed=name.endswith(".gz"))[:-lost])
    with pytest.raises(DataError, match=rf"{name} is cut"):
        extract(ExtractConfig(str(folder), output_path=corpus.path("out")))
    extract(ExtractConfig(str(folder), damaged_shards="keep_what_is_readable", output_path=corpus.path("out")))
    assert corpus.summary("out")["tallies"] == {"damaged shards": 1}
    assert "http://large/page" not in [document["metadata"]["url"] for document in corpus.records("out")]


def test_what_is_no_warc_file_is_named(corpus: Any) -> None:
    given = corpus.write("in", {"pages.warc": ["<p>This is no WARC file</p>"] * 10})
    with pytest.raises(DataError, match=r"pages\.warc is "):
        extract(ExtractConfig(given, output_path=corpus.path("out")))


class FailingFile(io.BytesIO):
    """One read goes well, up to a place; the next one does not."""

    def __init__(self, data: bytes, place: int) -> None:
        super().__init__(data)
        self.place, self.has_read = place, False

    def read(self, size: int | None = -1, /) -> bytes:
        if self.has_read:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.has_read = True
        return super().read(min(size or -1, self.place))


class FailingFileSystem(fsspec.AbstractFileSystem):
    protocol = "failing"
    files: ClassVar[dict[str, tuple[bytes, int]]] = {}

    def find(self, path: str, *given: Any, **settings: Any) -> Any:
        return {f"{path}/{name}": {"size": len(data)} for name, (data, _) in self.files.items()}

    def _open(self, path: str, *given: Any, **settings: Any) -> FailingFile:
        return FailingFile(*self.files[path.rpartition("/")[2]])


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_disk_that_fails_is_neither_damage_nor_an_end(
    name: str, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if all that was read is whole records: the others would be left out."""
    whole = warc(compressed=name.endswith(".gz"))
    if ".warc" not in name:
        path = Path(corpus.path("file"))
        with path.open("wb") as file:
            writer = ShardWriter(file, format_of(name) or "")
            writer.write(pages("about")[0])
            writer.close()
        whole = path.read_bytes()
    place = whole.index(b"WARC/1.0", whole.index(b"Not found")) if name == "a.warc" else len(whole)
    monkeypatch.setattr(FailingFileSystem, "files", {name: (whole, place)})
    fsspec.register_implementation("failing", FailingFileSystem, clobber=True)
    config = ExtractConfig("failing://in", damaged_shards="keep_what_is_readable", output_path=corpus.path("out"))
    with pytest.raises(DataError, match=rf"1 of 1 shards failed.*{name}: OSError: .*Input/output error"):
        extract(config)


# --- bodies as servers send them

BODY = "<html><body><p>Straße und Käse, lang genug für einen Absatz.</p></body></html>".encode()


def chunked(body: bytes) -> bytes:
    chunks = [b"%x;ext=1\r\n%s\r\n" % (len(body[at : at + 7]), body[at : at + 7]) for at in range(0, len(body), 7)]
    return b"".join([*chunks, b"0\r\nTrailer: x\r\n\r\n"])


def raw_deflated(body: bytes) -> bytes:
    one = zlib.compressobj(wbits=-15)
    return one.compress(body) + one.flush()


GOOD_BODIES: dict[str, tuple[bytes, dict[str, str]]] = {
    "plain": (BODY, {}),
    "chunked": (chunked(BODY), {"Transfer-Encoding": "chunked"}),
    "chunked-gzip": (chunked(gzip.compress(BODY)), {"Content-Encoding": "gzip", "Transfer-Encoding": "chunked"}),
    "transfer-gzip": (chunked(gzip.compress(BODY)), {"Transfer-Encoding": "gzip, chunked"}),
    "gzip": (gzip.compress(BODY[:40]) + gzip.compress(BODY[40:]), {"Content-Encoding": "GZIP"}),
    "x-gzip": (gzip.compress(BODY), {"Content-Encoding": "x-gzip"}),
    "deflate": (zlib.compress(BODY), {"Content-Encoding": "deflate"}),
    "raw-deflate": (raw_deflated(BODY), {"Content-Encoding": "deflate"}),
    "brotli": (brotli.compress(BODY), {"Content-Encoding": "br"}),
    "zstandard": (zstandard.compress(BODY), {"Content-Encoding": "zstd"}),
    "twice": (gzip.compress(zlib.compress(BODY)), {"Content-Encoding": "deflate, gzip"}),
    "utf-8": (BODY, {"Content-Encoding": "utf-8"}),
    **{
        f"not-{name}": (BODY, {"Transfer-Encoding" if name == "chunked" else "Content-Encoding": name})
        for name in ("chunked", "gzip", "deflate", "br", "zstd")
    },
}
BAD_BODIES: dict[str, tuple[bytes, dict[str, str], str]] = {
    "cut-chunk": (b"ff\r\nabc", {"Transfer-Encoding": "chunked"}, "ends in the middle of a chunk"),
    "odd-chunk": (b"3\r\nabc\r\nzz\r\n", {"Transfer-Encoding": "chunked"}, "its chunks break off"),
    "huge-chunk": (b"fffffffffffffff\r\nabc", {"Transfer-Encoding": "chunked"}, "ends in the middle of a chunk"),
    "cut-gzip": (gzip.compress(BODY)[:-12], {"Content-Encoding": "gzip"}, "ends in the middle of its compressed"),
    "bad-gzip": (b"\x1f\x8b" + bytes(40), {"Content-Encoding": "gzip"}, "Error -3"),
    "cut-brotli": (brotli.compress(BODY)[:-9], {"Content-Encoding": "br"}, "ends in the middle of its compressed"),
    "cut-zstd": (zstandard.compress(BODY)[:-9], {"Content-Encoding": "zstd"}, "ends in the middle of its compressed"),
    "unknown": (b"\x1f\x9d" + bytes(40), {"Content-Encoding": "compress"}, "encoded as 'compress'"),
}


def responses(bodies: dict[str, tuple[bytes, dict[str, str]]]) -> bytes:
    buffer = io.BytesIO()
    writer = WARCWriter(buffer, gzip=True)
    for name, (body, headers) in bodies.items():
        said = [*{"Content-Type": "text/html", **headers}.items()]
        http = StatusAndHeaders("200 OK", said, protocol="HTTP/1.1")
        url = f"http://sqlite/{name}"
        writer.write_record(writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=http))
    return buffer.getvalue()


def test_a_body_is_read_as_it_was_meant_or_rejected_and_hides_no_page_after_it(corpus: Any) -> None:
    between = {f"after-{name}": (BODY, dict[str, str]()) for name in BAD_BODIES}
    bad = {name: (body, headers) for name, (body, headers, _) in BAD_BODIES.items()}
    mixed = [pair for one, other in zip(bad.items(), between.items(), strict=True) for pair in (one, other)]
    Path(corpus.write("in", {})).mkdir()
    Path(corpus.path("in/a.warc.gz")).write_bytes(responses({**GOOD_BODIES, **dict(mixed)}))
    extract(ExtractConfig(corpus.path("in"), main_content=False, output_path=corpus.path("out")))
    texts = {document["metadata"]["url"].rpartition("/")[2]: document["text"] for document in corpus.records("out")}
    text = "Straße und Käse, lang genug für einen Absatz."
    assert texts == dict.fromkeys([*GOOD_BODIES, *between], text)
    rejects = corpus.rejects("out")
    assert {reject["reason"] for reject in rejects} == {"a body that cannot be decoded"}
    for reject, (_, _, detail) in zip(rejects, BAD_BODIES.values(), strict=True):
        assert detail in reject["detail"]


KIT = "Белый кит"


@pytest.mark.parametrize(
    ("said", "encoding", "declared"),
    [
        ("text/html; charset=KOI8-R", "koi8-r", ""),
        ("Text/HTML; Charset=koi8-r", "koi8-r", ""),
        ("application/XHTML+xml;charset=koi8-r", "koi8-r", ""),
        ('text/html; charset="koi8-r"', "koi8-r", ""),
        ("text/html; charset='koi8-r'", "koi8-r", "utf-8"),
        ("text/html; charset=none", "koi8-r", "koi8-r"),
        ("text/html; charset=", "koi8-r", "koi8-r"),
    ],
)
def test_a_page_is_decoded_as_its_server_said_if_that_is_an_encoding(
    said: str, encoding: str, declared: str, corpus: Any
) -> None:
    page = f'<html><head><meta charset="{declared}"></head><body><p>{KIT}</p></body></html>'
    Path(corpus.write("in", {})).mkdir()
    body = page.encode(encoding), {"Content-Type": said}
    Path(corpus.path("in/a.warc.gz")).write_bytes(responses({"page": body}))
    extract(ExtractConfig(corpus.path("in"), main_content=False, output_path=corpus.path("out")))
    assert [document["text"] for document in corpus.records("out")] == [KIT]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_swells_is_too_large(encoding: str, corpus: Any) -> None:
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}
    bomb = pack[encoding](b"<p>" + b"a" * 30_000_000), {"Content-Encoding": encoding}
    Path(corpus.write("in", {})).mkdir()
    Path(corpus.path("in/a.warc.gz")).write_bytes(responses({"bomb": bomb, "after": (BODY, {})}))
    settings = ShardSettings(largest_record_bytes=1_000_000)
    tracemalloc.start()
    extract(ExtractConfig(corpus.path("in"), shards=settings, output_path=corpus.path("out")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [reject["reason"] for reject in corpus.rejects("out")] == ["too large"]
    assert len(corpus.records("out")) == 1
    assert peak < 20_000_000


def test_a_record_that_claims_what_comes_after_it_is_a_cut(corpus: Any) -> None:
    whole = warc(compressed=False)
    length = re.findall(rb"Content-Length: \d+", whole)[1]
    Path(corpus.write("in", {})).mkdir()
    Path(corpus.path("in/a.warc")).write_bytes(whole.replace(length, b"Content-Length: 9000000", 1))
    with pytest.raises(DataError, match=r"a\.warc is cut: its last record has fewer bytes than it says"):
        extract(ExtractConfig(corpus.path("in"), output_path=corpus.path("out")))
