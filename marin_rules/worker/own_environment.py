"""`python -m marin_rules.worker.own_environment MODULE ...`: a module of ours, in an environment that its node has to
build.

Where nodes share the driver's files, the driver makes the environments of steps before the first job. Where they do
not, each node makes those that its jobs need, once, with uv; then the module (the worker of a step, or
a rank) takes this process's place.
"""

from __future__ import annotations

import argparse
import os
import sys

from marin_rules.errors import MarinRulesError
from marin_rules.plans.plan_file import read_plan
from marin_rules.software.build import ensure_environment

_PARSER = argparse.ArgumentParser(prog="marin_rules.worker.own_environment")
_PARSER.add_argument("--plan", required=True)
_PARSER.add_argument("--digest")
_PARSER.add_argument("--step", required=True)


def main(arguments: list[str]) -> None:
    module, *rest = arguments
    options, _ = _PARSER.parse_known_args(rest)
    plan = read_plan(options.plan, options.digest)
    position = plan.by_key[options.step].software
    assert position is not None
    # Beside the code that the bootstrap has unpacked, in this user's own folder.
    folder = os.path.join(os.getcwd(), "environments")
    python = ensure_environment(plan.software[position], folder, lambda text: print(text, file=sys.stderr, flush=True))
    os.execv(python, [python, "-P", "-m", module, *rest])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MarinRulesError as error:
        sys.exit(f"marin-rules: {error}")
