"""`python -m marin_rules.worker.own_environment`: the worker of a step, in an environment that its node has to make.

Where nodes share the driver's files, the driver makes the environments of steps before the first job. Where they do
not, each node makes those that its jobs need, once, with uv; then the worker takes this process's place.
"""

from __future__ import annotations

import os
import sys

from marin_rules.errors import MarinRulesError
from marin_rules.plans.plan_file import read_plan
from marin_rules.software.build import ensure_environment
from marin_rules.worker.worker import parse


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    plan = read_plan(options.plan, options.digest)
    position = plan.by_key[options.step].software
    assert position is not None
    # Beside the code that the bootstrap has unpacked, in this user's own folder.
    folder = os.path.join(os.getcwd(), "environments")
    python = ensure_environment(plan.software[position], folder, lambda text: print(text, file=sys.stderr, flush=True))
    os.execv(python, [python, "-P", "-m", "marin_rules.worker", *arguments])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MarinRulesError as error:
        sys.exit(f"marin-rules: {error}")
