"""What is sent to a machine that has none of our files, so that a driver runs there as if it were here.

    <prefix>/experiments/.code/<digest>.zip     the package, the project's files and profiles of the user's own, the
                                                settings that were read here: an archive like that of steps
    <prefix>/experiments/.drivers/<id>/         the record, and the plan with functions, configs and the user's modules

Its job is given the digests of the archive and of the record, which has that of the plan: it runs nothing else.

Files that can only be read in place (hand-written rules, the user's own Snakefile or configuration file) cannot be
sent, and are refused with what to do instead.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from marin_rules.clusters.protocol import OWNER_VARIABLE
from marin_rules.driver.driver_words import moved_profile, snakemake_words
from marin_rules.driver.job_variables import NAMES_VARIABLE, chosen_variables
from marin_rules.driver.node_python import node_python
from marin_rules.driver.node_start import start_lines
from marin_rules.errors import SettingsError
from marin_rules.plans.run import python_version
from marin_rules.project import PACKAGE, WORKFLOW, project_folder
from marin_rules.settings.cluster_file import CLUSTER_VARIABLE, find_cluster_file
from marin_rules.settings.job_settings import JobSettings
from marin_rules.settings.locations import config_file
from marin_rules.settings.profiles import profile_folder
from marin_rules.software.code_archive import (
    CodeArchive,
    folder_files,
    package_files,
    plugin_files,
    project_files,
)
from marin_rules.state.driver_record import DriverRecord
from marin_rules.worker.variables import for_driver_without_files

CODE = "code"
"""The archive as files, in the folder in which the driver works."""

SUPERVISOR = "marin_rules.driver.supervisor_elsewhere"

_PROFILE_VARIABLE = "SNAKEMAKE_PROFILE"
_OWN_PROFILES = "own-profiles"
_FILES_HERE = ("--configfile", "--configfiles", "--directory", "-d")
"""Flags of Snakemake that name files or folders of this machine."""


@dataclass(frozen=True)
class SentDriver:
    """A driver that is ready to be sent."""

    archive: CodeArchive
    words: tuple[str, ...]
    """What it starts, by paths in the folder in which it works; empty if the user's command is `python`."""

    profile: str | None
    """The profile that the user's environment names, for that folder."""


def pack(arguments: Sequence[str] | None, snakefile: str | None, clusters: Collection[str]) -> SentDriver:
    """Pack the project as it is now. `arguments` are those of the user's `snakemake`, `clusters` the names of the files
    that the run reads."""
    profiles = _OwnProfiles()
    words: list[str] = []
    if arguments is not None:
        assert snakefile is not None
        named = [word for word in arguments if word.partition("=")[0] in _FILES_HERE]
        if named:
            raise SettingsError(f"{named[0]} names files of this machine, {_NOT_THERE}")
        words, own = snakemake_words(arguments, snakefile, CODE, profiles.take)
        check_no_files(own)
    chosen = os.environ.get(_PROFILE_VARIABLE)
    profile = moved_profile(chosen, CODE, profiles.take) if chosen else None
    settings = {PurePath("config", "config.yaml"): Path(config_file())}
    settings |= {PurePath("config", "clusters", f"{name}.yaml"): find_cluster_file(name) for name in clusters}
    read = {str(PurePath(PACKAGE.name, WORKFLOW, place)): file.read_bytes() for place, file in settings.items()}
    files = {**package_files(), **plugin_files(), **project_files(project_folder()), **profiles.files, **read}
    return SentDriver(CodeArchive.of(files), tuple(words), profile)


def check_no_files(paths: Collection[str]) -> None:
    """Refuse files that a driver reads in place."""
    if paths:
        raise SettingsError(f"{', '.join(paths)}: a driver reads it where it is, {_NOT_THERE}")


_NOT_THERE = (
    "and the machine of the driver would not see it: its cluster shares no files with this one (jobs: shared: false)."
    " Submit with --here, or give the driver a cluster that does"
)


class _OwnProfiles:
    """Profiles of the user's own, which are sent as well."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._taken: dict[Path, str] = {}

    def take(self, profile: str) -> str:
        """Where the driver will find a profile; a missing one is left for Snakemake to report."""
        folder = profile_folder(profile)
        if folder is None or not folder.is_dir():
            return profile
        place = self._taken.setdefault(folder, os.path.join(_OWN_PROFILES, str(len(self._taken))))
        self.files |= folder_files(folder, PurePath(place))
        return os.path.join(CODE, place)


def script_of(record: DriverRecord, archive: CodeArchive, archive_path: str, settings: JobSettings) -> str:
    """What the job of a driver executes, once the record is in place."""
    version = python_version()
    python = node_python(settings, record.prefix, version, drives=True)
    start = start_lines(python, archive_path, archive.digest, version, settings.scratch)
    return f"set -- {shlex.join([SUPERVISOR, record.path, hashlib.sha256(record.to_bytes()).hexdigest()])}\n{start}"


def variables_of(
    sent: SentDriver,
    settings: JobSettings,
    given: Mapping[str, str],
    of_steps: Sequence[Mapping[str, str]],
    cluster: str | None,
) -> dict[str, str]:
    """The variables of the driver: those of any job there, what was given with `-e`, and what its steps need."""
    names = [os.environ.get(NAMES_VARIABLE, ""), *given]
    found = {
        **chosen_variables(os.environ, shared=False, more=settings.variables),
        **given,
        **for_driver_without_files(of_steps),
        NAMES_VARIABLE: ",".join(filter(None, names)),
        CLUSTER_VARIABLE: cluster,
        OWNER_VARIABLE: getpass.getuser(),
        _PROFILE_VARIABLE: sent.profile,
    }
    return {name: value for name, value in found.items() if value is not None and (value or name != NAMES_VARIABLE)}
