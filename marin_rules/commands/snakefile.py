"""`marin-rules snakefile`: where the Snakefile is, for `snakemake --snakefile`."""

from __future__ import annotations

import argparse

from marin_rules.settings.locations import snakefile


def configure(parser: argparse.ArgumentParser) -> None:
    """Tell the parser of this command what it takes."""
    parser.set_defaults(run=_print_path)


def _print_path(options: argparse.Namespace) -> int:
    print(snakefile())
    return 0
