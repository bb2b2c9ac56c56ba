"""The conda environment that `snakemake --sdm conda` runs a step in: checked before its code runs, then recorded.

Snakemake activates it, which only changes variables. What an activation puts on the PATH need not come first: conda
replaces the entry of the environment that was active before, so a virtual environment activated over that one stays in
front. Nothing here starts conda.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from marin_rules.errors import MarinRulesError

PREFIX_VARIABLE = "CONDA_PREFIX"
"""The variable in which an activation says what it has activated."""


@dataclass(frozen=True)
class CondaEnvironment:
    """The environment that Snakemake uses for a step."""

    path: str
    """Its folder; empty if only the machine that runs the step knows: made there, or called by its name."""

    file: str
    """The file it was made from; empty for one made by hand."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> CondaEnvironment:
        return cls(**fields)

    def to_fields(self) -> dict[str, str]:
        return asdict(self)


def active_prefix(environment: CondaEnvironment, *, runs_python: bool) -> str:
    """The folder of the environment, if this process is in it; otherwise an error. `runs_python`: its Python is
    needed."""
    active = os.environ.get(PREFIX_VARIABLE, "")
    expected = environment.path or active
    if not expected or not _same(active, expected):
        raise MarinRulesError(
            f"the step is to run in the conda environment {expected or environment.file}, but the active"
            f" one is {active or 'none'}. Start the experiment again; if that does not help, look for a file that"
            " bash or conda reads (BASH_ENV, activate.d) and that activates another environment."
        )
    if runs_python and not _same(sys.prefix, expected):
        raise MarinRulesError(
            f"the step is to run in the conda environment {expected}, but its Python is {sys.executable}. The"
            f" environment needs a Python of its own: name `python` in {environment.file or 'what it was made from'}."
        )
    return expected


def search_path(prefix: str) -> str:
    """The PATH of what runs in the environment: its own programs first, whatever else was activated over conda."""
    own = os.path.join(prefix, "bin")
    others = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder != own]
    return os.pathsep.join([own, *others])


def describe_environment(environment: CondaEnvironment, prefix: str) -> dict[str, Any]:
    """The environment as recorded in `.executor_info`."""
    packages = conda_packages(prefix)
    described: dict[str, Any] = {"path": prefix, "conda_file": environment.file, "packages": packages}
    if added := pip_packages(prefix, packages):
        described["pip_packages"] = added
    return described


def conda_packages(prefix: str) -> dict[str, str]:
    """Name -> version and build of what conda installed, from the names of its files: neither part has a hyphen."""
    names = (os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(prefix), "conda-meta", "*.json")))
    parts = (name.removesuffix(".json").rsplit("-", 2) for name in sorted(names))
    return {part[0]: f"{part[1]} {part[2]}" for part in parts if len(part) == 3}


def pip_packages(prefix: str, by_conda: Mapping[str, str]) -> dict[str, str]:
    """Name -> version of what pip, or another installer of wheels, added to the environment."""
    known = {_normal(name) for name in by_conda}
    pattern = os.path.join(glob.escape(prefix), "lib", "python3*", "site-packages", "*.dist-info")
    found = {}
    for folder in sorted(glob.glob(pattern)):
        name, _, version = os.path.basename(folder).removesuffix(".dist-info").partition("-")
        if _normal(name) not in known and _installer(folder) != "conda":
            found[_normal(name)] = version
    return found


def _installer(folder: str) -> str:
    try:
        with open(os.path.join(folder, "INSTALLER"), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _same(path: str, other: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)
