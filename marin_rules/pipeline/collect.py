"""One corpus of several sources: pages and texts in files of their own, and the shards of earlier stages.

Each source is a folder below the output, `<source>/...`, so that later stages work on one folder and still tell the
sources apart: by the `source` of each record, and by the first part of its id.

| files of a source | become |
|---|---|
| `.html`, `.htm`, `.xhtml` | records `{id, source, html}`, for `extract` |
| `.txt`, `.md` | documents `{id, source, text}` |
| shards of an earlier stage, or of others | their records, with this source and `<source>/` before the id |

Single files are divided among `file_shards` shards by a hash of their names: adding a file changes one shard.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, open_to_read, sizes_below
from marin_rules.pipeline.core.fingerprints import digest
from marin_rules.pipeline.core.left_out import REJECTS
from marin_rules.pipeline.core.pages import decoded_page
from marin_rules.pipeline.core.records import Record, identified_fault
from marin_rules.pipeline.core.shard_files import FORMATS
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, digest_of, map_shards

_PAGES = (".html", ".htm", ".xhtml")
_TEXTS = (".txt", ".md")


@dataclass(frozen=True)
class Source:
    """Where the files of a source are, and which of them it consists of."""

    path: str | InputName
    patterns: Sequence[str] = ("*",)
    """Shell patterns of names relative to the path; `*` also matches `/`."""

    without: Sequence[str] = ()
    """Patterns of names that are left out."""


@dataclass(frozen=True)
class CollectConfig:
    """One corpus of `sources`, by their names."""

    sources: Mapping[str, Source]
    file_shards: int = 8
    """How many shards the single files of each source are divided into."""

    output_format: str = ".jsonl.zst"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def collect(config: CollectConfig) -> dict[str, Any]:
    """Write a folder of shards for each source."""
    if config.file_shards < 1:
        raise DataError(f"cannot deal files out to {config.file_shards} shards")
    found = {name: _Found.below(name, source, config.file_shards) for name, source in config.sources.items()}

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        name, _, rest = shard.name.partition("/")
        source = found[name]
        if rest in source.shards:
            inner = Shard(source.folder, rest, shard.size, shard.settings)
            yield from _records_of(inner, name, account)
        else:
            yield from _records_of_files(source, source.files[rest], name, shard.settings, account)

    return map_shards(
        transform,
        config.output_path,
        config.output_path,
        output_format=config.output_format,
        settings=config.shards,
        shards=[shard for one in found.values() for shard in one.to_do(config.shards)],
    )


@dataclass(frozen=True)
class _Found:
    """The files of a source."""

    source: str
    folder: str
    shards: Mapping[str, int]
    """Shards that are there, with their sizes."""

    files: Mapping[str, Mapping[str, int]]
    """Single files with their sizes, by the shard into which they go."""

    @classmethod
    def below(cls, name: str, source: Source, file_shards: int) -> _Found:
        if not name or name.startswith(".") or "/" in name or name == REJECTS:
            raise DataError(f"a source cannot be called {name!r}: its name becomes a folder beside {REJECTS}/")
        folder = str(source.path)
        sizes = {
            file: size
            for file, size in sizes_below(folder, is_data=True).items()
            if file.partition("/")[0] != REJECTS
            and _matches(file, source.patterns)
            and not _matches(file, source.without)
        }
        shards = {file: size for file, size in sizes.items() if file.endswith(FORMATS)}
        files: dict[str, dict[str, int]] = {}
        for file, size in sizes.items():
            if file.lower().endswith(_PAGES + _TEXTS):
                number = int.from_bytes(digest(file)[:8], "big") % file_shards
                files.setdefault(f"files-{number:05}-of-{file_shards:05}.jsonl", {})[file] = size
        if both := sorted(shards.keys() & files.keys()):
            raise DataError(
                f"source {name!r}: {join(folder, both[0])} has the name of a shard that single files would go to."
                " Rename it, or give another number of file_shards"
            )
        if not shards and not files:
            raise DataError(
                f"source {name!r}: no pages, texts or shards below {folder} match {', '.join(source.patterns)}."
                " Look at the manifest.json of its download, and correct the patterns"
            )
        return cls(name, folder, shards, files)

    def to_do(self, settings: ShardSettings) -> Iterator[Shard]:
        for name, size in self.shards.items():
            yield Shard(self.folder, f"{self.source}/{name}", size, settings)
        for name, files in sorted(self.files.items()):
            size, made_of = sum(files.values()), digest_of(files)
            yield Shard(self.folder, f"{self.source}/{name}", size, settings, made_of=made_of)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _records_of(shard: Shard, source: str, account: Account) -> Iterator[Record]:
    for row in shard.rows(account, identified_fault):
        yield {**row.record, "id": f"{source}/{row.record['id']}", "source": source}


def _records_of_files(
    found: _Found, files: Mapping[str, int], source: str, settings: ShardSettings, account: Account
) -> Iterator[Record]:
    for number, (name, size) in enumerate(sorted(files.items()), 1):
        id = f"{source}/{name}"
        account.read += 1
        account.bytes_read += size
        if size > settings.largest_record_bytes:
            account.reject(number, "too large", id=id, detail=f"{size:,} bytes")
            continue
        with open_to_read(join(found.folder, name)) as file:
            data = file.read()
        if name.lower().endswith(_PAGES):
            yield {"id": id, "source": source, "html": decoded_page(data, None)}
            continue
        try:
            yield {"id": id, "source": source, "text": data.decode("utf-8-sig")}
        except UnicodeDecodeError as error:
            account.reject(number, "not UTF-8", id=id, detail=str(error))
