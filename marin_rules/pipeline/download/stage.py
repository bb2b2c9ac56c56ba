"""The stage: list the files of a source, fetch those of this task, and record what has arrived.

A file that fails does not stop the others; the step then fails with its name, and the next run continues from there. If
the source is pinned, or digests are given, the same config means the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from marin_rules import THIS_OUTPUT_PATH, shards_of_this_task
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import is_url, join, put_into_place
from marin_rules.pipeline.core.http import new_session, without_secrets
from marin_rules.pipeline.download import hub, manifest, packages
from marin_rules.pipeline.download.archives import UnpackLimits, folder_of, is_archive, unpack
from marin_rules.pipeline.download.fetching import Fetcher, FetchSettings
from marin_rules.pipeline.download.partial import Partial, forget_partial, opened_partial, partial_folder
from marin_rules.pipeline.download.progress import Progress
from marin_rules.pipeline.download.sources import (
    FilesystemSource,
    HubSource,
    PackageSource,
    RemoteFile,
    Source,
    UrlSource,
    check_name,
    check_pins,
    chosen,
    is_chosen,
    url_files,
)

_NAMED = 5
"""Files that a message names."""


@dataclass(frozen=True)
class DownloadConfig:
    """The files of a source below `output_path`, with a manifest."""

    source: Source
    archives: Literal["keep", "unpack"] = "keep"
    """Whether `.tar`, `.zip` and the like become the files in them, in a folder of the archive's name. The files of a
    package are always unpacked."""

    licence: str = ""
    """Of the data, as `provenance.json` is to record it."""

    limits: UnpackLimits = field(default_factory=UnpackLimits)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    output_path: str = THIS_OUTPUT_PATH


def download(config: DownloadConfig) -> dict[str, Any]:
    """Fetch this task's files; returns how many files and bytes there are in total, if all are there."""
    source = config.source
    check_pins(source)
    is_hub = isinstance(source, HubSource)
    fetcher = Fetcher(
        new_session(config.fetch.connections),
        config.fetch,
        Progress(0, 0, None),
        hub.authorization() if is_hub else None,
        hub.ADVICE if is_hub else "",
    )
    files = {file.name: file for file in _files_of(source, fetcher)}
    _refuse_collisions(config, files)
    mine = [files[name] for name in shards_of_this_task(files)]
    manifest.forget_if_done_before(config.output_path, [file.name for file in mine])
    todo = [file for file in mine if not manifest.is_fetched(config.output_path, file)]
    sizes = [file.size for file in todo]
    expected = None if None in sizes else sum(size or 0 for size in sizes)
    fetcher = replace(fetcher, progress=Progress(len(mine), len(mine) - len(todo), expected))
    failures = _fetch_all(config, fetcher, todo)
    if failures:
        told = "; ".join(f"{name}: {why}".replace(f"{name}: {name}", name) for name, why in failures[:_NAMED])
        raise DataError(
            f"{len(failures)} of {len(mine)} files failed, and the others are here: {told.rstrip('.')}."
            " Run the step again: it continues with these"
        )
    fetcher.progress.tell()
    with contextlib.suppress(OSError):  # Not empty while other tasks are running.
        os.rmdir(partial_folder(config.output_path))
    done = manifest.finish(config.output_path, files, _provenance(config))
    if done is not None:  # No task is running any more, but killed attempts may have left something.
        shutil.rmtree(partial_folder(config.output_path), ignore_errors=True)
    return done or {"files": len(mine)}


def _files_of(source: Source, fetcher: Fetcher) -> list[RemoteFile]:
    if isinstance(source, HubSource):
        return hub.hub_files(source, fetcher)
    if isinstance(source, UrlSource):
        return url_files(source)
    if isinstance(source, PackageSource):
        return [RemoteFile("", packages.file_name(source), sha256=source.sha256)]
    return _filesystem_files(source)


def _filesystem_files(source: FilesystemSource) -> list[RemoteFile]:
    import fsspec

    path = str(source.path)
    filesystem, root = fsspec.core.url_to_fs(path)
    found = filesystem.find(root, detail=True)
    if not found:
        raise DataError(f"there are no files below {without_secrets(path) if is_url(path) else path}")
    sizes = {name.removeprefix(root).lstrip("/") or name.rpartition("/")[2]: name for name in found}
    files = []
    for name, full in chosen(sizes.items(), source, path).items():
        check_name(name, path)
        files.append(RemoteFile(filesystem.unstrip_protocol(full), name, size=found[full]["size"]))
    return files


def _refuse_collisions(config: DownloadConfig, files: dict[str, RemoteFile]) -> None:
    manifest.refuse_reserved(files, "the source")
    if config.archives == "keep":
        return
    made: dict[str, str] = {}
    for name in files:
        place = folder_of(name) if is_archive(name) else name
        if not place or place.endswith("/"):
            raise DataError(f"the archive {name} has no name that its files could stand below: leave it out")
        manifest.refuse_reserved([place], "the source, taken apart,")
        if made.setdefault(place, name) != name:
            raise DataError(f"both {made[place]} and {name} would become {place}: leave one out, or keep archives")


def _fetch_all(config: DownloadConfig, fetcher: Fetcher, todo: list[RemoteFile]) -> list[tuple[str, str]]:
    """Fetch files, several at a time; returns why any failed."""
    failures = {}
    with ThreadPoolExecutor(config.fetch.connections) as pool:
        futures = {pool.submit(_fetch_one, config, fetcher, file): file.name for file in todo}
        try:
            for future in as_completed(futures):
                error = future.exception()
                if error is None:
                    fetcher.progress.add_file()
                elif isinstance(error, (DataError, OSError)):
                    failures[futures[future]] = str(error)
                else:
                    raise error
        finally:
            pool.shutdown(cancel_futures=True)
    return sorted(failures.items())


def _fetch_one(config: DownloadConfig, fetcher: Fetcher, file: RemoteFile) -> None:
    with opened_partial(config.output_path, file.name) as partial:
        if isinstance(config.source, PackageSource):
            packages.fetch_package(config.source, file, partial, fetcher)
        else:
            fetcher.fetch(file, partial)
        _put_in_place(config, file, partial)
        forget_partial(partial)


def _put_in_place(config: DownloadConfig, file: RemoteFile, partial: Partial) -> None:
    sha256, size, name = partial.sha256(), partial.size, file.name
    place_of = _place_of(config, name)
    if place_of is None:
        put_into_place(partial.path, join(config.output_path, name))
        files: dict[str, Any] = {name: {"size": size, "sha256": sha256}}
        left_out: Any = {}
    else:
        is_verified = bool(file.sha256 or file.git_sha1)
        unpacked = unpack(
            partial.path, name, size, config.output_path, place_of, config.limits, is_verified=is_verified
        )
        if not unpacked.files:
            forget_partial(partial)
            raise DataError(f"no file of {name} fits: {dict(unpacked.left_out) or 'it is empty'}")
        files, left_out = unpacked.files, unpacked.left_out
    manifest.note_fetched(config.output_path, name, size, sha256, files, left_out)


def _place_of(config: DownloadConfig, name: str) -> Callable[[str], str | None] | None:
    """Where the members of an archive go; None if it stays packed."""
    source = config.source
    if isinstance(source, PackageSource):

        def of_package(member: str) -> str | None:
            place = packages.place_of(source, member)
            if not is_chosen(place, source.patterns, source.leave_out):
                return None
            manifest.refuse_reserved([place], name)
            return place

        return of_package
    if config.archives == "keep" or not is_archive(name):
        return None
    return lambda member: f"{folder_of(name)}/{member}"


def _provenance(config: DownloadConfig) -> dict[str, Any]:
    """Where it came from, in words that are the same on every machine."""
    source = config.source
    kinds = {HubSource: "hub", UrlSource: "urls", FilesystemSource: "filesystem", PackageSource: "package"}
    if isinstance(source, UrlSource):
        facts: dict[str, Any] = {"urls": {file.name: without_secrets(file.url) for file in url_files(source)}}
    else:
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(source).items()}
    if isinstance(source, FilesystemSource) and is_url(str(source.path)):
        facts["path"] = without_secrets(str(source.path))
    return {"source": kinds[type(source)], **facts, "licence": config.licence, "archives": config.archives}
