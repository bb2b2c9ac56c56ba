"""Clusters: which bucket belongs to which region, read from `config/clusters/<name>.yaml`.

`MARIN_CLUSTER` chooses the file. It is looked for in the working directory, then in the project. Only its `data:`
block is read here; other blocks belong to others. A wrong file is refused with its name, the key and what to write.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from marin_rules.errors import SettingsError
from marin_rules.geography import joined, normalised
from marin_rules.project import project_folder
from marin_rules.storage.urls import PREFIX_SCHEMES, check_prefix

CLUSTER_VARIABLE = "MARIN_CLUSTER"
DEFAULT_SCHEME = "gs"
DEFAULT_TEMPORARY_PATH = "tmp/ttl={days}d"
DEFAULT_TEMPORARY_DAYS = (1, 2, 3, 4, 5, 6, 7, 14, 30)

_FOLDER = Path("config") / "clusters"
_DATA_KEYS = ("region_buckets", "scheme", "temp", "root")
_TEMP_KEYS = ("path", "ttl_days")


@dataclass(frozen=True)
class Cluster:
    """Where a cluster keeps its data."""

    name: str

    region_buckets: Mapping[str, str] = field(default_factory=dict)
    """The bucket of each region, without a scheme."""

    scheme: str = DEFAULT_SCHEME

    temporary_path: str = DEFAULT_TEMPORARY_PATH
    """Where temporary data go in a bucket; `{days}` stands for the days that they are kept."""

    temporary_days: tuple[int, ...] = DEFAULT_TEMPORARY_DAYS
    """How long data can be kept: the buckets have a deletion rule for each."""

    root: str | None = None
    """The prefix of all steps, wherever they run; None for the bucket of the region where they run."""

    def bucket_url(self, region: str) -> str | None:
        """The bucket of a region, with its scheme."""
        bucket = self.region_buckets.get(normalised(region))
        return f"{self.scheme}://{bucket}" if bucket else None

    def location_of(self, bucket: str) -> str | None:
        """The region that a bucket is for, or all of them joined; None for a bucket that is not in the map."""
        return joined([region for region, its_bucket in self.region_buckets.items() if its_bucket == bucket])


def current_cluster() -> Cluster | None:
    """The cluster that `MARIN_CLUSTER` names, or None if it names none."""
    name = os.environ.get(CLUSTER_VARIABLE)
    return read_cluster(name) if name else None


def read_cluster(name: str) -> Cluster:
    """The cluster of this name; a `SettingsError` if there is none, or if its file is wrong."""
    path = _find(name)
    status = os.stat(path)
    key = (str(path), status.st_mtime_ns, status.st_size)
    # Asked for at each read of a bucket: the file is parsed once, and again when it has changed.
    if key not in _parsed:
        _parsed[key] = _parse(name, path)
    return _parsed[key]


_parsed: dict[tuple[str, int, int], Cluster] = {}


def _folders() -> list[Path]:
    own = Path.cwd() / _FOLDER
    shared = project_folder() / _FOLDER
    return [own] if own == shared else [own, shared]


def _find(name: str) -> Path:
    folders = _folders()
    for folder in folders:
        path = folder / f"{name}.yaml"
        if os.path.basename(name) == name and path.is_file():
            return path
    existing = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    known = f"There are: {', '.join(existing)}." if existing else "There are none."
    raise SettingsError(
        f"{CLUSTER_VARIABLE}={name!r}: there is no {name}.yaml in {' or '.join(map(str, folders))}. {known} Choose one,"
        " or write that file (see config/clusters/README.md)."
    )


def _parse(name: str, path: Path) -> Cluster:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"cluster file {path} is not YAML: {error}") from error
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise SettingsError(f"cluster file {path} must be a mapping with a block 'data:', not a {_kind(content)}")
    data = content.get("data")
    data = _mapping(path, "data", {} if data is None else data)
    _refuse_unknown(path, "data", data, _DATA_KEYS)
    temp = _mapping(path, "data.temp", data.get("temp") or {})
    _refuse_unknown(path, "data.temp", temp, _TEMP_KEYS)
    return Cluster(
        name=name,
        region_buckets=MappingProxyType(_region_buckets(path, data.get("region_buckets") or {})),
        scheme=_scheme(path, data.get("scheme", DEFAULT_SCHEME)),
        temporary_path=_temporary_path(path, temp.get("path", DEFAULT_TEMPORARY_PATH)),
        temporary_days=_temporary_days(path, temp.get("ttl_days", DEFAULT_TEMPORARY_DAYS)),
        root=_root(path, data.get("root")),
    )


def _region_buckets(path: Path, value: object) -> dict[str, str]:
    buckets: dict[str, str] = {}
    for region, bucket in _mapping(path, "data.region_buckets", value).items():
        where = f"data.region_buckets.{region}"
        bucket = _text(path, where, bucket)
        if "/" in bucket or not bucket.strip():
            name = bucket.partition("://")[2].strip("/") or "my-bucket"
            raise SettingsError(f"cluster file {path}: {where} is {bucket!r}; write the bucket's name alone: {name}")
        buckets[normalised(_text(path, "a region in data.region_buckets", region))] = bucket
    return buckets


def _scheme(path: Path, value: object) -> str:
    scheme = _text(path, "data.scheme", value)
    if scheme not in PREFIX_SCHEMES:
        raise SettingsError(f"cluster file {path}: data.scheme is {scheme!r}; write one of {', '.join(PREFIX_SCHEMES)}")
    return scheme


def _temporary_path(path: Path, value: object) -> str:
    pattern = _text(path, "data.temp.path", value)
    try:
        different = pattern.format(days=1) != pattern.format(days=2)
    except (KeyError, IndexError, ValueError):
        different = False
    if not different or pattern.startswith("/") or pattern.endswith("/"):
        raise SettingsError(
            f"cluster file {path}: data.temp.path is {pattern!r}; write a path below the bucket with {{days}} in it, as"
            f" in {DEFAULT_TEMPORARY_PATH!r}"
        )
    return pattern


def _temporary_days(path: Path, value: object) -> tuple[int, ...]:
    days = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if not days or not all(isinstance(day, int) and not isinstance(day, bool) and day > 0 for day in days):
        raise SettingsError(
            f"cluster file {path}: data.temp.ttl_days is {value!r}; write a list of whole days, as in [1, 7, 30]"
        )
    return tuple(sorted(set(days)))


def _root(path: Path, value: object) -> str | None:
    if value is None:
        return None
    try:
        return check_prefix(_text(path, "data.root", value))
    except SettingsError as error:
        raise SettingsError(f"cluster file {path}: data.root: {error}") from error


def _mapping(path: Path, where: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"cluster file {path}: {where} is {value!r}; it must be a mapping, not a {_kind(value)}")
    return value


def _text(path: Path, where: str, value: object) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"cluster file {path}: {where} is {value!r}; it must be a text, not a {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return {"dict": "mapping", "str": "text", "NoneType": "blank"}.get(type(value).__name__, type(value).__name__)


def _refuse_unknown(path: Path, where: str, given: Mapping[Any, Any], known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise SettingsError(
                f"cluster file {path}: {where} has an unknown key {key!r}. {hint}Known keys: {', '.join(known)}."
            )
