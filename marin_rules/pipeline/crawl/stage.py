"""The stage: lists of URLs in, WARC files out, with every URL accounted for.

    <output>/part-00003-of-00016.warc.gz   the pages, with the redirects on the way to them
    <output>/links/part-....txt            the links on them, if requested: a list for a further crawl
    <output>/rejects, counts, summary.json as with every stage; a part with its counts is not fetched again

URLs are divided by host, so that all of a host's pages belong to one part, which requests them one after the other: the
host's rate limit holds however many tasks there are. `extract` reads the output as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urldefrag, urlsplit

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, open_to_read, sizes_below
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, map_shards
from marin_rules.pipeline.crawl.links import LinkRules, links_of
from marin_rules.pipeline.crawl.visits import Answer, Failed, Visitor, VisitSettings, check_url

_SUFFIX = ".warc.gz"
_LISTS = ".txt"


@dataclass(frozen=True)
class CrawlConfig:
    """The pages whose URLs are in the lists below `input_path`."""

    input_path: str | InputName
    """Folder of `.txt` files with a URL a line; `links` of another crawl's output is one."""

    contact: str
    """A mail or web address at which the owners of sites can reach you. Every request has it."""

    parts: int = 1
    """WARC files to make: the most tasks that can work at the same time."""

    links: LinkRules | None = None
    """Which links to collect; None for none."""

    already: Sequence[str | InputName] = ()
    """Folders of lists whose URLs have been crawled before, and are left out."""

    visits: VisitSettings = field(default_factory=VisitSettings)
    hosts_at_once: int = 16
    """In each part."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


class _Outcome(NamedTuple):
    number: int
    url: str
    answers: list[Answer]
    failure: Failed | None


def crawl(config: CrawlConfig) -> dict[str, Any]:
    """Fetch this task's parts."""
    if not config.contact.strip() or any(not character.isprintable() for character in config.contact):
        raise DataError("crawl needs a contact, a mail or web address at which the owners of sites can reach you")
    if config.parts < 1:
        raise DataError(f"parts is {config.parts}: a crawl has at least one")
    folder = str(config.input_path)
    size = sum(size for name, size in sizes_below(folder, is_data=True).items() if name.endswith(_LISTS))
    names = [f"part-{part:05}-of-{config.parts:05}{_LISTS}" for part in range(config.parts)] if size else []
    parts = {name: part for part, name in enumerate(names)}

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        return _crawl_part(config, shard.name, parts[shard.name], account)

    return map_shards(
        transform,
        folder,
        config.output_path,
        output_format="",
        suffixes=(_LISTS,),
        settings=config.shards,
        shards=[Shard(folder, name, size, config.shards) for name in names],
    )


def _crawl_part(config: CrawlConfig, name: str, part: int, account: Account) -> Iterator[Record]:
    """Yields a record for each page that is written."""
    by_host = _urls_of_part(config, part, account)
    links: dict[str, None] = {}
    with into_place(join(config.output_path, name.removesuffix(_LISTS) + _SUFFIX)) as file:
        writer = _WarcWriter(file)
        for number, url, answers, failure in _visit_all(config, by_host):
            if failure is not None and failure.is_dropped:
                account.drop(failure.reason)
            elif failure is not None:
                account.reject(number, failure.reason, detail=failure.detail, content=url)
            else:
                for answer in answers:
                    writer.write(answer)
                    account.bytes_read += len(answer.body)
                if config.links is not None:
                    links |= dict.fromkeys(links_of(_text(answers[-1]), answers[-1].url, config.links))
                yield {"url": url}
    if config.links is not None:
        with into_place(join(config.output_path, "links", name)) as file:
            file.write("".join(f"{link}\n" for link in sorted(links)).encode())


def _urls_of_part(config: CrawlConfig, part: int, account: Account) -> dict[str, list[tuple[int, str]]]:
    """The part's URLs by host, each once, in the order of the lists."""
    before = {url for folder in config.already for url in _listed(str(folder)) if _part_of(url, config.parts) == part}
    by_host: dict[str, list[tuple[int, str]]] = {}
    seen: set[str] = set()
    for number, url in enumerate(_listed(str(config.input_path)), 1):
        if _part_of(url, config.parts) != part:
            continue
        account.read += 1
        try:
            check_url(url)
        except Failed as failure:
            account.reject(number, failure.reason, content=url)
            continue
        if url in before:
            account.drop("crawled before")
        elif url in seen:
            account.drop("the URL was there before")
        else:
            seen.add(url)
            by_host.setdefault(_host(url), []).append((number, url))
    return by_host


def _listed(folder: str) -> Iterator[str]:
    for name in sizes_below(folder, is_data=True):
        if name.endswith(_LISTS):
            with open_to_read(join(folder, name)) as file:
                for line in file:
                    url = line.decode(errors="replace").strip()
                    if url and not url.startswith("#"):
                        yield _without_fragment(url)


def _without_fragment(url: str) -> str:
    try:
        return urldefrag(url).url
    except ValueError:
        return url


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _part_of(url: str, parts: int) -> int:
    return int.from_bytes(hashlib.sha256(_host(url).encode(errors="replace")).digest()[:8]) % parts


def _visit_all(config: CrawlConfig, by_host: dict[str, list[tuple[int, str]]]) -> Iterator[_Outcome]:
    """Hosts at the same time, the pages of each one by one. Few outcomes wait to be written."""
    outcomes: queue.Queue[_Outcome | BaseException] = queue.Queue(config.hosts_at_once)
    stopped = threading.Event()

    def visit_host(urls: list[tuple[int, str]]) -> None:
        visitor = Visitor(config.visits, config.contact)
        for number, url in urls:
            if stopped.is_set():
                return
            try:
                outcome: _Outcome | BaseException = _Outcome(number, url, visitor.visit(url), None)
            except Failed as failure:
                outcome = _Outcome(number, url, [], failure)
            except Exception as error:
                outcome = error
            while not stopped.is_set():
                with contextlib.suppress(queue.Full):
                    outcomes.put(outcome, timeout=1)
                    break

    pool = ThreadPoolExecutor(config.hosts_at_once)
    try:
        for urls in by_host.values():
            pool.submit(visit_host, urls)
        for _ in range(sum(len(urls) for urls in by_host.values())):
            outcome = outcomes.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _text(answer: Answer) -> str:
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding

    text: str = bytes_to_str(answer.body, detect_encoding(answer.body, from_html_meta=True))
    return text


class _WarcWriter:
    def __init__(self, file: Any) -> None:
        from warcio.warcwriter import WARCWriter

        self._writer = WARCWriter(file, gzip=True)
        self._writer.write_record(self._writer.create_warcinfo_record("", {"software": "marin-rules crawl"}))

    def write(self, answer: Answer) -> None:
        from warcio.statusandheaders import StatusAndHeaders

        http = StatusAndHeaders(f"{answer.status} {answer.reason}".strip(), answer.headers, protocol="HTTP/1.1")
        payload = io.BytesIO(answer.body)
        self._writer.write_record(
            self._writer.create_warc_record(answer.url, "response", payload=payload, http_headers=http)
        )
