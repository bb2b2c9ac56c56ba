"""Let `snakemake --profile NAME` find the project's profiles by bare name, and report whose profile a run has.

Snakemake looks for names in the user's configuration folder, so each profile gets a link there. A profile that the
user already has under that name is never touched, nor is the link of another checkout that still exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from marin_rules.project import project_folder
from marin_rules.settings.locations import profiles

_DEFAULT = "default"
"""Snakemake applies this one automatically, in each of its runs."""


def _user_folder() -> Path:
    """Where Snakemake itself looks for the user's profiles."""
    from platformdirs import user_config_dir

    return Path(user_config_dir("snakemake", "snakemake"))


def link_profiles(folder: Path | None = None) -> Iterator[tuple[bool, str]]:
    """Link every profile but the default one; yields for each whether that changed anything, and a line for people."""
    folder = folder or _user_folder()
    for name, profile in profiles().items():
        if name == _DEFAULT:
            continue
        link = folder / name
        if link.is_symlink() and link.resolve() == profile.resolve():
            continue
        if _is_dead(link):
            link.unlink()
        if link.exists():
            other = checkout_of(link)
            whose = "" if other is None else f" (it belongs to the checkout {other})"
            yield (
                False,
                f"profile {name}: left {link} as it is{whose}; use `snakemake --profile {profile}` for this one",
            )
            continue
        folder.mkdir(parents=True, exist_ok=True)
        link.symlink_to(profile, target_is_directory=True)
        yield True, f"profile {name}: linked as {link}"


def _is_dead(link: Path) -> bool:
    """Whether a link leads to a checkout that is gone, or to its remains."""
    if not link.is_symlink():
        return False
    target = link.resolve()
    return not target.exists() or (target.parent.name == "profiles" and not any(target.glob("*.yaml")))


def checkout_of(profile: Path) -> Path | None:
    """The checkout of this project that a profile belongs to; None for a profile of the user's own."""
    folder = profile.resolve().parent
    checkout = folder.parent
    is_ours = folder.name == "profiles" and (checkout / "Snakefile").is_file()
    return checkout if is_ours and (checkout / "rules" / "steps.smk").is_file() else None


def chosen_profile(arguments: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """What the command line, or else the environment, gives as `--profile`."""
    chosen = variables.get("SNAKEMAKE_PROFILE") or None
    for position, argument in enumerate(arguments):
        if argument.startswith("--profile="):
            chosen = argument.partition("=")[2]
        elif argument == "--profile" and position + 1 < len(arguments):
            chosen = arguments[position + 1]
    return chosen


def profile_folder(name: str) -> Path | None:
    """The profile of this name or path, where Snakemake finds it."""
    candidates = [Path(name)] if os.path.exists(name) else [Path(name).absolute(), _user_folder() / name]
    return next((candidate for candidate in candidates if candidate.exists()), None)


def foreign_profile(arguments: Sequence[str], variables: Mapping[str, str] = os.environ) -> str | None:
    """A line about a profile of a checkout other than the one that runs, None for any other profile."""
    name = chosen_profile(arguments, variables)
    if name is None:
        return None
    found = profile_folder(name)
    checkout = None if found is None else checkout_of(found)
    own = project_folder().resolve()
    if checkout is None or checkout == own:
        return None
    return (
        f"warning: the profile {name} is that of another checkout, {checkout}, while this run uses {own}:"
        f" `--profile {own / 'profiles' / Path(name).name}` is its own"
    )
