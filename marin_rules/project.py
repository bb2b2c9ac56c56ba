"""Where the project's own files are: `Snakefile`, `rules/`, `profiles/`, `config/`.

In a checkout they are at the top level; an installed package has them in `marin_rules/_workflow`.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""The folder of this package."""


WORKFLOW = "_workflow"
"""The folder of an installed package that holds what is beside it in a checkout."""


def project_folder() -> Path:
    """The folder that holds `Snakefile`, `rules/`, `profiles/` and `config/`."""
    installed = PACKAGE / WORKFLOW
    return installed if installed.is_dir() else PACKAGE.parent
