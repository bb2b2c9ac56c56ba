"""The command that a driver starts for `snakemake ...`, with the saved copies of the project's Snakefile and
profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from marin_rules.driver.submitted_command import has_file, inside, moved_files, without_file
from marin_rules.project import PACKAGE, WORKFLOW, project_folder
from marin_rules.settings.profiles import profile_folder

type OwnProfile = Callable[[str], str]
"""Where a profile of the user's own is for the driver."""


def snakemake_words(
    arguments: Sequence[str], snakefile: str, code: str, own_profile: OwnProfile = str
) -> tuple[list[str], list[str]]:
    """The words that start it, and which files of the user's own it then reads; `code` is the folder that was kept."""
    own = inside(snakefile, project_folder(), _kept(code))
    words = ["snakemake", "--snakefile", own or snakefile]
    if own is not None and not has_file(arguments, "--workflow-profile"):
        words += ["--workflow-profile", str(_kept(code) / "profiles" / "default")]
    moved = moved_files(without_file(arguments, "-s"), lambda profile: moved_profile(profile, code, own_profile))
    return [*words, *moved], [] if own is not None else [snakefile]


def moved_profile(profile: str, code: str, own_profile: OwnProfile = str) -> str:
    """Where a profile is taken from: for the project's own, the saved copy."""
    folder = profile_folder(profile)
    return (None if folder is None else inside(str(folder), project_folder(), _kept(code))) or own_profile(profile)


def _kept(code: str) -> Path:
    return Path(code, PACKAGE.name, WORKFLOW)
