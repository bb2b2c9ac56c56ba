"""`marin-rules delete STEP`: delete what one step has written, so that the next run makes it again."""

from __future__ import annotations

import argparse
import os
import sys

from marin_rules.commands.step_arguments import add_step, prefix_of
from marin_rules.errors import MarinRulesError
from marin_rules.state.written_steps import UnknownStepError, dependents, the_step, written_steps
from marin_rules.upkeep.deletion import check_deletable, delete_step, size_of
from marin_rules.urls import is_url
from marin_rules.views.step_text import state_at


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    add_step(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=_delete)


def _delete(options: argparse.Namespace) -> int:
    prefix = prefix_of(options)
    step = the_step(options.step, prefix)
    path = step.output_path
    if not is_url(path) and not os.path.lexists(path):
        raise UnknownStepError(f"step {step.name} has no data: {path} does not exist")
    check_deletable(path, prefix)
    count, size = size_of(path)
    print(f"{step.name}  {path}  ({state_at(path)}, {count} files, {size / 1e6:.1f} MB)")
    used_by = [(other, state_at(other.output_path)) for other in dependents(written_steps(prefix), path)]
    if used_by:
        print("these steps use it; they stay as they are and do not run again:")
        for other, state in used_by:
            print(f"  {other.output_path}  {state}")
    if not options.yes and not _agreed():
        print("nothing was deleted")
        return 1
    delete_step(path, prefix)
    print(f"deleted {path}")
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise MarinRulesError("there is no terminal to ask on: add --yes to delete it")
    return input("delete it? [y/N] ").strip().lower() in ("y", "yes")
