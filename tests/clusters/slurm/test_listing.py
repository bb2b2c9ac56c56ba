"""What squeue and sacct print of arrays, as seen on Slurm 22.05, and what is made of it."""

import math
from collections.abc import Mapping

import pytest

from marin_rules.clusters.protocol import ArrayTasks, BusyError, ClusterJob, JobState, JobTag
from marin_rules.clusters.slurm.configuration import Limits
from marin_rules.clusters.slurm.listing import read_sacct, read_squeue
from marin_rules.clusters.slurm.waiting_elements import WaitingElements

TAG = JobTag("run", "count-1a2b3c", "0123456789ab", ArrayTasks(1, 1000))


def squeue(*rows: str, comment: str = str(TAG)) -> str:
    """Rows with bars between the fields, all but the comment: it is the same for all."""
    return "".join(f"{row}|{comment}".replace("|", "\x1f") + "\x1e\n" for row in rows)


def facts(job: ClusterJob) -> tuple[int | None, str, int, int | None]:
    return job.element, job.word, job.restarts, job.exit_code


def test_elements_that_wait_are_as_many_jobs_as_those_that_began() -> None:
    jobs = read_squeue(
        squeue(
            "9|5-6,9%3|PENDING|JobArrayTaskLimit||0:00|0|0",
            "9|1|PENDING|BeginTime||0:00|1|0",  # Requeued.
            "9|0|RUNNING|None|cpu1|1:01|0|0",
            "9|2|FAILED|NonZeroExitCode|cpu2|0:03|0|19200",
            "9|3|COMPLETED|None|cpu2|0:03|0|0",
            "9|4|CANCELLED|None|cpu1|0:03|0|15",
        )
    )
    assert {number: facts(job) for number, job in jobs.items()} == {
        "9_5": (5, "PENDING", 0, 0),
        "9_6": (6, "PENDING", 0, 0),
        "9_9": (9, "PENDING", 0, 0),
        "9_1": (1, "PENDING", 1, 0),
        "9_0": (0, "RUNNING", 0, 0),
        "9_2": (2, "FAILED", 0, 75),
        "9_3": (3, "COMPLETED", 0, 0),
        "9_4": (4, "CANCELLED", 0, None),
    }
    assert {job.tag for job in jobs.values()} == {TAG}
    assert [(jobs[number].task, jobs[number].reason) for number in ("9_5", "9_1")] == [
        (1005, "JobArrayTaskLimit"),
        (1001, "BeginTime"),
    ]
    assert (jobs["9_0"].nodes, jobs["9_0"].seconds) == ("cpu1", 61)


def test_an_array_that_was_cancelled_as_a_whole() -> None:
    jobs = read_squeue(squeue("2|7-9,31-40:3%2|CANCELLED|JobArrayTaskLimit||0:00|0|0"))
    assert list(jobs) == [f"2_{index}" for index in (7, 8, 9, 31, 34, 37, 40)]
    assert {job.state for job in jobs.values()} == {JobState.CANCELLED}


def test_an_array_of_other_programs_is_not_taken_apart() -> None:
    jobs = read_squeue(squeue("9|0-999999|PENDING|Priority||0:00|0|0", "9|7|RUNNING|||1:00|0|0", comment="(null)"))
    assert {number: (job.state, job.element) for number, job in jobs.items()} == {
        "9": (JobState.WAITING, None),
        "9_7": (JobState.RUNNING, 7),
    }


def test_a_list_that_was_cut_is_no_answer() -> None:
    with pytest.raises(BusyError, match="does not report all elements of array 9"):
        read_squeue(squeue("9|1-3,5,8-10,12...%5|PENDING|Priority||0:00|0|0"))


def test_the_accounting_names_elements_by_their_array() -> None:
    jobs = read_sacct(
        "9_0|10|COMPLETED|None|cpu1|00:00:38|0:0\n"
        "9_2|12|CANCELLED by 0|None|cpu1|00:00:03|0:15\n"
        "9_4|14|FAILED|None|cpu1|00:00:03|75:0\n"
        "9_[5-6,9%3]|9|CANCELLED by 0|None|None assigned|00:00:00|0:0\n"
        "15|15|TIMEOUT|None|cpu1|00:01:00|0:0\n"
        "16+0|16|NODE_FAIL|None|cpu1|00:01:00|0:0\n"
        "nonsense\n"
    )
    assert {number: (job.element, job.word, job.exit_code) for number, job in jobs.items()} == {
        "9_0": (0, "COMPLETED", 0),
        "9_2": (2, "CANCELLED", None),
        "9_4": (4, "FAILED", 75),
        "9_5": (5, "CANCELLED", 0),
        "9_6": (6, "CANCELLED", 0),
        "9_9": (9, "CANCELLED", 0),
        "15": (None, "TIMEOUT", 0),
        "16": (None, "NODE_FAIL", 0),
    }


# -- elements that are cancelled before they begin -----------------------------------------------------------

WAITING = "9|3-5%2|PENDING|JobArrayTaskLimit||0:00|0|0"


@pytest.mark.parametrize(
    ("rows", "seconds", "cancelled"),
    [
        (["9|3,5%2|PENDING|JobArrayTaskLimit||0:00|0|0"], 1, ["9_4"]),
        (["9|4|RUNNING|None|cpu1|0:01|0|0", "9|5%2|PENDING|JobArrayTaskLimit||0:00|0|0"], 1, ["9_3"]),
        (["9|N/A|CANCELLED|JobArrayTaskLimit||0:00|0|0"], 1, ["9_3", "9_4", "9_5"]),  # One by one, until the last.
        ([WAITING], 1, []),
        (["9|3-5%2|CANCELLED|JobArrayTaskLimit||0:00|0|0"], 1, []),  # Slurm says so itself.
        # It may have begun, ended and been forgotten meanwhile.
        (["9|3,5%2|PENDING|JobArrayTaskLimit||0:00|0|0"], 301, []),
        # Slurm has lost the whole array: nobody has cancelled it.
        (["8|0-5%2|PENDING|JobArrayTaskLimit||0:00|0|0"], 1, []),
        ([], 1, []),
    ],
)
def test_what_waited_and_is_gone_was_cancelled(rows: list[str], seconds: float, cancelled: list[str]) -> None:
    elements = WaitingElements()
    assert elements.cancelled_by(read_squeue(squeue(WAITING)), 1000.0, lambda: 300.0) == {}
    found = elements.cancelled_by(read_squeue(squeue(*rows)), 1000.0 + seconds, lambda: 300.0)
    assert list(found) == cancelled
    assert {(job.state, job.word, job.tag, job.array) for job in found.values()} <= {
        (JobState.CANCELLED, "CANCELLED", TAG, "9")
    }
    # It is not forgotten with the next answer.
    assert list(elements.cancelled_by({}, 1001.0 + seconds, lambda: 300.0)) == cancelled


def test_nothing_is_lost_while_the_controller_does_not_tell_how_long_it_remembers() -> None:
    elements = WaitingElements()
    later = read_squeue(squeue("9|3,5%2|PENDING|JobArrayTaskLimit||0:00|0|0"))
    elements.cancelled_by(read_squeue(squeue(WAITING)), 1000.0, lambda: 300.0)

    def silent() -> float:
        raise BusyError("no answer")

    with pytest.raises(BusyError):
        elements.cancelled_by(later, 1001.0, silent)
    assert list(elements.cancelled_by(later, 1002.0, lambda: 300.0)) == ["9_4"]


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({"MaxArraySize": "1001", "MinJobAge": "300 sec", "SchedulerParameters": "(null)"}, Limits(1001, 1001, 300.0)),
        ({"MaxArraySize": "0", "MinJobAge": "0 sec"}, Limits(0, 0, math.inf)),
        (
            {
                "MaxArraySize": "100001",
                "SchedulerParameters": "bf_interval=2,max_array_tasks=1000,nohold_on_prolog_fail",
            },
            Limits(100001, 1000, 0.0),
        ),
        ({"MaxArraySize": "10", "SchedulerParameters": "max_array_tasks=1000"}, Limits(10, 10, 0.0)),
        ({}, Limits(0, 0, 0.0)),
    ],
)
def test_what_a_site_allows(settings: Mapping[str, str], limits: Limits) -> None:
    assert Limits.of(settings) == limits
