"""`marin-rules`: small commands around Snakemake. Experiments themselves are run by `snakemake` or `python`.

A command is a module of this folder with one function, `configure(parser)`. It is imported only when it is requested,
so that the program starts at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "profiles": "the project's Snakemake profiles",
    "snakefile": "print the path of the Snakefile, for `snakemake --snakefile`",
    "run": "run one step and what it needs",
    "submit": "run an experiment from a job, or in the background: the driver outlives this terminal",
    "show": "config, status, version, paths, dependencies and log of a step",
    "delete": "delete the folder of one step; asks first",
    "jobs": "list, follow and stop active steps and submitted drivers, on this machine and on clusters",
    "cluster": "the cluster of this machine",
    "lock": "pin the packages of a group of dependencies, with hashes, in its lock file",
    "migrate": "let scripts written for Marin import marin_rules instead",
}
"""What each command is for, by the name of its module."""

_TAKE_MORE = ("lock", "run", "submit")
"""The commands that take arguments for another program."""

_INTERRUPTED = 130
"""The exit code that a shell reports for a program ended by Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    parser = _parser(words[:end])
    options = parser.parse_args(words[:end])
    options.passed_on = words[end + 1 :]
    if options.passed_on and options.command not in _TAKE_MORE:
        parser.error("only `lock`, `run` and `submit` take arguments after `--`")
    return _run(options)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command line: with the names of all commands, and with the options of the one that it names."""
    parser = argparse.ArgumentParser(prog="marin-rules", description="Marin's experiment model on Snakemake.")
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True)
    named = next((word for word in words if not word.startswith("-")), None)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if name == named:
            from importlib import import_module

            import_module(f"marin_rules.commands.{name}").configure(command)
    return parser


def _run(options: argparse.Namespace) -> int:
    """Run a command; returns the exit code of the program."""
    from marin_rules.errors import MarinRulesError

    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # The reader has seen enough; Python would complain as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MarinRulesError, OSError) as error:
        from marin_rules.views.terminal import printable

        sys.stderr.write(printable(f"marin-rules: {error}\n"))
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return int(code)


class _PrintVersion(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"marin-rules {version('marin-rules')}")
        parser.exit()
