"""`marin-rules snakefile`: where the Snakefile is, for `snakemake --snakefile`."""

from __future__ import annotations

import argparse

from marin_rules.settings.locations import snakefile


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    parser.set_defaults(run=_print_path)


def _print_path(options: argparse.Namespace) -> int:
    print(snakefile())
    return 0
