"""The file of a cluster, `config/clusters/<name>.yaml`: where it is looked for, and what is wrong with it, if anything.

`MARIN_CLUSTER` names it. It is looked for in the working directory, then in the project. The whole file is checked
against `config/cluster.schema.yaml` when it is first read; a wrong one is refused with its name, the key and what to
write instead. Each room then converts its own block (`data`, `jobs`, `slurm`).
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from marin_rules.errors import SettingsError
from marin_rules.project import project_folder
from marin_rules.settings.locations import cluster_schema
from marin_rules.settings.ownership import check_not_planted
from marin_rules.settings.schema import first_problem, kind, known_keys

CLUSTER_VARIABLE = "MARIN_CLUSTER"

_FOLDER = Path("config") / "clusters"

_ALMOST = 0.8
"""How similar (by difflib) two names are that differ by one typo."""


def cluster_name() -> str | None:
    """The cluster that was chosen, None if none was."""
    return os.environ.get(CLUSTER_VARIABLE) or None


def find_cluster_file(name: str) -> Path:
    """The file of the cluster of this name."""
    folders = _folders()
    for folder in folders:
        path = folder / f"{name}.yaml"
        if os.path.basename(name) == name and path.is_file():
            check_not_planted(str(path), str(folder.parent.parent), "the cluster file")
            return path
    existing = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    known = f"There are: {', '.join(existing)}." if existing else "There are none."
    raise SettingsError(
        f"cluster {name!r}: there is no {name}.yaml in {' or '.join(map(str, folders))}. {known} Choose one,"
        " or write that file (see config/clusters/README.md)."
    )


def _folders() -> list[Path]:
    own = Path.cwd() / _FOLDER
    shared = project_folder() / _FOLDER
    return [own] if own == shared else [own, shared]


def read_block(path: Path, block: str) -> Mapping[str, Any]:
    """One block of the file, empty if the file has none. The whole file is sound; keys that are left blank are None."""
    return MappingProxyType(_read(path, *state_of(path)).get(block) or {})


def state_of(path: Path) -> tuple[int, int]:
    """A stamp that changes when the file does."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=16)
def _read(path: Path, changed: int, size: int) -> dict[str, Any]:
    """The file in this state. Used at each look at a bucket, so it is read once, and again when it has changed."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"cluster file {path} is not YAML: {error}") from error
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise SettingsError(
            f"cluster file {path} must be a mapping with blocks such as 'data:' and 'slurm:', not {kind(content)}"
        )
    _check(path, content)
    return content


def _check(path: Path, content: dict[str, Any]) -> None:
    """Refuse a file that its schema does not allow. A step's environment has neither the schema's file nor jsonschema:
    there the driver has already checked the file."""
    schema = cluster_schema()
    if not schema.is_file() or importlib.util.find_spec("jsonschema") is None:
        return
    known = known_keys(schema)
    for block in content:
        # Blocks of other programs do not concern us, except those spelt almost like one of ours.
        close = difflib.get_close_matches(str(block), known, n=1, cutoff=_ALMOST)
        if block not in known and close:
            raise SettingsError(f"cluster file {path} has an unknown block {block!r}. Did you mean {close[0]!r}?")
    found = first_problem(schema, content)
    if found is not None:
        advice = f"; write {found.advice}" if found.advice else ""
        raise SettingsError(f"cluster file {path}: {found.where} {found.message}{advice}")
