"""`python -m marin_rules.engine --plan PLAN`: run a frozen plan with Snakemake, in this process.

The program behind `executor_main` and `Executor.run`. The project's default profile applies, as for `snakemake` itself.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from marin_rules.engine.given_plan import give_plan
from marin_rules.engine.interrupts import INTERRUPTS
from marin_rules.engine.job_resources import STEP_SLOT
from marin_rules.parentage import end_with_parent
from marin_rules.settings.locations import config_file, profiles, snakefile

_INTERRUPTED = 130


def main() -> None:
    parser = argparse.ArgumentParser(prog="marin_rules.engine", description="Run a frozen plan with Snakemake.")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--digest", help="refuse any other plan than the one with this digest")
    parser.add_argument("--parent", type=int, help="end when this process, which has started this one, ends")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--jobs", type=int, help="steps to run at the same time")
    parser.add_argument("--cores", type=int, help="cores to share among the steps beside it; by default all")
    options = parser.parse_args()
    if options.parent is not None:
        end_with_parent(options.parent)
    INTERRUPTS.install(terminate_stops=True)
    try:
        _run(options)
    except KeyboardInterrupt:  # Before Snakemake had jobs to end.
        sys.exit(_INTERRUPTED)


def _run(options: argparse.Namespace) -> NoReturn:
    from snakemake.cli import main as snakemake
    from snakemake.utils import available_cpu_count

    give_plan(options.plan, options.digest)
    arguments = ["--snakefile", str(snakefile()), "--configfile", config_file()]
    arguments += ["--workflow-profile", str(profiles()["default"]), "--keep-going"]
    arguments += ["--dry-run"] if options.dry_run else []
    if options.jobs:
        arguments += ["--resources", f"{STEP_SLOT}={options.jobs}"]
    if options.cores:
        arguments += ["--cores", str(options.cores), "--local-cores", str(options.cores)]
    elif options.jobs and options.jobs > available_cpu_count():
        # Each step takes at least one core: to run more steps than cores, there must seem to be that many.
        arguments += ["--cores", str(options.jobs)]
    sys.argv[0] = "snakemake"
    snakemake(arguments)
    sys.exit(0)


if __name__ == "__main__":
    main()
