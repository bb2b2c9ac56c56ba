"""Where the Snakefile, the profiles and the default configuration are."""

from __future__ import annotations

from pathlib import Path

from marin_rules.project import project_folder


def snakefile() -> Path:
    return project_folder() / "Snakefile"


def config_file() -> str:
    """The working directory's own `config/config.yaml`, or the project's."""
    own = Path("config/config.yaml")
    return str(own if own.is_file() else project_folder() / own)


def config_schema() -> Path:
    return project_folder() / "config" / "config.schema.yaml"


def cluster_schema() -> Path:
    return project_folder() / "config" / "cluster.schema.yaml"


def profiles() -> dict[str, Path]:
    """The project's profiles by name."""
    folder = project_folder() / "profiles"
    return {path.name: path for path in sorted(folder.iterdir()) if (path / "config.yaml").is_file()}
