"""The file of a cluster, `config/clusters/<name>.yaml`: where it is looked for, and what is wrong with it if it is.

`MARIN_CLUSTER` names it. It is looked for in the working directory, then in the project. Each room reads its own block
(`data`, `slurm`) and leaves the others alone. A wrong file is refused with its name, the key and what to write.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marin_rules.errors import SettingsError
from marin_rules.project import project_folder
from marin_rules.settings.ownership import check_not_planted

CLUSTER_VARIABLE = "MARIN_CLUSTER"

_FOLDER = Path("config") / "clusters"


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
        f"{CLUSTER_VARIABLE}={name!r}: there is no {name}.yaml in {' or '.join(map(str, folders))}. {known} Choose one,"
        " or write that file (see config/clusters/README.md)."
    )


def _folders() -> list[Path]:
    own = Path.cwd() / _FOLDER
    shared = project_folder() / _FOLDER
    return [own] if own == shared else [own, shared]


def read_block(path: Path, block: str, known: Sequence[str]) -> Mapping[Any, Any]:
    """One block of the file, empty if the file has none; keys other than the known ones are refused."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"cluster file {path} is not YAML: {error}") from error
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise SettingsError(f"cluster file {path} must be a mapping with a block '{block}:', not a {_kind(content)}")
    return mapping(path, block, content.get(block), known)


def mapping(path: Path, where: str, value: object, known: Sequence[str] | None = None) -> Mapping[Any, Any]:
    """The mapping at a place in the file; one that is left blank is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"cluster file {path}: {where} is {value!r}; it must be a mapping, not a {_kind(value)}")
    for key in value:
        if known is not None and key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise SettingsError(
                f"cluster file {path}: {where} has an unknown key {key!r}. {hint}Known keys: {', '.join(known)}."
            )
    return value


def text(path: Path, where: str, value: object) -> str:
    """The text at a place in the file."""
    if not isinstance(value, str):
        raise SettingsError(f"cluster file {path}: {where} is {value!r}; it must be a text, not a {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return {"dict": "mapping", "str": "text", "NoneType": "blank"}.get(type(value).__name__, type(value).__name__)
