"""Where the Snakefile, the profiles and the default configuration are.

In a checkout they stand at its top level; an installed package carries them in `marin_rules/_workflow`.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def workflow_folder() -> Path:
    """The folder that holds `Snakefile`, `rules/`, `profiles/` and `config/`."""
    installed = _PACKAGE / "_workflow"
    return installed if installed.is_dir() else _PACKAGE.parent


def snakefile() -> Path:
    return workflow_folder() / "Snakefile"


def config_file() -> str:
    """The working directory's own `config/config.yaml`, or the project's."""
    own = Path("config/config.yaml")
    return str(own if own.is_file() else workflow_folder() / own)


def config_schema() -> Path:
    return workflow_folder() / "config" / "config.schema.yaml"


def profiles() -> dict[str, Path]:
    """The project's profiles by name."""
    folder = workflow_folder() / "profiles"
    return {path.name: path for path in sorted(folder.iterdir()) if (path / "config.yaml").is_file()}


def run_step_command() -> Path:
    """The program that every job starts."""
    return Path(__file__).resolve().parent / "run-step"
