"""The command line of a worker, and its interpretation.

    python -m marin_rules.worker --plan PLAN --step NAME-HASH
    python -m marin_rules.worker --plan PLAN --step NAME-HASH --round 1 --first-task 1000

The second is an element of a job array: its task is the first one plus its index in the array. There is no worker for
the whole step, so the one that does the last task also ends the step.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial

from marin_rules.clusters.allocation import own_allocation
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.plan_file import read_plan
from marin_rules.plans.run import check_python
from marin_rules.worker.array_step import end_if_all_done, round_is_over
from marin_rules.worker.exit_codes import EXIT_DONE, EXIT_FAILED
from marin_rules.worker.host import serve_ranks
from marin_rules.worker.step_process import Script, StepProcess
from marin_rules.worker.worker import TaskOrder, Worker

_PARSER = argparse.ArgumentParser(prog="marin_rules.worker", description="Run one step of a frozen plan.")
_PARSER.add_argument("--plan", required=True, help="the frozen plan")
_PARSER.add_argument("--digest", help="refuse any other plan than the one with this digest")
_PARSER.add_argument("--step", required=True, help="the step's key: its <name>-<hash>")
_PARSER.add_argument("--log", default="", metavar="PATH", help="make a link to the step's log here")
_PARSER.add_argument("--script", metavar="INTERPRETER", help="run the script on standard input under the lease")
_PARSER.add_argument("--cores", type=int, help="how many cores there are for the tasks of an array step")
_PARSER.add_argument("--round", type=int, help="do one task of an array step, in this round of them")
_PARSER.add_argument("--first-task", type=int, default=0, help="the task of the element with index 0 in the job array")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    return _PARSER.parse_args(arguments)


def main(
    options: argparse.Namespace,
    plan: FrozenPlan | None = None,
    client: int | None = None,
    process: StepProcess | None = None,
) -> int:
    """Run the step that the options name; `plan` and `process` are given if they exist already.

    `client` is a pipe to the process that waits for the step: when its other end is closed, the step is stopped.
    """
    try:
        plan = plan or read_plan(options.plan, options.digest)
        check_python(plan.run)
        step = plan.by_key.get(options.step)
        if step is None:
            raise MarinRulesError(f"the plan {options.plan} has no step {options.step}")
        if options.round is not None:
            return _run_element(plan, step, options.round, options.first_task)
        allocation = own_allocation()
        machine = None if allocation is None else allocation.other_machine()
        if machine is not None:
            return serve_ranks(machine, plan, step)
        script = Script(sys.stdin.buffer.read(), shlex.split(options.script)) if options.script else None
        return Worker(
            plan, step, script=script, log_link=options.log, client=client, process=process, cores=options.cores
        ).run()
    except MarinRulesError as error:
        _say(str(error))
        return EXIT_FAILED


def _run_element(plan: FrozenPlan, step: FrozenStep, number: int, first_task: int) -> int:
    """Do the task of the job that this process is in."""
    allocation = own_allocation()
    if allocation is None or allocation.element is None:
        raise MarinRulesError(f"step {step.name}: this is not an element of a job array, so its task is not known")
    task = first_task + allocation.element
    is_over = partial(round_is_over, step, number)
    if is_over():
        _say(f"step {step.name} is done, or was started over since this job was submitted: nothing to do here")
        return EXIT_DONE
    code = Worker(plan, step, task=TaskOrder(task, number, label=f"{step.name} task {task}", is_over=is_over)).run()
    if code == EXIT_DONE:
        try:
            end_if_all_done(plan, step, number, after=task, say=_say)
        except (MarinRulesError, OSError) as error:
            # The task is done anyway, and the driver or the next one ends the step.
            _say(f"step {step.name}: could not see whether all of its tasks are done, and end it: {error}")
    return code


def _say(text: str) -> None:
    sys.stderr.write(f"marin-rules: {text}\n")
