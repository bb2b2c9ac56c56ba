"""What the commands about one step have in common: how it is named, and where it is looked for."""

from __future__ import annotations

import argparse
import os

from marin_rules.storage.prefix import marin_prefix

STEP = "a step, by its name, its <name>-<hash>, its output path, or a regular expression that fits one name"


def add_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP", help=STEP)
    parser.add_argument("--prefix", help="where the data is; by default where `snakemake` would look")


def prefix_of(options: argparse.Namespace) -> str:
    """The prefix that is given, or the one of the working directory's configuration, or of this machine."""
    return options.prefix or _configured("prefix") or marin_prefix()


def experiment_of(options: argparse.Namespace) -> str | None:
    """The experiment that is given, or the one of the working directory's configuration."""
    return options.experiment or _configured("experiment")


def _configured(key: str) -> str | None:
    import yaml

    path = os.path.join("config", "config.yaml")
    if not os.path.isfile(path):
        return None
    with open(path) as file:
        value = (yaml.safe_load(file) or {}).get(key)
    return None if value is None else str(value)
