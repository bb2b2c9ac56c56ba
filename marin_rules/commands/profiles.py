"""`marin-rules profiles link`: let Snakemake find the project's profiles by name."""

from __future__ import annotations

import argparse

from marin_rules.settings.profiles import link_profiles


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    parser.add_argument("action", choices=["link"], help="let `snakemake --profile NAME` find them by name")
    parser.add_argument("--quiet", action="store_true", help="print only what has changed")
    parser.set_defaults(run=_link)


def _link(options: argparse.Namespace) -> int:
    for changed, line in link_profiles():
        if changed or not options.quiet:
            print(line)
    return 0
