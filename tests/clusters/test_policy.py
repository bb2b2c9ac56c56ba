"""What is done about a job in every state, by a table; and the counting that goes on between two looks."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from marin_rules.clusters.policy import (
    LEASE_LOST,
    MISSING_SECONDS,
    SETTLING_SECONDS,
    Absence,
    Again,
    Decision,
    Fail,
    History,
    Observation,
    Succeed,
    TaskWord,
    Wait,
    decide,
)
from marin_rules.clusters.protocol import ClusterJob, JobState
from marin_rules.clusters.slurm.states import state_of
from marin_rules.worker.worker import EXIT_LEASE_LOST

PLAIN = History("model", "slurm", "Slurm", "7", most_interruptions=20)
FORCED = replace(PLAIN, was_done_before=True)
FOREIGN = replace(PLAIN, is_ours=False)
GROUP = replace(PLAIN, has_word=False)
TIRED = replace(PLAIN, interruptions=20)


def job(word: str, **fields: Any) -> ClusterJob:
    return ClusterJob("slurm", "7", state_of(word), word, **{"nodes": "gpu1", **fields})


def look(history: History, word: str, *, now: float = 0.0, **fields: Any) -> Decision:
    seen = {name: fields.pop(name) for name in ("task", "made_progress") if name in fields}
    return decide(history, Observation(job(word, **fields), now, **seen))


def in_short(decision: Decision) -> str:
    """`fail!` is a failure that is not tried again."""
    match decision:
        case Wait():
            return "wait"
        case Succeed(by_this_job=own):
            return "succeed" if own else "accept"
        case Again():
            return "again"
        case Fail(may_retry=True):
            return "fail"
    return "fail!"


ENDS = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE", "CANCELLED")
LOST = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED")
LIVE = (
    "PENDING", "CONFIGURING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
    "SPECIAL_EXIT", "EXPEDITING", "RUNNING", "RESIZING", "SIGNALING", "SUSPENDED", "STOPPED", "COMPLETING", "STAGE_OUT",
    "A_STATE_OF_TOMORROW",
)  # fmt: skip

DONE, STOPPED, FAILED, NOTHING = TaskWord.DONE, TaskWord.STOPPED, TaskWord.FAILED, TaskWord.NOTHING

CASES: list[tuple[tuple[str, ...], History, dict[str, Any], str]] = [
    # Alive, whatever the task says: a job that still has to end may not be taken for its end.
    *((LIVE, history, {}, "wait") for history in (PLAIN, FORCED, FOREIGN, GROUP, TIRED)),
    (LIVE, PLAIN, {"task": DONE}, "wait"),
    (LIVE, replace(PLAIN, interruptions=21), {}, "fail!"),
    (LIVE, PLAIN, {"restarts": 20}, "wait"),
    (LIVE, PLAIN, {"restarts": 21}, "fail!"),
    (LIVE, GROUP, {"restarts": 21}, "wait"),
    # It ended well.
    (("COMPLETED",), PLAIN, {"task": DONE}, "succeed"),
    (("COMPLETED",), FORCED, {"task": DONE}, "succeed"),
    (("COMPLETED",), FOREIGN, {"task": DONE}, "succeed"),
    (("COMPLETED",), PLAIN, {"task": NOTHING}, "wait"),
    (("COMPLETED",), PLAIN, {"task": FAILED}, "wait"),
    (("COMPLETED",), GROUP, {}, "succeed"),
    # It lost its machine.
    *((LOST, history, {"task": task}, "again") for history in (PLAIN, FOREIGN) for task in (NOTHING, STOPPED, FAILED)),
    (LOST, FORCED, {"task": DONE}, "again"),
    (LOST, PLAIN, {"task": DONE}, "accept"),
    (LOST, TIRED, {}, "fail!"),
    (LOST, GROUP, {}, "fail"),
    # Its time was up.
    (("TIMEOUT", "DEADLINE"), PLAIN, {"made_progress": True}, "again"),
    (("TIMEOUT", "DEADLINE"), PLAIN, {"made_progress": True, "task": STOPPED}, "again"),
    (("TIMEOUT", "DEADLINE"), PLAIN, {}, "fail"),
    (("TIMEOUT", "DEADLINE"), GROUP, {"made_progress": True}, "fail"),
    (("TIMEOUT", "DEADLINE"), TIRED, {"made_progress": True}, "fail!"),
    # It failed.
    (("FAILED",), PLAIN, {}, "fail"),
    (("FAILED",), PLAIN, {"task": FAILED, "made_progress": True}, "fail"),
    (("FAILED",), PLAIN, {"task": STOPPED}, "fail"),
    (("FAILED",), PLAIN, {"task": STOPPED, "made_progress": True}, "again"),
    (("FAILED",), TIRED, {"task": STOPPED, "made_progress": True}, "fail!"),
    (("FAILED",), GROUP, {"task": STOPPED, "made_progress": True}, "fail"),
    (("FAILED",), PLAIN, {"exit_code": 1}, "fail"),
    (("FAILED",), PLAIN, {"exit_code": LEASE_LOST}, "again"),
    (("FAILED",), TIRED, {"exit_code": LEASE_LOST}, "fail!"),
    (("FAILED",), GROUP, {"exit_code": LEASE_LOST}, "fail"),
    (("OUT_OF_MEMORY",), PLAIN, {}, "fail"),
    (("OUT_OF_MEMORY",), PLAIN, {"task": STOPPED, "made_progress": True}, "fail"),
    # A person ended it, or the run that it belonged to did.
    (("CANCELLED",), PLAIN, {}, "fail!"),
    (("CANCELLED",), PLAIN, {"task": STOPPED, "made_progress": True}, "fail!"),
    (("CANCELLED",), GROUP, {}, "fail!"),
    (("CANCELLED",), FOREIGN, {}, "again"),
    (("CANCELLED",), replace(FOREIGN, interruptions=20), {}, "fail!"),
    # Its task was done before that.
    (ENDS, PLAIN, {"task": DONE}, "accept"),
    (ENDS, replace(FORCED, most_interruptions=0), {"task": DONE}, "not accept"),
]


@pytest.mark.parametrize(
    ("word", "history", "seen", "expected"),
    [(word, *rest) for words, *rest in CASES for word in words],
    ids=[f"{word}-{index}" for index, (words, *_) in enumerate(CASES) for word in words],
)
def test_the_table(word: str, history: History, seen: dict[str, Any], expected: str) -> None:
    decision = in_short(look(history, word, **seen))
    assert (decision != "accept") if expected == "not accept" else (decision == expected)


def test_the_table_has_every_end_of_every_neutral_state() -> None:
    words = {word for words, *_ in CASES for word in words}
    assert {state_of(word) for word in words} == set(JobState)
    assert LEASE_LOST == EXIT_LEASE_LOST == os.EX_TEMPFAIL


@pytest.mark.parametrize("absence", list(Absence))
@pytest.mark.parametrize(
    ("history", "task", "expected"),
    [
        (PLAIN, DONE, "accept"),
        (FOREIGN, DONE, "accept"),
        (FORCED, DONE, "wait"),
        (GROUP, DONE, "wait"),
        *((PLAIN, task, "wait") for task in (NOTHING, STOPPED, FAILED)),
    ],
)
def test_without_a_job_only_its_task_can_tell(
    absence: Absence, history: History, task: TaskWord, expected: str
) -> None:
    assert in_short(decide(history, Observation(absence, 0.0, task))) == expected


def test_silence_is_waited_for_without_end() -> None:
    decision = decide(PLAIN, Observation(Absence.SILENT, 0.0))
    assert decide(decision.history, Observation(Absence.SILENT, 1e9)) == Wait(PLAIN)


def test_a_job_that_is_missing_for_a_minute_is_lost() -> None:
    history = PLAIN
    for now in (100.0, 101.0, 100.0 + MISSING_SECONDS - 0.1):
        decision = decide(history, Observation(Absence.MISSING, now))
        assert isinstance(decision, Wait)
        history = decision.history
    lost = decide(history, Observation(Absence.MISSING, 100.0 + MISSING_SECONDS))
    assert isinstance(lost, Again)
    assert lost.notices == ("again  model: slurm job 7 is no longer known to Slurm; submitted again (1 of at most 20)",)
    alone = decide(replace(history, has_word=False), Observation(Absence.MISSING, 1000.0))
    assert isinstance(alone, Fail)
    assert (alone.reason, alone.may_retry) == ("slurm job 7 is no longer known to Slurm", True)


def test_a_job_that_comes_back_or_is_hidden_by_silence_is_not_missing() -> None:
    missing = decide(PLAIN, Observation(Absence.MISSING, 0.0)).history
    back = look(missing, "RUNNING", now=50.0).history
    assert isinstance(decide(back, Observation(Absence.MISSING, 70.0)), Wait)
    silent = decide(missing, Observation(Absence.SILENT, 70.0))
    assert isinstance(silent, Wait)
    assert silent.history.missing_since == 0.0


def test_a_status_may_be_seen_late_but_not_too_late() -> None:
    first = look(PLAIN, "COMPLETED", now=10.0)
    assert isinstance(first, Wait)
    assert in_short(look(first.history, "COMPLETED", now=10.0 + SETTLING_SECONDS - 0.1)) == "wait"
    assert in_short(look(first.history, "COMPLETED", now=12.0, task=DONE)) == "succeed"
    late = look(first.history, "COMPLETED", now=10.0 + SETTLING_SECONDS, task=FAILED)
    assert isinstance(late, Fail)
    assert late.reason == "slurm job 7 succeeded, but the step's status does not say so"


def test_a_job_that_is_queued_again_after_its_end_has_all_its_time_to_settle_once_more() -> None:
    first = look(PLAIN, "COMPLETED", now=10.0)
    again = look(first.history, "PENDING", now=20.0, restarts=1)
    assert in_short(look(again.history, "COMPLETED", now=1000.0, restarts=1)) == "wait"


def test_restarts_by_the_cluster_are_interruptions_and_told_once() -> None:
    running = look(PLAIN, "RUNNING").history
    assert running.nodes == "gpu1"
    waiting = look(running, "PENDING", restarts=1, nodes="")
    assert isinstance(waiting, Wait)
    assert waiting.notices == ("again  model: taken off gpu1, queued again by Slurm (1 of at most 20)",)
    assert look(waiting.history, "PENDING", restarts=1, nodes="").notices == ()
    running_again = look(waiting.history, "RUNNING", restarts=1, nodes="gpu2")
    assert running_again.notices == ("start  model on gpu2",)
    overlooked = look(running_again.history, "RUNNING", restarts=3, nodes="gpu3")
    assert overlooked.notices == (
        "again  model: taken off gpu2, queued again by Slurm (3 of at most 20)",
        "start  model on gpu3",
    )
    assert overlooked.history.interruptions == 3


def test_restarts_before_a_job_was_found_do_not_count() -> None:
    adopted = PLAIN.of_next_job("9", restarts=5, is_ours=False)
    assert look(adopted, "RUNNING", restarts=5).history.interruptions == 0


def test_the_last_restart_and_the_end_count_both() -> None:
    decision = look(replace(PLAIN, interruptions=18), "NODE_FAIL", restarts=1)
    assert isinstance(decision, Again)
    assert decision.history.interruptions == 20
    assert [text.split(" (")[1] for text in decision.notices] == ["19 of at most 20)", "20 of at most 20)"]


def test_a_start_is_told_once_and_again_after_a_suspension() -> None:
    history = look(PLAIN, "PENDING", nodes="").history
    told = []
    for word in ("CONFIGURING", "RUNNING", "RUNNING", "SUSPENDED", "RUNNING", "COMPLETING"):
        decision = look(history, word)
        history = decision.history
        told.append(len(decision.notices))
    assert told == [0, 1, 0, 0, 1, 0]
    assert look(GROUP, "RUNNING").notices == ()


def test_the_job_that_is_started_again_too_often_is_to_be_ended() -> None:
    decision = look(replace(PLAIN, most_interruptions=0), "PENDING", restarts=1)
    assert isinstance(decision, Fail)
    assert decision.job_lives
    assert decision.reason == "slurm job 7 was taken off its machine; interruptions so far: 1, allowed: 0"


@pytest.mark.parametrize(
    ("word", "seen", "text"),
    [
        ("PREEMPTED", {}, "again  model: slurm job 7 was PREEMPTED on gpu1; submitted again (1 of at most 20)"),
        ("NODE_FAIL", {"nodes": ""}, "again  model: slurm job 7 was NODE_FAIL; submitted again (1 of at most 20)"),
        (
            "FAILED",
            {"exit_code": LEASE_LOST},
            "again  model: slurm job 7 lost its lease on gpu1; submitted again (1 of at most 20)",
        ),
    ],
)
def test_what_is_told_of_an_interruption(word: str, seen: dict[str, Any], text: str) -> None:
    assert list(look(PLAIN, word, **seen).notices) == [text]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("FAILED", "slurm job 7 failed on gpu1"),
        ("OUT_OF_MEMORY", "slurm job 7 ran out of memory on gpu1"),
        ("TIMEOUT", "slurm job 7 reached its time limit on gpu1"),
        ("CANCELLED", "slurm job 7 was cancelled on gpu1"),
        ("BOOT_FAIL", "slurm job 7 lost its machine on gpu1"),
    ],
)
def test_what_is_said_of_a_failure(word: str, reason: str) -> None:
    decision = look(GROUP, word)
    assert isinstance(decision, Fail)
    assert decision.reason == reason


def test_the_next_job_of_a_task_starts_with_its_interruptions_and_nothing_else() -> None:
    history = look(look(PLAIN, "RUNNING", restarts=2).history, "COMPLETED", now=3.0, restarts=2).history
    history = decide(history, Observation(Absence.MISSING, 5.0)).history
    assert history.of_next_job("8") == replace(PLAIN, job="8", interruptions=2)
