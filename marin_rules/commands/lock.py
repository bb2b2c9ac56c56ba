"""`marin-rules lock GROUP ...`: pin everything that a group of dependencies needs, with hashes, in its lock file.

uv runs as it would from the shell, with its own settings and not with pip's: a lock that is shared should not depend on
the indexes that happen to be set up on one machine.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile

from marin_rules.errors import MarinRulesError
from marin_rules.software.requirements import lock_input
from marin_rules.software.uv import find_uv

_OLDEST_PYTHON = "3.12"
"""The oldest Python that marin-rules runs with: a lock is for it and for all newer ones."""

_FRESH = ("-U", "--upgrade")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="one that pyproject.toml names a lock file for")
    parser.epilog = "Options after `--` are for `uv pip compile`, as in `marin-rules lock tables -- --upgrade`."
    parser.set_defaults(run=_lock)


def _lock(options: argparse.Namespace) -> int:
    for group in options.groups:
        requirements, path = lock_input(group, os.getcwd())
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
            file.write("".join(f"{requirement}\n" for requirement in requirements))
            file.flush()
            done = subprocess.run([*_compile(group, options.passed_on), "-o", path, file.name])
        if done.returncode != 0:
            raise MarinRulesError(f"the group {group!r} cannot be locked: uv says why above. {path} is unchanged.")
        print(f"{group}: {os.path.relpath(path)}")
    return 0


def _compile(group: str, more: list[str]) -> list[str]:
    kept = [word for word in more if word not in _FRESH]
    command = ["marin-rules", "lock", group, *(["--", *kept] if kept else [])]
    return [
        *(find_uv(), "pip", "compile", "--quiet", "--generate-hashes", "--no-emit-index-url", "--emit-build-options"),
        "--no-annotate",  # uv would name our temporary file, a different one each time.
        *("--universal", "--python-version", _OLDEST_PYTHON),
        *("--custom-compile-command", shlex.join(command)),
        *more,
    ]
