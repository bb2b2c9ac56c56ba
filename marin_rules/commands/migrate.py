"""`marin-rules migrate PATH [--write]`: let scripts written for Marin import `marin_rules` instead."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import stat
import sys
import tokenize
from collections.abc import Iterator

from marin_rules.compat.migration import Migration, migrate
from marin_rules.errors import MarinRulesError
from marin_rules.storage.files import write_atomic

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    parser.add_argument("path", help="a script, or a folder of them")
    parser.add_argument("--write", action="store_true", help="change the files; without it, only show the changes")
    parser.set_defaults(run=_migrate)


def _migrate(options: argparse.Namespace) -> int:
    """0 if nothing is left to do by hand, else 1."""
    if not os.path.exists(options.path):
        raise MarinRulesError(f"there is no {options.path} (looked in {os.getcwd()})")
    by_hand = changed = 0
    for path in _scripts(options.path):
        try:
            source, encoding = _read(path)
            migration = migrate(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            print(f"{path}: not rewritten, it is not Python ({error})", file=sys.stderr)
            by_hand += 1
            continue
        except OSError as error:  # For a file that is gone, or unreadable: the others are rewritten.
            print(f"{path}: not rewritten, it cannot be read ({error.strerror})", file=sys.stderr)
            by_hand += 1
            continue
        changed += migration.changed
        by_hand += len(migration.notes)
        _show(path, source, migration)
        if options.write and migration.changed:
            _rewrite(path, migration.source.encode(encoding))
    what = "rewritten" if options.write else "to rewrite (--write does it)"
    print(f"{changed} imports {what}, {by_hand} places to edit by hand", file=sys.stderr)
    return 1 if by_hand else 0


def _read(path: str) -> tuple[str, str]:
    """A source and its encoding, as Python detects it; line ends stay as they are."""
    with open(path, "rb") as file:
        data = file.read()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding), encoding


def _rewrite(path: str, data: bytes) -> None:
    """Change a file as a whole or not at all: nothing is lost on a full disk, even without a copy."""
    file = os.path.realpath(path)
    mode = stat.S_IMODE(os.stat(file).st_mode)
    write_atomic(file, data)
    os.chmod(file, mode)


def _scripts(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))


def _show(path: str, source: str, migration: Migration) -> None:
    old, new = source.splitlines(), migration.source.splitlines()
    for line in difflib.unified_diff(old, new, path, path, n=0, lineterm=""):
        print(line)
    for note in migration.notes:
        print(f"{path}:{note.line}: {note.text}", file=sys.stderr)
