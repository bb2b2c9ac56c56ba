"""Let `snakemake --profile NAME` find the project's profiles by bare name.

Snakemake looks for names in the user's configuration folder, so each profile gets a link there. A profile that the
user already has under that name is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from marin_rules.engine.locations import profiles

_DEFAULT = "default"
"""Snakemake takes this one from the project by itself, for each of its runs."""


def _user_folder() -> Path:
    """Where Snakemake itself looks for the user's profiles."""
    from snakemake.common import get_appdirs

    return Path(get_appdirs().user_config_dir)


def link_profiles(folder: Path | None = None) -> Iterator[str]:
    """Link every profile but the default one; yields a line for people about each."""
    folder = folder or _user_folder()
    for name, profile in profiles().items():
        if name == _DEFAULT:
            continue
        link = folder / name
        if link.is_symlink() and link.resolve() == profile.resolve():
            continue
        if link.is_symlink() and not link.exists():
            link.unlink()  # It led to a checkout that is gone.
        if link.exists():
            yield f"profile {name}: left {link} as it is; use `snakemake --profile {profile}` for the project's own"
            continue
        folder.mkdir(parents=True, exist_ok=True)
        link.symlink_to(profile, target_is_directory=True)
        yield f"profile {name}: linked as {link}"
