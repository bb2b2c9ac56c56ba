"""`marin-rules`: small commands around Snakemake. Experiments themselves are run by `snakemake` or `python`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from marin_rules.engine.locations import snakefile
from marin_rules.engine.profiles import link_profiles
from marin_rules.errors import MarinRulesError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="marin-rules", description="Marin's experiment model on Snakemake.")
    commands = parser.add_subparsers(dest="command", required=True)
    profiles = commands.add_parser("profiles", help="the project's Snakemake profiles")
    profiles.add_argument("action", choices=["link"], help="let `snakemake --profile NAME` find them by name")
    commands.add_parser("snakefile", help="print the path of the Snakefile, for `snakemake --snakefile`")
    options = parser.parse_args(arguments)
    try:
        if options.command == "snakefile":
            print(snakefile())
        else:
            for line in link_profiles():
                print(line)
    except (MarinRulesError, OSError) as error:
        sys.stderr.write(f"marin-rules: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
