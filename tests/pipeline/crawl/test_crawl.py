"""Crawls of loopback servers: polite, within limits, restartable, and with every URL accounted for."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.shard_map import ShardSettings
from marin_rules.pipeline.crawl import CrawlConfig, LinkRules, VisitSettings, crawl
from marin_rules.pipeline.extract import ExtractConfig, extract
from support.file_server import Answer, FileServer, file_server

FAST = VisitSettings(
    seconds_between=0,
    attempts=2,
    first_wait_seconds=0.001,
    timeout_seconds=20,
    largest_page_bytes=50_000,
    private_addresses=True,
)
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.fixture
def site() -> Iterator[FileServer]:
    with file_server() as files:
        yield files


def page(text: str, **headers: str) -> Answer:
    return Answer(f"<html><body><p>{text}</p></body></html>".encode(), headers=HTML | headers)


def run(corpus: Any, urls: list[str], out: str = "out", **changes: Any) -> Any:
    folder = Path(corpus.path(f"lists-of-{out}"))
    folder.mkdir(exist_ok=True)
    (folder / "urls.txt").write_text("".join(f"{url}\n" for url in urls))
    config = {"contact": "me@example.org", "visits": FAST, "output_path": corpus.path(out), **changes}
    return crawl(CrawlConfig(str(folder), **config))


def written(corpus: Any, out: str = "out") -> dict[str, str]:
    """URL -> status of every response, read by another library than the one that `extract` uses."""
    found = {}
    for path in sorted(Path(corpus.path(out)).glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type == "response":
                    found[record.rec_headers["WARC-Target-URI"]] = record.http_headers.get_statuscode()
    return found


def test_pages_up_to_documents(site: FileServer, corpus: Any) -> None:
    urls = [site.add("/a", page("Größe")), site.add("/b", page("packed"))]
    body = gzip.compress(site.answers["/b"][0].body)
    site.add("/b", Answer(body, headers=HTML | {"Content-Encoding": "gzip", "Set-Cookie": "SECRET=1"}))
    run(corpus, [*urls, urls[0] + "#part", "", "# a comment"])
    summary = corpus.summary("out")
    assert (summary["read"], summary["written"], summary["dropped"]) == (3, 2, {"the URL was there before": 1})
    assert {request.headers["User-Agent"] for request in site.requests} == {"marin-rules-crawl (+me@example.org)"}
    extract(ExtractConfig(corpus.path("out"), main_content=False, output_path=corpus.path("documents")))
    texts = {document["metadata"]["url"]: document["text"] for document in corpus.records("documents")}
    assert texts == {urls[0]: "Größe", urls[1]: "packed"}
    assert b"SECRET" not in gzip.decompress(Path(corpus.path("out"), "part-00000-of-00001.warc.gz").read_bytes())


def test_every_failure_is_counted_by_its_reason(site: FileServer, corpus: Any) -> None:
    site.add("/robots.txt", b"User-agent: *\nDisallow: /private\n")
    answers = {
        "/good": page("good"),
        "/private": page("private"),
        "/gone": Answer(status=410),
        "/broken": Answer(status=500),
        "/image": Answer(b"GIF89a", headers={"Content-Type": "image/gif"}),
        "/large": Answer(b"x" * 50_001, headers=HTML),
        "/bomb": Answer(gzip.compress(bytes(5_000_000)), headers=HTML | {"Content-Encoding": "gzip"}),
        "/cut": Answer(b"x" * 1000, headers=HTML, cut_after=10),
        "/loop": Answer(status=302, headers={"Location": "/loop"}),
        "/out": Answer(status=302, headers={"Location": "file:///etc/passwd"}),
        "/hidden": Answer(status=302, headers={"Location": "/private"}),
    }
    urls = [site.add(path, answer) for path, answer in answers.items()]
    run(corpus, [*urls, f"{site.url}/none", "ftp://x/y", "http://", "http://[", "mailto:x", "http://127.0.0.1:9/x"])
    summary = corpus.summary("out")
    assert summary["rejected"] == {
        "answered with 404": 1,
        "answered with 410": 1,
        "answered with 500": 1,
        "no word about robots.txt (could not connect)": 1,
        "not an http(s) URL": 5,
        "the connection was cut": 1,
        "too large": 2,
        "too many redirects": 1,
    }
    assert summary["dropped"] == {"another content type": 1, "robots.txt does not allow it": 2}
    assert (summary["read"], summary["written"]) == (17, 1)
    assert written(corpus) == {f"{site.url}/good": "200"}
    assert "/private" not in site.paths()
    assert {reject["reason"] for reject in corpus.rejects("out")} == set(summary["rejected"])


def test_redirects_are_kept_with_the_page(site: FileServer, corpus: Any) -> None:
    site.add("/new", page("new"))
    run(corpus, [site.add("/old", Answer(status=301, headers={"Location": "/new"}))])
    assert written(corpus) == {f"{site.url}/old": "301", f"{site.url}/new": "200"}


def test_a_server_that_asks_to_wait(site: FileServer, corpus: Any) -> None:
    url = site.add("/a", Answer(status=429, headers={"Retry-After": "0"}), page("a"))
    later = site.add("/b", Answer(status=503, headers={"Retry-After": "86400"}))
    run(corpus, [url, later])
    assert written(corpus) == {url: "200"}
    assert corpus.summary("out")["rejected"] == {"answered with 503": 1}
    assert site.paths().count("/b") == 1


@pytest.mark.parametrize("robots", [Answer(status=503), Answer(status=429), Answer(status=520)])
def test_a_site_that_cannot_say_what_it_allows_is_left_alone(robots: Answer, site: FileServer, corpus: Any) -> None:
    site.add("/robots.txt", robots)
    with pytest.raises(DataError, match=rf"rejected \(no word about robots.txt \(answered with {robots.status}\): 2\)"):
        run(corpus, [site.add("/a", page("a")), site.add("/b", page("b"))])
    assert site.paths() == ["/robots.txt"]


@pytest.mark.parametrize(("robots", "settings"), [(b"User-agent: *\nCrawl-delay: 0.2", 0.0), (b"", 0.2)])
def test_the_rate_of_a_host(robots: bytes, settings: float, site: FileServer, corpus: Any) -> None:
    site.add("/robots.txt", robots)
    urls = [site.add(f"/{number}", page("x")) for number in range(3)]
    run(corpus, urls, visits=replace(FAST, seconds_between=settings))
    times = [request.time for request in site.requests[1:]]
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))


def test_a_delay_beyond_reason(site: FileServer, corpus: Any) -> None:
    site.add("/robots.txt", b"User-agent: *\nCrawl-delay: 3600")
    run(corpus, [site.add("/a", page("a"))])
    assert corpus.summary("out")["dropped"] == {"robots.txt asks for too long a delay": 1}


def test_private_addresses_are_not_visited_by_default(site: FileServer, corpus: Any) -> None:
    port = site.url.rpartition(":")[2]
    urls = [site.add("/a", page("a")), f"http://localhost:{port}/a", f"http://[::ffff:127.0.0.1]:{port}/a"]
    with pytest.raises(DataError, match=r"all 3 records .* were rejected \(a private address: 3\)"):
        run(corpus, urls, visits=replace(FAST, private_addresses=False))
    assert site.requests == [], "nothing was sent"


def test_parts_hold_whole_hosts_and_are_not_done_again(site: FileServer, corpus: Any, as_task: Any) -> None:
    with file_server() as other:
        port = other.url.rpartition(":")[2]
        other_url = f"http://localhost:{port}"
        urls = [site.add(f"/{number}", page("x")) for number in range(3)]
        for number in range(3):
            other.add(f"/{number}", page("y"))
            urls.append(f"{other_url}/{number}")
        for task in (1, 0):
            as_task(task, 2)
            run(corpus, urls, parts=4)
        assert sorted(written(corpus)) == sorted(urls)
        assert site.paths().count("/robots.txt") == other.paths().count("/robots.txt") == 1
        counts = len(site.requests), len(other.requests)
        as_task(0, 1)
        run(corpus, urls, parts=4)
        assert (len(site.requests), len(other.requests)) == counts
        assert corpus.summary("out")["written"] == 6


def test_a_part_that_fails_leaves_no_half_file(site: FileServer, corpus: Any, monkeypatch: Any) -> None:
    from marin_rules.pipeline.crawl.visits import Visitor

    whole = Visitor.visit

    def fail(self: Any, url: str) -> Any:
        if url.endswith("/b"):
            raise RuntimeError("out of luck")
        return whole(self, url)

    urls = [site.add("/a", page("a")), site.add("/b", page("b"))]
    with monkeypatch.context() as patched:
        patched.setattr(Visitor, "visit", fail)
        with pytest.raises(DataError, match=r"part-00000-of-00001\.txt: RuntimeError: out of luck"):
            run(corpus, urls)
    assert not list(Path(corpus.path("out")).glob("*.warc.gz"))
    run(corpus, urls)
    assert sorted(written(corpus)) == urls


def test_links_lead_to_the_next_crawl(site: FileServer, corpus: Any) -> None:
    body = (
        '<html><head><base href="/docs/"></head><body><a href="b#top">b</a> <a href="/c?x=1">c</a> <a href="b">2</a>'
        '<a href="http://elsewhere.test/d">d</a> <a rel="nofollow" href="/secret">s</a> <a href="mailto:x@y">m</a>'
        '<a href="/skip/e">e</a> <a href="javascript:x()">j</a> <a href="http://[">bad</a> <a href="/a">self</a></body>'
    )
    url = site.add("/a", Answer(body.encode(), headers=HTML))
    run(corpus, [url], links=LinkRules(exclude="/skip/"))
    links = Path(corpus.path("out"), "links", "part-00000-of-00001.txt").read_text().split()
    assert links == [f"{site.url}/a", f"{site.url}/c?x=1", f"{site.url}/docs/b"]
    site.add("/docs/b", page("b"))
    site.add("/c", page("c"))
    crawl(
        CrawlConfig(
            corpus.path("out/links"),
            "me@example.org",
            already=[corpus.path("lists-of-out")],
            visits=FAST,
            output_path=corpus.path("second"),
        )
    )
    assert sorted(written(corpus, "second")) == links[1:]
    assert corpus.summary("second")["dropped"] == {"crawled before": 1}
    run(corpus, [url], "all", links=LinkRules(same_host=False, include="elsewhere"))
    assert Path(corpus.path("all"), "links", "part-00000-of-00001.txt").read_text() == "http://elsewhere.test/d\n"


@pytest.mark.parametrize(
    ("urls", "changes", "why"),
    [
        (["http://x/"], {"contact": " "}, "needs a contact"),
        (["http://x/"], {"contact": "me\r\nX: y"}, "needs a contact"),
        (["http://x/"], {"parts": 0}, "at least one"),
        ([], {}, "no shards below .*looked for .txt"),
        (["# nothing"], {}, "no records"),
    ],
)
def test_refusals(urls: list[str], changes: dict[str, Any], why: str, corpus: Any) -> None:
    with pytest.raises(DataError, match=why):
        run(corpus, urls, shards=ShardSettings(), **changes)
