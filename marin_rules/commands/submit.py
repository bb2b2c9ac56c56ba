"""`marin-rules submit -- snakemake ... | python x.py ...`: run an experiment without a terminal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import closing

from marin_rules.active.driver_stopping import stop_driver
from marin_rules.active.driver_watch import follow_driver
from marin_rules.active.drivers import look_at_drivers
from marin_rules.active.queues import Queues
from marin_rules.active.step_logs import Log
from marin_rules.commands.output import say, write
from marin_rules.driver.submission import Submission, submit
from marin_rules.driver.submitted_command import SubmittedCommand, given_variables
from marin_rules.state.driver_record import STOPPED_CODE, DriverRecord, remove_old
from marin_rules.views.drivers import how_it_ended


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    parser.add_argument(
        "--no-wait", action="store_true", help="print the driver's id and exit; otherwise follow its log"
    )
    parser.add_argument(
        "-e",
        dest="variables",
        metavar="VAR[=VALUE]",
        action="append",
        default=[],
        help="a variable for the driver and its steps; VAR alone takes its value from your environment, unseen",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster", metavar="NAME", help="run the driver as a job of this cluster, by the name of its file"
    )
    where.add_argument("--here", action="store_true", help="start the driver on this machine, wherever steps go")
    parser.add_argument("--name", metavar="N", help="a name for the driver, in addition to its id")
    parser.usage = (
        "marin-rules submit [--no-wait] [-e VAR[=VALUE]]... [--cluster NAME | --here] [--name N]"
        " -- snakemake ... | python x.py ..."
    )
    parser.epilog = (
        "The experiment is planned now, and runs as it is now, whatever is edited later. Without --cluster and --here"
        " the driver goes where its steps go. Find it again with `marin-rules jobs list`, `logs ID`, `stop ID` and"
        " `wait ID`."
    )
    parser.set_defaults(run=_submit)


def _submit(options: argparse.Namespace) -> int:
    submission = Submission(
        command=SubmittedCommand.parse(options.passed_on, sys.executable),
        typed=options.passed_on,
        variables=given_variables(options.variables, os.environ),
        cluster=options.cluster,
        here=options.here,
        name=options.name,
    )
    with closing(Queues.open()) as queues:

        def is_over(record: DriverRecord) -> bool:
            return look_at_drivers([record], queues.live_jobs(), time.time())[0].is_over

        remove_old(time.time(), is_over)
        submitted = submit(submission, is_over, say)
        record = submitted.record
        say(f"submitted: {submitted.where}")
        print(record.id, flush=True)
        if options.no_wait:
            return 0
        return _follow(record, queues)


def _follow(record: DriverRecord, queues: Queues) -> int:
    """Until the run has ended, or the user has seen enough."""
    log = Log(record.log_path)
    interrupted = False
    while True:
        try:  # All of it: Ctrl-C may come at any time, even while the answer to the last one is read.
            match _asked() if interrupted else "c":
                case "s":
                    stop_driver(record, queues, say)
                    say(f"stopped driver {record.id}")
                    return STOPPED_CODE
                case "d":
                    name = record.name or record.id
                    say(
                        f"the driver continues without this terminal: `marin-rules jobs logs -f {name}` follows it,"
                        f" `marin-rules jobs stop {name}` ends it"
                    )
                    return 0
            driver = follow_driver(record, queues, log, write)
            say(how_it_ended(driver))
            return driver.exit_code
        except KeyboardInterrupt:
            interrupted = True


def _asked() -> str:
    """What Ctrl-C means: `s` to stop the run, `d` to detach, `c` to continue; `d` if there is no terminal to ask on."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "d"
    while True:
        sys.stderr.write("\nStop the run (s), leave it running and detach (d), or continue following (c)? ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        answer = line.strip().lower()[:1] if line else "d"
        if answer in ("s", "d", "c"):
            return answer
