"""What a person sees of a run: Snakemake's messages go in, lines about steps come out."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.settings.types import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

from marin_rules.clusters.estimates import Estimate
from marin_rules.clusters.prices import Price
from marin_rules.engine import plan_in_process, trouble
from marin_rules.engine.console import ALL_DONE, LogHandler
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.machines import MachineRequest
from marin_rules.state.failures import Failure, record_failure
from marin_rules.state.status import Status
from marin_rules.state.step_lease import open_lease
from support.active_world import dead_here
from support.small_plans import leave_status, plan_of, step

type Seen = Callable[[], list[str]]

NOTHING = "Nothing to be done (all requested files are present and up to date)."
FAILED = "Exiting because a job execution failed. Look below for error messages"


@pytest.fixture(autouse=True)
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanInProcess:
    """Two steps, `b` after `a`, both to run."""
    monkeypatch.setattr(plan_in_process, "_current", None)
    monkeypatch.setattr(trouble, "_told", None)
    found = plan_in_process.start(plan_of(tmp_path, step("b", step("a"))))
    found.assess(lambda item: False)
    return found


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str]) -> Seen:
    """The lines since the last time, without the time of day and how long things took."""

    def lines() -> list[str]:
        text = re.sub(r"\d\d:\d\d:\d\d ", "", capsys.readouterr().err)
        return re.sub(r"(\(|after )[0-9.]+m?s", r"\1moments", text).splitlines()

    return lines


def console(**choices: Any) -> LogHandler:
    settings: dict[str, Any] = {
        **{"stdout": False, "nocolor": False, "verbose": False, "dryrun": False, "printshellcmds": False},
        **{"quiet": None, "debug_dag": False, "show_failed_logs": False},
    }
    return LogHandler(SimpleNamespace(**settings | choices), None)  # type: ignore[arg-type]


def tell(handler: LogHandler, message: str = "", event: LogEvent | None = None, **details: Any) -> None:
    record = logging.LogRecord("snakemake", logging.INFO, "x.py", 1, message, (), None)
    vars(record).update(details, **({} if event is None else {"event": event}))
    handler.emit(record)


def start(handler: LogHandler, name: str) -> int:
    """Let the job of a step start; its number."""
    planned = next(item for item in plan_in_process.current().plan.steps if item.name == name)
    wildcards = SimpleNamespace(step=planned.key)
    tell(handler, "rule compute:", LogEvent.JOB_INFO, jobid=planned.index, wildcards=wildcards, rule_name="compute")
    return planned.index


def fail(handler: LogHandler, name: str, **details: Any) -> None:
    tell(handler, "Error in rule", LogEvent.JOB_ERROR, jobid=start(handler, name), **details)


def test_a_run_that_goes_well(in_process: PlanInProcess, seen: Seen) -> None:
    handler = console()
    plan = in_process.plan
    plan.warnings = ("mind the gap",)
    tell(handler, "host: x", LogEvent.WORKFLOW_STARTED)
    assert seen() == [
        f"experiment {plan.run.caller_path}, prefix {plan.run.prefix}",
        "warning: mind the gap",
    ]
    tell(handler, "Job stats", LogEvent.RUN_INFO)
    assert seen()[-2:] == ["2 steps: 2 to run", ""]
    tell(handler, "Job stats", LogEvent.RUN_INFO)
    assert seen() == []  # Once a run.
    for name, count in (("a", "1/2"), ("b", "2/2")):
        number = start(handler, name)
        assert seen() == [f"start  {name}"]
        leave_status(plan.steps[number], Status.SUCCESS)
        tell(handler, "Finished", LogEvent.JOB_FINISHED, job_id=number)
        assert seen() == [f"done   {name} (moments)  {count}"]
    in_process.live = True
    tell(handler, ALL_DONE)
    assert plan.steps[1].output_path in "\n".join(seen())


def test_a_dry_run_says_what_it_would_cost_and_whether_that_is_too_much(in_process: PlanInProcess, seen: Seen) -> None:
    in_process.estimate = lambda item: Estimate(item.name, Price(2.0, "2026-01-01", "a page"), 60)
    in_process.max_usd = 3
    tell(console(dryrun=True), "Job stats", LogEvent.RUN_INFO)
    *_, counts, cost, _, warning = seen()
    assert counts == "2 steps: 2 would run"
    assert cost == "cost: at most $4.00 at list prices of 2026-01-01, if each step runs once"
    assert warning.startswith("warning: a run would stop before its first step: max_usd=3 cannot be kept: the steps")


def test_a_dry_run_says_which_step_the_cluster_would_not_take(in_process: PlanInProcess, seen: Seen) -> None:
    in_process.refusal = lambda item: f"{item.name} could not be submitted" if item.name == "b" else None
    tell(console(dryrun=True), "Job stats", LogEvent.RUN_INFO)
    assert seen()[-1] == "warning: a run would stop before its first step: b could not be submitted"


@pytest.mark.parametrize(
    "message",
    ["Building DAG of jobs...", "Provided cores: 2", "Select jobs to execute...", "Trying to restart job 3."],
)
def test_what_snakemake_says_of_itself_is_left_out(message: str, seen: Seen) -> None:
    tell(console(), message)
    assert seen() == []


@pytest.mark.parametrize("event", [LogEvent.JOB_STARTED, LogEvent.RESOURCES_INFO, LogEvent.RULEGRAPH])
def test_events_that_are_no_news(event: LogEvent, seen: Seen) -> None:
    tell(console(), "something", event)
    assert seen() == []


def test_all_other_messages_are_shown_as_they_are(seen: Seen) -> None:
    handler = console()
    tell(handler, "The disk is full.")
    tell(handler, "echo hello", LogEvent.SHELLCMD)
    tell(handler, "None", LogEvent.SHELLCMD)
    assert seen() == ["The disk is full.", "echo hello"]


def test_before_there_is_a_plan_snakemake_speaks(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_in_process, "_current", None)
    tell(console(), "Job stats", LogEvent.RUN_INFO)
    assert seen() == ["Job stats"]


def test_trouble_of_ours_is_one_line_without_what_snakemake_adds(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_told", "no experiment x.py")
    tell(console(), "WorkflowError in file Snakefile, line 7:\nno experiment x.py\n  File ...")
    assert seen() == ["error: no experiment x.py"]


FAR = "its machine was lost"
WORKER = "its worker is gone, perhaps killed"


@pytest.mark.parametrize(
    ("status", "held", "remote", "line"),
    [
        (Status.FAILED, False, False, "FAILED a after moments"),
        (Status.FAILED, False, True, f"FAILED a after moments: {FAR}"),
        (Status.CANCELLED, False, False, "stopped a after moments"),
        (Status.CANCELLED, False, True, f"stopped a after moments: {FAR}"),
        (Status.RUNNING, True, False, f"FAILED a after moments: {WORKER}"),
        (Status.RUNNING, False, False, "FAILED a after moments"),
        (Status.RUNNING, True, True, f"FAILED a after moments: {FAR}"),
        (None, False, False, "FAILED a after moments"),
    ],
)
def test_how_the_end_of_a_step_is_told(
    status: Status | None, held: bool, remote: bool, line: str, in_process: PlanInProcess, seen: Seen
) -> None:
    """`held`: by a worker of this machine that is dead."""
    if remote:
        in_process.sends_away = True
        machines = MachineRequest(cpu=1, memory_mb=1, disk_mb=1)
        in_process.plan.steps[0] = replace(in_process.plan.steps[0], machines=machines)
        in_process.plan.by_key[in_process.plan.steps[0].key] = in_process.plan.steps[0]
    planned = in_process.plan.steps[0]
    if status is not None:
        leave_status(planned, status)
        Path(planned.output_path, ".executor_log").write_text("first\nlast\n")
    if held:
        assert open_lease(planned.output_path, dead_here()).try_acquire() is None
    fail(console(), "a", rule_msg=FAR)
    # What a step printed here has been seen already, and its start elsewhere is told by the executor.
    assert seen() == ([line, "[a] first", "[a] last"] if remote else ["start  a", line])


def test_the_end_of_a_run_with_a_failure(in_process: PlanInProcess, seen: Seen) -> None:
    """Counts, the cause as the worker wrote it down, and what to do; once, and without Snakemake's own words for it."""
    plan = in_process.plan
    handler = console()
    tell(handler, "Job stats", LogEvent.RUN_INFO)
    leave_status(plan.steps[0], Status.FAILED)
    fail(handler, "a")
    Path(plan.run.failures_directory).mkdir(parents=True)
    failure = Failure("a", plan.steps[0].output_path, "Traceback\nValueError: no such book")
    record_failure(plan.run, plan.steps[0], failure)
    seen()
    tell(handler, FAILED)
    told = seen()
    assert told[:2] == ["", "0 done, 1 failed, 1 not run"]
    assert told[2].endswith("/.executor_log")
    assert told[3] == "      ValueError: no such book"
    tell(handler, FAILED)
    tell(handler, "WorkflowError:\nAt least one job did not complete successfully.")
    tell(handler, "RuleException in line 3")
    assert seen() == []


def test_a_step_that_gets_another_chance_has_not_failed(in_process: PlanInProcess, seen: Seen) -> None:
    handler = console()
    tell(handler, "Job stats", LogEvent.RUN_INFO)
    leave_status(in_process.plan.steps[0], Status.FAILED)
    fail(handler, "a")
    tell(handler, "Finished", LogEvent.JOB_FINISHED, job_id=start(handler, "a"))
    start(handler, "b")
    seen()
    tell(handler, "WorkflowError:\nAt least one job did not complete successfully.")  # After an interrupt.
    assert seen()[:2] == ["", "1 done, 1 stopped, 0 not run"]


@pytest.mark.parametrize(("quiet", "is_told"), [(None, True), ({Quietness.RULES}, True), ({Quietness.PROGRESS}, False)])
def test_a_dry_run_without_jobs_tells_the_table_unless_it_is_to_be_quiet(quiet: Any, is_told: bool, seen: Seen) -> None:
    tell(console(quiet=quiet, dryrun=True), NOTHING)
    assert ("2 steps: 2 would run" in seen()) == is_told


def test_a_dry_run_starts_nothing(seen: Seen) -> None:
    start(console(dryrun=True), "a")
    assert seen() == []
    start(console(dryrun=True, printshellcmds=True), "a")
    assert seen() == ["rule compute:"]


def test_commands_are_told_with_a_failure_if_they_were_asked_for(seen: Seen) -> None:
    fail(console(printshellcmds=True), "a", shellcmd="run-step a")
    assert seen()[-1] == "         command: run-step a"


def test_jobs_that_are_no_steps_are_told_as_snakemake_tells_them(seen: Seen) -> None:
    handler = console()
    tell(handler, "rule all:", LogEvent.JOB_INFO, jobid=9, wildcards={}, rule_name="all")
    tell(handler, "rule plot:", LogEvent.JOB_INFO, jobid=8, wildcards={}, rule_name="plot")
    tell(handler, "Finished plot", LogEvent.JOB_FINISHED, job_id=8)
    tell(handler, "Error in rule plot:", LogEvent.JOB_ERROR, jobid=8)
    assert seen() == ["rule plot:", "Error in rule plot:"]
