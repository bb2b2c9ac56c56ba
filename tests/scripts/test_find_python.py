"""`scripts/find-python` on machines that have only an older Python: pip brings uv, uv brings a Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab import Lab

GOOD = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""A Python that can make our environment: the one below this test."""

OLD_PYTHON = """#!/bin/sh
# Python 3.11 with (or without) pip, as far as the script looks at it.
echo "$*" >> "$HERE/python-calls"
case $1 in
    -c) case $2 in *'< (3, 8)'*) exit 0 ;; *) exit 1 ;; esac ;;
    -m) [ -n "$HAS_PIP" ] || exit 1 ;;
esac
case $3 in
    install)
        [ -z "$PIP_FAILS" ] || { echo "no index" >&2; exit 1; }
        while [ "$1" != --target ]; do shift; done
        mkdir -p "$2/bin" && cp "$HERE/fake-uv" "$2/bin/uv" ;;
esac
"""

UV = """#!/bin/sh
echo "$*" >> "$HERE/uv-calls"
case $2 in
    install) [ -z "$CLOSED" ] || { echo "error: could not download" >&2; exit 2; }; touch "$HERE/installed" ;;
    find) [ -e "$HERE/installed" ] && echo "$GOOD" ;;
esac
"""


@pytest.fixture
def find_python(tmp_path: Path, lab: Lab) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the script where PATH holds nothing but an older Python and a few tools."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in ("sh", "ls", "sort", "dirname", "mkdir", "cp", "touch"):
        found = shutil.which(tool)
        assert found is not None
        (programs / tool).symlink_to(found)
    for path, text in ((programs / "python3", OLD_PYTHON), (tmp_path / "fake-uv", UV)):
        path.write_text(text)
        path.chmod(0o755)

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        home = {"PATH": str(programs), "HOME": str(tmp_path / "home"), "HERE": str(tmp_path), "GOOD": GOOD}
        return subprocess.run(
            ["/bin/sh", str(lab.repository / "scripts" / "find-python")],
            env={**home, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_pip_brings_uv_and_uv_a_python(
    find_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, lab: Lab
) -> None:
    found = find_python(HAS_PIP="yes")
    assert found.returncode == 0, found.stderr
    assert os.path.realpath(found.stdout.strip()) == GOOD
    (install,) = [line for line in (tmp_path / "python-calls").read_text().splitlines() if " install " in line]
    assert "--require-hashes" in install
    assert (lab.repository / "requirements" / "bootstrap.txt").samefile(install.split()[-1])
    assert "python install 3.12" in (tmp_path / "uv-calls").read_text().splitlines()

    (tmp_path / "bin" / "uv").symlink_to(tmp_path / "fake-uv")
    (tmp_path / "python-calls").unlink()
    again = find_python(HAS_PIP="yes")  # A uv that is there is used as it is.
    assert (again.returncode, again.stdout) == (0, found.stdout)
    assert " install " not in (tmp_path / "python-calls").read_text()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"HAS_PIP": "yes", "CLOSED": "yes"}, ["error: could not download", "UV_PYTHON_INSTALL_MIRROR"]),
        ({"HAS_PIP": "yes", "PIP_FAILS": "yes"}, ["no index", "the pip of python3 could not install uv"]),
        ({}, []),
    ],
)
def test_where_nothing_helps_it_says_what_to_do(
    variables: dict[str, str], said: list[str], find_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    result = find_python(**variables)
    assert result.returncode == 1
    assert result.stdout == ""
    for text in [
        *said,
        "no Python >= 3.12 that can make a virtual environment",
        "make setup PYTHON=/path/to/python3.12",
    ]:
        assert text in result.stderr
