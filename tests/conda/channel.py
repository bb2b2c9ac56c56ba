"""A conda channel in a folder, of packages that are made from what is on this machine. Nothing is downloaded.

`python` is the interpreter at hand, under its true version: a link to it and a `pyvenv.cfg`, as in a virtual
environment. So an environment has a `bin/python`, a prefix and a site-packages folder of its own, and shares only the
binary and the standard library. Pure Python packages are the files of those installed here, as their wheels brought
them. Shell tools are copies of this machine's programs: `gawk` holds whatever its `awk` is, and `coreutils` only what
the tutorials call.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rattler.index import index_fs

from conda.package import Package

PYTHON_PACKAGES = ("cloudpickle", "fsspec", "pyyaml", "iniconfig")
"""What envs/steps-*.yaml name, and one more that only an environment of a step's own has."""

COREUTILS = ("cat", "head", "sort", "tr", "uniq", "wc")


def build_channel(folder: Path) -> None:
    """Write all packages and their index into `folder`."""
    packages = [python(), *map(python_package, PYTHON_PACKAGES), coreutils(), gawk()]
    for package in packages:
        package.write(folder)
    asyncio.run(index_fs(folder, write_zst=False, write_shards=False))


def python() -> Package:
    """The interpreter that runs this, or the one that its virtual environment was made from."""
    interpreter = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    settings = f"home = {interpreter.parent}\ninclude-system-site-packages = false\n"
    return Package(
        "python",
        platform.python_version(),
        {
            f"bin/{name}": interpreter,
            "bin/python": Path(name),
            "bin/python3": Path(name),
            "pyvenv.cfg": settings.encode(),
        },
    )


def python_package(name: str) -> Package:
    """A pure Python package without dependencies, from its files in this environment."""
    distribution = importlib.metadata.distribution(name)
    needed = [line for line in distribution.requires or () if "extra ==" not in line]
    assert not needed, f"{name} needs {needed}: only packages without dependencies can be offered"
    files = {
        f"site-packages/{path}": Path(str(path.locate())).read_bytes()
        for path in distribution.files or ()
        if ".." not in path.parts and path.suffix != ".pyc"
    }
    python_version = distribution.metadata.get("Requires-Python", "")
    return Package(name, distribution.version, files, [f"python {python_version}".strip()], is_noarch_python=True)


def coreutils() -> Package:
    return _tools("coreutils", COREUTILS)


def gawk() -> Package:
    return _tools("gawk", ("awk",))


def _tools(name: str, programs: Sequence[str]) -> Package:
    files = {f"bin/{program}": Path(os.path.realpath(_find(program))).read_bytes() for program in programs}
    return Package(name, _version_of(programs[0]), files)


def _find(program: str) -> str:
    found = shutil.which(program)
    assert found, f"the packages of shell tools are made from this machine's own, and {program} is not on its PATH"
    return found


def _version_of(program: str) -> str:
    """The first number that the program tells of itself; programs other than GNU's may tell none."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    number = re.search(r"\d+(\.\d+)+", said.stdout)
    return number[0] if number else "0"
