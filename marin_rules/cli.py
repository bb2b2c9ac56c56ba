"""`marin-rules`: small commands around Snakemake. Experiments themselves are run by `snakemake` or `python`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from marin_rules.commands import cluster, delete, jobs, run, show
from marin_rules.errors import MarinRulesError
from marin_rules.settings.locations import snakefile
from marin_rules.settings.profiles import link_profiles

_INTERRUPTED = 130
"""What a shell says of a program that was ended by Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="marin-rules", description="Marin's experiment model on Snakemake.")
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True)
    profiles = commands.add_parser("profiles", help="the project's Snakemake profiles")
    profiles.add_argument("action", choices=["link"], help="let `snakemake --profile NAME` find them by name")
    profiles.add_argument("--quiet", action="store_true", help="tell only of what has changed")
    profiles.set_defaults(run=_link_profiles)
    workflow = commands.add_parser("snakefile", help="print the path of the Snakefile, for `snakemake --snakefile`")
    workflow.set_defaults(run=_print_snakefile)
    for command in (run, show, delete):
        command.add_to(commands)
    jobs.add_to(commands)
    cluster.add_to(commands)
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.passed_on = words[end + 1 :]
    if options.passed_on and options.command != "run":
        parser.error("only `run` takes arguments after `--`, which are for snakemake")
    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # Whoever read it has seen enough; Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MarinRulesError, OSError) as error:
        sys.stderr.write(f"marin-rules: {error}\n")
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


def _link_profiles(options: argparse.Namespace) -> int:
    for changed, line in link_profiles():
        if changed or not options.quiet:
            print(line)
    return 0


def _print_snakefile(options: argparse.Namespace) -> int:
    print(snakefile())
    return 0


if __name__ == "__main__":
    sys.exit(main())
