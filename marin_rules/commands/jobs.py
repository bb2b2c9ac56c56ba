"""`marin-rules jobs list | logs | stop | reap | wait`: active steps and submitted drivers, here and on clusters."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from marin_rules.active.active_step import StepAddress
from marin_rules.active.driver_stopping import stop_driver
from marin_rules.active.driver_watch import follow_driver, printed_by_job, wait_for_driver
from marin_rules.active.lookup import find_driver, find_run, find_steps, the_only
from marin_rules.active.queues import Queues, name_of
from marin_rules.active.reaping import Leftover, leftovers
from marin_rules.active.settling import Stopped
from marin_rules.active.step_logs import Log, follow, rank_log_path, task_place
from marin_rules.active.stopping import Stopper
from marin_rules.active.survey import Survey, is_dead_driver, look
from marin_rules.clusters.protocol import ClusterError, ClusterJob, Extra
from marin_rules.commands.output import say, write
from marin_rules.errors import MarinRulesError
from marin_rules.state.driver_record import KEPT_DAYS, DriverRecord
from marin_rules.state.run_registry import forget
from marin_rules.state.status import CorruptStatusError, Status, read_status
from marin_rules.storage.leases.record import describe
from marin_rules.views.active import jobs_json, jobs_table, state_of
from marin_rules.views.drivers import how_it_ended

_STEP = "a step, by its name, its <name>-<hash> or its output path"
_RUN = "a run, by its id or the beginning of it: at least the name of the experiment file"
_DRIVER = "a submitted driver, by its id, the beginning of it, or its name"

_JOB_LINES = 100
"""Lines of a job's own output, unless --tail says otherwise."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="list running and queued drivers and steps, and their runs")
    listing.add_argument("--json", action="store_true", help="for programs")
    listing.set_defaults(run=_with_queues(_list))
    logs = actions.add_parser("logs", help="show what a step or a submitted driver prints")
    logs.add_argument("step", metavar="STEP|DRIVER", help=f"{_STEP}, or {_DRIVER}")
    logs.add_argument("-f", "--follow", action="store_true", help="follow it until it has ended")
    logs.add_argument("--rank", type=int, metavar="N", help="the log of one machine of a step that has several")
    logs.add_argument("--task", type=int, metavar="N", help="the log of one task of an array step")
    logs.add_argument("--tail", type=_positive, metavar="N", help="only the last N lines, and with -f what follows")
    logs.set_defaults(run=_with_queues(_logs))
    stop = actions.add_parser("stop", help="end a step or a whole run: it is CANCELLED, and can be run again")
    stop.add_argument("target", metavar="STEP|RUN|DRIVER", help=f"{_STEP}, or {_RUN}, or {_DRIVER}")
    stop.set_defaults(run=_with_queues(_stop))
    reap = actions.add_parser(
        "reap",
        help="list what is left of runs whose drivers are dead (jobs, TPU slices in any state), and end it if asked",
    )
    reap.add_argument("--yes", action="store_true", help="cancel these jobs, and delete what is beside them")
    reap.add_argument(
        "--unknown", action="store_true", help="include runs unknown to this machine, which others may be driving"
    )
    reap.set_defaults(run=_with_queues(_reap))
    wait = actions.add_parser("wait", help="wait until a submitted driver has ended; the exit code is that of its run")
    wait.add_argument("driver", metavar="DRIVER", help=_DRIVER)
    wait.set_defaults(run=_with_queues(_wait))


def _with_queues(
    action: Callable[[argparse.Namespace, Queues], int],
) -> Callable[[argparse.Namespace], int]:
    """An action that asks the clusters of this machine."""

    def run(options: argparse.Namespace) -> int:
        with closing(Queues.open()) as queues:
            return action(options, queues)

    return run


def _list(options: argparse.Namespace, queues: Queues) -> int:
    survey = _survey(queues)
    for run in (leftovers := survey.leftovers):
        forget(run)
    survey = survey.without(leftovers)
    print(jobs_json(survey) if options.json else jobs_table(survey))
    return 0


def _logs(options: argparse.Namespace, queues: Queues) -> int:
    survey = _survey(queues)
    if (record := find_driver(options.step, survey)) is not None:
        return _driver_logs(options, record, queues)
    step = the_only(find_steps(survey, options.step), options.step)
    if step.output_path is None:
        raise MarinRulesError(f"the output path of step {step.key} is not known: its run is no longer recorded")
    task = None if options.task is None else task_place(step, options.task)
    path = rank_log_path(step.output_path, options.rank) if task is None else task.log_path
    log = Log(path, tail=options.tail)
    if not log.exists:
        why = _why_no_log(survey, step, log.path)
        printed = _printed_by_jobs(survey, step, queues, options)
        if not options.follow and not printed:
            raise MarinRulesError(why)
        say(f"{why}. So far the job itself has printed:" if printed else why)
        write(printed)
        if not options.follow:
            return 0
    if options.follow:
        follow(step, log, write, queues, task=task)
        say(f"step {step.name}: {_state(step)}")
    else:
        for piece in log.news():
            write(piece)
    return 0


def _driver_logs(options: argparse.Namespace, record: DriverRecord, queues: Queues) -> int:
    if options.rank is not None or options.task is not None:
        raise MarinRulesError(f"--rank and --task are for steps, and {options.step} is a driver")
    log = Log(record.log_path, tail=options.tail)
    if options.follow:
        say(how_it_ended(follow_driver(record, queues, log, write)))
        return 0
    if not log.exists:
        say(f"driver {record.id} has printed nothing so far")
        write(printed_by_job(record, queues, options.tail or _JOB_LINES))
    for piece in log.news():
        write(piece)
    return 0


def _wait(options: argparse.Namespace, queues: Queues) -> int:
    record = find_driver(options.driver)
    if record is None:
        raise MarinRulesError(
            f"no submitted driver {options.driver!r}; `marin-rules jobs list` shows those that have not ended. They can"
            f" be waited for until {KEPT_DAYS} days after their end"
        )
    driver = wait_for_driver(record, queues)
    say(how_it_ended(driver))
    return driver.exit_code


def _stop(options: argparse.Namespace, queues: Queues) -> int:
    survey = _survey(queues)
    if (record := find_driver(options.target, survey)) is not None:
        for stopped in stop_driver(record, queues, say):
            print(_outcome(stopped))
        print(f"stopped driver {record.id}")
        return 0
    stopper = Stopper(queues, say)
    steps = find_steps(survey, options.target)
    run = find_run(survey, options.target) if not steps else None
    if run is not None:
        for stopped in stopper.stop_run(survey, run):
            print(_outcome(stopped))
        print(f"stopped run {run}")
        return 0
    step = the_only([step for step in steps if survey.of_step(step)] or steps, options.target)
    if not survey.of_step(step) and (state := _state(step)) != Status.RUNNING:  # Otherwise a killed worker's.
        raise MarinRulesError(f"step {step.name} does not run: {state}")
    stopped = stopper.stop_step(survey, step)
    print(_outcome(stopped))
    return 0 if stopped.holder is None else 1


def _reap(options: argparse.Namespace, queues: Queues) -> int:
    survey = _survey(queues)
    extras, silent = queues.extras()
    for cluster, why in silent.items():
        say(f"cannot list what is beside the jobs of {cluster}, where nothing is ended: {why}")
    # If a cluster does not list its jobs, there is no telling what is alive.
    extras = [(cluster, extra) for cluster, extra in extras if cluster not in survey.silent_clusters]
    dead = {active.run.id for active in survey.runs if is_dead_driver(active.run, survey.now)}
    living = {active.run.id for active in survey.runs} - dead
    jobs = queues.live_jobs().jobs
    found = leftovers(jobs, extras, dead, living, awaited=survey.awaited, unknown_too=options.unknown)
    for left in found:
        print(f"{left.words}{f' of {left.step}' if left.step else ''}: {left.why}")
    if not found:
        print("nothing is left over")
    elif not options.yes:
        print("`marin-rules jobs reap --yes` ends all of them; steps that are ended this way can be run again")
    else:
        _end(found, queues)
        print(f"ended {len(found)}")
    return 0


def _end(found: Sequence[Leftover], queues: Queues) -> None:
    """Raises the first refusal once everything else is ended: each thing that stays costs money."""
    refusals: list[ClusterError] = []
    try:
        queues.cancel([(left.cluster, left.id) for left in found if isinstance(left.what, ClusterJob)])
    except ClusterError as error:
        refusals.append(error)
    jobs_may_live = bool(refusals)
    for left in found:
        if isinstance(left.what, Extra) and not (jobs_may_live and left.goes_with_job):
            try:
                queues.remove(left.cluster, left.what)
            except ClusterError as error:
                refusals.append(error)
    if refusals:
        raise refusals[0]


def _survey(queues: Queues) -> Survey:
    survey = look(queues, time.time())
    for cluster, why in survey.silent_clusters.items():
        say(f"cannot list the jobs of {cluster}: {why}")
    return survey


def _why_no_log(survey: Survey, step: StepAddress, path: str) -> str:
    jobs = [
        f"{one.job.cluster} job {one.job.id} is {state_of(one)}" for one in survey.of_step(step) if one.job is not None
    ]
    if jobs:
        return f"step {step.name} has written no log yet: {', '.join(jobs)}"
    return f"step {step.name} has no log at {path}: {_state(step)}"


def _printed_by_jobs(survey: Survey, step: StepAddress, queues: Queues, options: argparse.Namespace) -> bytes:
    """What the jobs of a step have printed without its worker: how the step's Python is made, say, and why that fails.

    A cluster that does not say is no reason to report less about the step.
    """
    lines: list[str] = []
    for found in survey.of_step(step):
        whole = () if found.job is None else (found.job,)
        for job in whole if options.task is None else (job for job in found.jobs if job.task == options.task):
            try:
                lines += queues.last_lines(name_of(job), options.tail or _JOB_LINES)
            except ClusterError as error:
                say(str(error))
    return "".join(f"{line}\n" for line in lines).encode()


def _outcome(stopped: Stopped) -> str:
    name = stopped.step.name
    if stopped.holder is not None:
        return f"stopped {name}, but it was taken up again at once: held by {describe(stopped.holder, time.time())}"
    if stopped.status is None:
        return f"stopped {name}"
    if stopped.status is Status.CANCELLED:
        return f"stopped {name}: {stopped.status}"
    return f"{name} had ended before it was stopped: {stopped.status}"


def _state(step: StepAddress) -> str:
    """What is recorded of a step."""
    try:
        status = None if step.output_path is None else read_status(step.output_path)
    except CorruptStatusError as error:
        return str(error)
    return "it has not started yet" if status is None else status.value


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
