"""The stage: published dumps and folders of files in, shards of records out.

| kind | reads | a record |
|---|---|---|
| `wikipedia` | Wikimedia Enterprise HTML: `.ndjson`, out of its `.tar.gz` | `id`, `title`, `url`, `html` |
| `ar5iv` | `.zip` of HTML files | `id`, `html` |
| `stack_exchange` | `Posts.xml`, out of its `.7z`; or `.xml.gz` | `id`, `title`, `html`, `tags`, `score`, `answers` |
| `wet` | text of Common Crawl: `.wet`, `.wet.gz` | a document |
| `html_files` | a folder of `.html` files | `id`, `html` |
| `text_files` | a folder of `.txt` and `.md` files | a document |

`download` with `archives="unpack"` unpacks tar and zip archives; `.7z` needs a program (`7z x`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import is_url, sizes_below
from marin_rules.pipeline.core.left_out import REJECTS
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, digest_of, map_shards
from marin_rules.pipeline.core.warc import read_texts
from marin_rules.pipeline.dumps.files import HTML_SUFFIXES, read_ar5iv, read_files
from marin_rules.pipeline.dumps.stack_exchange import read_threads

type DumpKind = Literal["wikipedia", "ar5iv", "stack_exchange", "wet", "html_files", "text_files"]

_SUFFIXES: dict[str, tuple[str, ...]] = {
    "wikipedia": (".ndjson", ".ndjson.gz", ".ndjson.zst"),
    "ar5iv": (".zip",),
    "stack_exchange": (".xml", ".xml.gz", ".xml.zst"),
    "wet": (".wet", ".wet.gz", ".wet.zst"),
    "html_files": HTML_SUFFIXES,
    "text_files": (".txt", ".md"),
}
_DIVISIBLE = ("ar5iv", "stack_exchange")
_FOLDERS = ("html_files", "text_files")


@dataclass(frozen=True)
class DumpConfig:
    """Records from a dump below `input_path`."""

    input_path: str | InputName
    kind: DumpKind
    parts: int = 1
    """Shards that a folder of files becomes, or each archive of ar5iv, or each Posts.xml."""

    patterns: Sequence[str] = ("*",)
    """Names of the files to read."""

    source: str = ""
    """The `source` of the records; the kind if empty."""

    output_format: str = ".jsonl.zst"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


class _Part(NamedTuple):
    names: Sequence[str]
    part: int


def read_dump(config: DumpConfig) -> dict[str, Any]:
    """Write a shard for each file of the dump, or for each part of it."""
    if config.kind not in _SUFFIXES:
        raise DataError(f"no kind of dump {config.kind!r}: use one of {', '.join(_SUFFIXES)}")
    if config.parts < 1 or (config.parts > 1 and config.kind not in (*_DIVISIBLE, *_FOLDERS)):
        raise DataError(f"parts is {config.parts}, but {config.kind} dumps are not divided: leave it out")
    suffixes = _SUFFIXES[config.kind]
    shards, parts = _shards(config, suffixes)
    read = _READERS[config.kind]
    source = config.source or config.kind

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        records = read(config, shard, parts[shard.name], account)
        for record in shard.until_damage(records, account):
            yield {**record, "source": source}

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format=config.output_format,
        suffixes=suffixes,
        settings=config.shards,
        shards=shards,
    )


def _shards(config: DumpConfig, suffixes: tuple[str, ...]) -> tuple[list[Shard], dict[str, _Part]]:
    """The output's shards, and what each is made from."""
    folder, count = str(config.input_path), config.parts
    sizes = {
        name: size
        for name, size in sizes_below(folder, is_data=True).items()
        if (name.lower() if config.kind in _FOLDERS else name).endswith(suffixes)
        and name.partition("/")[0] != REJECTS
        and any(fnmatchcase(name, pattern) for pattern in config.patterns)
    }
    if not sizes:
        where = folder if is_url(folder) else os.path.abspath(folder)
        missing = "" if is_url(folder) or os.path.isdir(folder) else ": there is no such folder"
        fit = "" if tuple(config.patterns) == ("*",) else f" whose names fit {list(config.patterns)}"
        raise DataError(f"no {' or '.join(suffixes)} files below {where}{fit}{missing}")
    made: dict[str, _Part] = {}
    if config.kind in _FOLDERS:
        names = sorted(sizes)
        for part in range(min(count, len(names))):
            made[f"part-{part:05}-of-{count:05}{suffixes[0]}"] = _Part(names[part::count], part)
    else:
        for name in sizes:
            suffix = max((suffix for suffix in suffixes if name.endswith(suffix)), key=len)
            for part in range(count):
                number = f"-{part:05}-of-{count:05}" if count > 1 else ""
                made[f"{name.removesuffix(suffix)}{number}{suffix}"] = _Part([name], part)
    shards = []
    for name, one in made.items():
        files = {file: sizes[file] for file in one.names}
        made_of = digest_of(files) if config.kind in _FOLDERS else ""
        shards.append(Shard(folder, name, sum(files.values()), config.shards, made_of=made_of))
    return shards, made


def _wikipedia(config: DumpConfig, shard: Shard, part: _Part, account: Account) -> Iterator[Record]:
    seen: set[str] = set()
    for row in shard.rows(account, _article_fault):
        article = row.record
        id = str(article["identifier"])
        if id in seen:
            account.reject(row.number, "the id was there before", id=id, content=article["name"])
            continue
        seen.add(id)
        url = article.get("url")
        yield {
            "id": id,
            "title": article["name"],
            "url": url if isinstance(url, str) else "",
            "html": article["article_body"]["html"],
        }


def _article_fault(record: Record) -> str | None:
    if not isinstance(record.get("identifier"), (int, str)) or not isinstance(record.get("name"), str):
        return "no identifier or name"
    body = record.get("article_body")
    return None if isinstance(body, dict) and isinstance(body.get("html"), str) else "no html in article_body"


def _ar5iv(config: DumpConfig, shard: Shard, part: _Part, account: Account) -> Iterator[Record]:
    path = Shard(shard.folder, part.names[0], shard.size).path
    return read_ar5iv(path, part.part, config.parts, account, shard.settings.largest_record_bytes)


def _threads(config: DumpConfig, shard: Shard, part: _Part, account: Account) -> Iterator[Record]:
    path = Shard(shard.folder, part.names[0], shard.size).path
    return read_threads(path, part.names[0], part.part, config.parts, account)


def _wet(config: DumpConfig, shard: Shard, part: _Part, account: Account) -> Iterator[Record]:
    for page in read_texts(shard.path, shard.name, account, shard.settings.largest_record_bytes):
        try:
            text = page.body.decode()
        except UnicodeDecodeError:
            account.reject(page.number, "not UTF-8", id=page.id, detail=page.url)
            continue
        if not text.strip():
            account.reject(page.number, "a page without text", id=page.id, detail=page.url)
            continue
        yield {"id": page.id, "text": text, "metadata": {"url": page.url, "date": page.date}}


def _files(field: str) -> Callable[[DumpConfig, Shard, _Part, Account], Iterator[Record]]:
    def read(config: DumpConfig, shard: Shard, part: _Part, account: Account) -> Iterator[Record]:
        return read_files(shard.folder, part.names, account, field, shard.settings.largest_record_bytes)

    return read


_READERS: dict[str, Callable[[DumpConfig, Shard, _Part, Account], Iterator[Record]]] = {
    "wikipedia": _wikipedia,
    "ar5iv": _ar5iv,
    "stack_exchange": _threads,
    "wet": _wet,
    "html_files": _files("html"),
    "text_files": _files("text"),
}
