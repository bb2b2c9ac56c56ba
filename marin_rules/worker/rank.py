"""`python -m marin_rules.worker.rank`: one rank of a step on several machines (see `ranks`).

It has no lease: the worker that started all ranks holds it, and the job ends with that worker. Its report is the last
thing that it leaves: one that was cut short after its function had returned ends without a word.
"""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

from marin_rules.clusters.ranks import REPORT_OPTION
from marin_rules.plans.plan_file import read_plan
from marin_rules.process import this_process
from marin_rules.worker.library_variables import add_library_variables
from marin_rules.worker.noted_signals import note_stop_signals
from marin_rules.worker.on_disk import brought_to_disk
from marin_rules.worker.ranks import check_report, coordinator_problem, write_report
from marin_rules.worker.step_call import Outcome, call_step
from marin_rules.worker.step_data import open_data_access
from marin_rules.worker.step_end import end, prepare_end


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="marin_rules.worker.rank", description="Run one rank of a step.")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--digest")
    parser.add_argument("--step", required=True)
    parser.add_argument(REPORT_OPTION, required=True, help="the folder for the reports of the ranks")
    options = parser.parse_args()
    plan = read_plan(options.plan, options.digest)
    step = plan.by_key[options.step]
    check_report(plan.run, options.report)
    process = this_process()
    add_library_variables(os.environ)
    note_stop_signals()
    open_data_access(plan, step)
    prepare_end()
    problem = coordinator_problem(process)
    outcome = call_step(plan, step) if problem is None else Outcome(error=problem)
    if outcome.error is not None:
        write_report(options.report, process.rank, outcome)
        end(1)

    def report() -> None:
        write_report(options.report, process.rank, brought_to_disk(outcome, step.output_path))

    end(0, last_word=report)


if __name__ == "__main__":
    main()
