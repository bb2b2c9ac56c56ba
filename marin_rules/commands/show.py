"""`marin-rules show STEP`: what is known about one step."""

from __future__ import annotations

import argparse

from marin_rules.commands.step_arguments import add_step, prefix_of
from marin_rules.state.written_steps import the_step, written_steps
from marin_rules.views.step_text import step_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    add_step(parser)
    parser.add_argument("--lines", type=int, default=20, metavar="N", help="how many lines of the log (20)")
    parser.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> int:
    prefix = prefix_of(options)
    step = the_step(options.step, prefix)
    print(step_text(step, written_steps(prefix), log_lines=options.lines))
    return 0
