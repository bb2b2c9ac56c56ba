"""What a person submits: the words after `marin-rules submit ... --`, and the variables given with `-e`. Pure.

Only two programs are supported, because only these have a plan that can be made now and run later:

    snakemake ...        with all of its flags
    python x.py ...      with the flags of `executor_main`
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from marin_rules.errors import SettingsError

_PYTHON = re.compile(r"python([0-9]+(\.[0-9]+)?)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "MARIN_RULES_"

_USAGE = "write `marin-rules submit ... -- snakemake ...` or `marin-rules submit ... -- python x.py ...`"

_FILES = {"-s": "-s", "--snakefile": "-s", "--profile": "--profile", "--workflow-profile": "--workflow-profile"}
"""Flags of Snakemake that name files of the project."""


class Program(Enum):
    """The program that is submitted."""

    SNAKEMAKE = "snakemake"
    PYTHON = "python"


@dataclass(frozen=True)
class SubmittedCommand:
    """A program and its arguments."""

    program: Program
    arguments: tuple[str, ...]
    """Of `python`, the experiment file first."""

    @classmethod
    def parse(cls, words: Sequence[str], python: str) -> SubmittedCommand:
        """The command in these words; `python` is the interpreter that will run it, that of this process."""
        if not words:
            raise SettingsError(f"what should be submitted? {_USAGE.capitalize()}.")
        word, arguments = words[0], tuple(words[1:])
        name = os.path.basename(word)
        if name != Program.SNAKEMAKE.value and not _PYTHON.fullmatch(name):
            raise SettingsError(f"cannot submit {word!r}: only snakemake and python are supported; {_USAGE}")
        if os.path.dirname(word) and os.path.realpath(os.path.dirname(word)) != os.path.realpath(
            os.path.dirname(python)
        ):
            raise SettingsError(
                f"cannot submit {word}: it belongs to a different environment from this marin-rules, which runs"
                f" with {python}. Use the marin-rules beside it, or write {name} alone."
            )
        if name == Program.SNAKEMAKE.value:
            return cls(Program.SNAKEMAKE, arguments)
        if arguments[:2] == ("-m", "marin_rules.compat"):
            raise SettingsError(
                "cannot submit 'python -m marin_rules.compat': a script that is written for Marin is submitted as"
                " `marin-rules submit ... -- snakemake --config experiment=x.py compat=true prefix=...`"
            )
        if not arguments or arguments[0].startswith("-"):
            raise SettingsError(f"cannot submit {' '.join(words[:2])!r}: the experiment's file comes first; {_USAGE}")
        return cls(Program.PYTHON, arguments)


def given_variables(given: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `-e VAR` and `-e VAR=VALUE`. Errors never show a value."""
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not _NAME.fullmatch(name):
            shown = name if separator else text
            raise SettingsError(
                f"-e {shown!r}: this is not the name of a variable; write -e VAR, which takes the value from your"
                " environment, or -e VAR=VALUE"
            )
        if name.startswith(_OURS):
            raise SettingsError(
                f"-e {name}: variables that begin with {_OURS} control marin-rules itself; choose another"
            )
        if not separator and name not in environment:
            raise SettingsError(f"-e {name}: it is not set here; `export {name}=...` first, or write -e {name}=VALUE")
        found[name] = value if separator else environment[name]
    return found


def without_file(arguments: Sequence[str], flag: str) -> list[str]:
    """Snakemake's arguments without those that give this flag, under any of its names."""
    return [word for name, words in _grouped(arguments) if name != flag for word in words]


def has_file(arguments: Sequence[str], flag: str) -> bool:
    return any(name == flag for name, _ in _grouped(arguments))


def moved_files(arguments: Sequence[str], moved: Callable[[str], str]) -> list[str]:
    """Snakemake's arguments with other paths in place of those of profiles."""
    found: list[str] = []
    for name, words in _grouped(arguments):
        if name is None:
            found += words
        else:
            found += [name, moved(words[-1] if len(words) == 2 else words[0].partition("=")[2])]
    return found


def _grouped(arguments: Sequence[str]) -> list[tuple[str | None, list[str]]]:
    """The arguments in order: flags that name files, with their values, and all other words."""
    found: list[tuple[str | None, list[str]]] = []
    position = 0
    while position < len(arguments):
        word = arguments[position]
        flag, separator, _ = word.partition("=")
        name = _FILES.get(flag) if flag.startswith("-") else None
        size = 1 if name is None or separator or position + 1 == len(arguments) else 2
        found.append((name if separator or size == 2 else None, list(arguments[position : position + size])))
        position += size
    return found


def inside(path: str, project: Path, code: Path) -> str | None:
    """Where a file of the project is in the code that is sent; None for a file that is not the project's."""
    try:
        return str(code / Path(path).resolve().relative_to(project.resolve()))
    except ValueError:
        return None
