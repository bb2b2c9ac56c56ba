"""A stand-in for the `conda` command: answers what Snakemake 9.27 asks of it.

    python standin.py ROOT env create --file steps.yaml --prefix .snakemake/conda/...

It solves and installs for real, with py-rattler, but every channel that an environment names means ROOT/channel. So
it proves our wiring (who runs in which environment, made when and how often, and what is said when one cannot be
made), not conda: nothing is known from it about conda's solver, its settings or its packages. Its activation treats
the PATH as conda's does (fixtures.py).
Whatever else it is asked, it refuses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

# py-rattler takes 0.3 s to import: only the commands that need it pay.
if TYPE_CHECKING:
    from rattler import PrefixRecord, RepoDataRecord

VERSION = "24.7.1"
"""The oldest that Snakemake takes."""


class CondaError(Exception):
    """What conda would have printed before it ended with 1."""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except CondaError as error:
        print(f"conda: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="conda", allow_abbrev=False)
    parser.add_argument("root", type=Path, help="the installation: bin/, channel/, cache/")
    parser.add_argument("--version", action="version", version=f"conda {VERSION}")
    commands = parser.add_subparsers(required=True)

    info = commands.add_parser("info")
    info.add_argument("--json", action="store_true", required=True)
    info.set_defaults(run=tell_info)

    config = commands.add_parser("config")
    config.add_argument("--get", choices=["channel_priority"], required=True)
    config.add_argument("--json", action="store_true", required=True)
    config.set_defaults(run=tell_channel_priority)

    listing = commands.add_parser("list")
    listing.add_argument("--explicit", action="store_true", required=True)
    listing.add_argument("--prefix", type=Path, required=True)
    listing.set_defaults(run=list_explicit)

    create = commands.add_parser("create")
    create.add_argument("--yes", action="store_true", required=True)
    create.set_defaults(run=create_from_pins)

    clean = commands.add_parser("clean")
    clean.add_argument("-y", action="store_true", required=True)
    clean.add_argument("--tarballs", action="store_true", required=True)
    clean.set_defaults(run=remove_archives)

    environments = commands.add_parser("env").add_subparsers(required=True)
    create_environment = environments.add_parser("create")
    create_environment.set_defaults(run=create_from_specification)
    for command in (create, create_environment):
        command.add_argument("--quiet", action="store_true")
        command.add_argument("--no-default-packages", action="store_true")
        command.add_argument("--file", type=Path, required=True)
        command.add_argument("--prefix", type=Path, required=True)

    export = environments.add_parser("export")
    export.add_argument("--prefix", type=Path, required=True)
    export.set_defaults(run=export_environment)
    return parser


# -- questions -----------------------------------------------------------------------------------------------


def tell_info(options: argparse.Namespace) -> None:
    from rattler import Subdir

    _print_json({"conda_prefix": str(options.root), "conda_version": VERSION, "platform": str(Subdir.current())})


def tell_channel_priority(options: argparse.Namespace) -> None:
    _print_json({"get": {"channel_priority": "strict"}})


def list_explicit(options: argparse.Namespace) -> None:
    print("@EXPLICIT", *(record.url for record in _installed(options.prefix)), sep="\n")


def export_environment(options: argparse.Namespace) -> None:
    import yaml

    packages = [f"{record.name.normalized}={record.version}={record.build}" for record in _installed(options.prefix)]
    print(yaml.safe_dump({"dependencies": packages, "prefix": str(options.prefix)}), end="")


# -- environments --------------------------------------------------------------------------------------------


def create_from_specification(options: argparse.Namespace) -> None:
    """From a YAML file: the solver chooses the packages."""
    import yaml

    specification = yaml.safe_load(options.file.read_text())
    for dependency in specification["dependencies"]:
        if not isinstance(dependency, str):
            raise CondaError(f"{options.file}: {dependency} is more than the stand-in can do: name conda packages only")
    _install(options, _solved(options.root, specification["dependencies"]))


def create_from_pins(options: argparse.Namespace) -> None:
    """From a list of package files, as `conda list --explicit` prints it: there is nothing to solve."""
    from rattler import RepoDataRecord
    from rattler.explicit_environment import ExplicitEnvironmentSpec

    urls = [package.url for package in ExplicitEnvironmentSpec.from_path(options.file).packages]
    if missing := [url for url in urls if not _path_of(url).is_file()]:
        raise CondaError(f"there is no {', '.join(missing)}")

    async def read() -> list[RepoDataRecord]:
        return [await RepoDataRecord.from_package_archive(_path_of(url)) for url in urls]

    _install(options, read())


async def _solved(root: Path, specifications: list[str]) -> list[RepoDataRecord]:
    from rattler import Channel, Gateway, solve
    from rattler.exceptions import SolverError

    channel = Channel((root / "channel").as_uri())
    try:
        return await solve([channel], specifications, gateway=Gateway(cache_dir=root / "cache" / "index"))
    except SolverError as error:
        raise CondaError(f"the environment cannot be solved: {error}") from error


def _install(options: argparse.Namespace, records: Awaitable[list[RepoDataRecord]]) -> None:
    from rattler import install

    async def run() -> None:
        cache = options.root / "cache" / "packages"
        await install(await records, options.prefix, cache_dir=cache, show_progress=False)

    asyncio.run(run())


def remove_archives(options: argparse.Namespace) -> None:
    """There are none: packages are unpacked straight from the channel."""


def _installed(prefix: Path) -> list[PrefixRecord]:
    from rattler import PrefixRecord

    if not (prefix / "conda-meta").is_dir():
        raise CondaError(f"{prefix} is not a conda environment")
    return [PrefixRecord.from_path(path) for path in sorted((prefix / "conda-meta").glob("*.json"))]


def _path_of(url: str) -> Path:
    return Path(unquote(urlparse(url).path))


def _print_json(value: Any) -> None:
    print(json.dumps(value))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of py-rattler may still end when Python does, which then crashes now and then: leave without that.
    os._exit(code)
