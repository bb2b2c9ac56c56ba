"""What a run would do with each step, and why."""

from __future__ import annotations

from typing import Any

import pytest

from marin_rules import ExecutorStep, output_path_of
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.run import new_run
from marin_rules.state.assessment import Assessment, State, assess
from marin_rules.state.status import CorruptStatusError, Status, parse_status
from marin_rules.storage.leases.record import LeaseRecord

SUCCESS, FAILED, DEP_FAILED = Status.SUCCESS, Status.FAILED, Status.DEP_FAILED
RUNNING, CANCELLED = Status.RUNNING, Status.CANCELLED

CACHED, RUN, ELSEWHERE = State.CACHED, State.RUN, State.ELSEWHERE
BLOCKED, NOT_NEEDED = State.BLOCKED, State.NOT_NEEDED


def run(config: Any) -> None:
    """A step's function; never called here."""


def step(name: str, *dependencies: Any) -> ExecutorStep[Any]:
    return ExecutorStep(name=name, fn=run, config=list(dependencies))


def frozen(*roots: ExecutorStep[Any], force_run_failed: bool = True, run_only: list[str] | None = None) -> FrozenPlan:
    start = new_run(prefix="/p", caller_path="experiment.py", force_run_failed=force_run_failed)
    return freeze(make_plan(roots, prefix="/p", run_only=run_only), start)


def judged(
    plan: FrozenPlan, forced: tuple[str, ...] = (), leases: dict[str, LeaseRecord] | None = None, **statuses: Any
) -> Assessment:
    """The assessment of a plan; steps are told by their names, and those not told of are new."""
    assert set(statuses) <= {item.name for item in plan.steps}
    return assess(
        plan,
        {item.output_path: statuses.get(item.name) for item in plan.steps},
        forced=[item.index for item in plan.steps if item.name in forced],
        lease_of=lambda item: (leases or {}).get(item.name),
        failed_at=lambda item: f"noon of {item.name}",
    )


def states(assessment: Assessment) -> dict[str, State]:
    return {verdict.step.name: verdict.state for verdict in assessment.verdicts}


def reasons(assessment: Assessment) -> dict[str, str]:
    return {verdict.step.name: verdict.reason for verdict in assessment.verdicts}


def scheduled(assessment: Assessment) -> list[str]:
    return [item.name for item in assessment.scheduled]


def chain() -> ExecutorStep[Any]:
    """a <- b <- c"""
    return step("c", step("b", step("a")))


# --- nothing special


def test_the_states_are_what_people_read() -> None:
    assert [str(state) for state in State] == ["cached", "would run", "running elsewhere", "blocked", "not needed"]


def test_new_steps_run_and_wait_for_each_other() -> None:
    found = judged(frozen(chain()))
    assert states(found) == {"a": RUN, "b": RUN, "c": RUN}
    assert reasons(found) == {
        "a": "new",
        "b": "new; dependency a would run",
        "c": "new; dependency b would run",
    }
    assert scheduled(found) == ["a", "b", "c"]
    assert found.counts == {RUN: 3}


def test_finished_steps_are_cached() -> None:
    found = judged(frozen(chain()), a=SUCCESS, b=SUCCESS, c=SUCCESS)
    assert states(found) == {"a": CACHED, "b": CACHED, "c": CACHED}
    assert set(reasons(found).values()) == {"done"}
    assert found.scheduled == []


def test_only_what_is_missing_runs() -> None:
    found = judged(frozen(chain()), a=SUCCESS, b=SUCCESS)
    assert states(found) == {"a": CACHED, "b": CACHED, "c": RUN}
    assert reasons(found)["c"] == "new"
    assert found[2].step.name == "c"


def test_missing_ancestors_of_finished_work_are_not_needed() -> None:
    found = judged(frozen(chain()), c=SUCCESS)
    assert states(found) == {"a": NOT_NEEDED, "b": NOT_NEEDED, "c": CACHED}
    assert reasons(found)["a"] == "everything built from it is done"
    assert found.scheduled == []

    found = judged(frozen(chain()), b=SUCCESS)
    assert states(found) == {"a": NOT_NEEDED, "b": CACHED, "c": RUN}


@pytest.mark.parametrize("status", [FAILED, DEP_FAILED, CANCELLED, RUNNING, CorruptStatusError("corrupt")])
def test_whatever_became_of_an_ancestor_of_finished_work(status: Any) -> None:
    found = judged(frozen(chain(), force_run_failed=False), a=status, b=status, c=SUCCESS)
    assert states(found) == {"a": NOT_NEEDED, "b": NOT_NEEDED, "c": CACHED}


def test_a_missing_ancestor_runs_if_it_was_asked_for_or_is_needed_elsewhere() -> None:
    a = step("a")
    b = step("b", a)
    assert states(judged(frozen(step("c", b), a), c=SUCCESS)) == {"a": RUN, "b": NOT_NEEDED, "c": CACHED}
    found = judged(frozen(step("c", b), step("d", a)), c=SUCCESS)
    assert states(found) == {"a": RUN, "b": NOT_NEEDED, "c": CACHED, "d": RUN}
    assert reasons(found)["d"] == "new; dependency a would run"


def test_a_nonblocking_reference_does_not_run() -> None:
    old = step("old", step("source"))
    found = judged(frozen(step("top", output_path_of(old).nonblocking())))
    assert states(found) == {"source": NOT_NEEDED, "old": NOT_NEEDED, "top": RUN}
    assert reasons(found) == {"source": "not asked for", "old": "not asked for", "top": "new"}
    found = judged(frozen(step("top", output_path_of(old).nonblocking())), old=SUCCESS)
    assert states(found) == {"source": NOT_NEEDED, "old": CACHED, "top": RUN}
    found = judged(frozen(step("top", output_path_of(old).nonblocking())), forced=("source", "old", "top"))
    assert states(found) == {"source": NOT_NEEDED, "old": NOT_NEEDED, "top": RUN}


def test_what_run_only_leaves_out_does_not_run() -> None:
    found = judged(frozen(chain(), run_only=["^b$"]))
    assert states(found) == {"a": RUN, "b": RUN, "c": NOT_NEEDED}
    assert reasons(found)["c"] == "not asked for"


# --- again


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (FAILED, "failed before at noon of b"),
        (DEP_FAILED, "a dependency failed before at noon of b"),
        (CANCELLED, "was stopped before at noon of b"),
        (RUNNING, "was running, but its worker is gone"),
    ],
)
def test_what_did_not_end_well_runs_again(status: Status, reason: str) -> None:
    found = judged(frozen(chain()), a=SUCCESS, b=status)
    assert states(found) == {"a": CACHED, "b": RUN, "c": RUN}
    assert reasons(found)["b"] == reason
    # What became of the step itself tells more than that it has to wait.
    found = judged(frozen(chain()), b=status)
    assert states(found) == {"a": RUN, "b": RUN, "c": RUN}
    assert reasons(found)["b"] == reason


def test_reasons_without_a_time() -> None:
    plan = frozen(step("a"))
    found = assess(plan, {plan.steps[0].output_path: FAILED})
    assert (found[0].state, found[0].reason) == (RUN, "failed before")


def test_forced_steps_and_what_depends_on_them() -> None:
    a, side = step("a"), step("side")
    top = step("top", step("b", a, side), side)
    done: dict[str, Any] = dict.fromkeys(("a", "side", "b", "top"), SUCCESS)
    found = judged(frozen(top), forced=("b",), **done)
    assert states(found) == {"a": CACHED, "side": CACHED, "b": RUN, "top": RUN}
    assert reasons(found)["b"] == "forced"
    assert reasons(found)["top"] == "dependency b would run"
    assert scheduled(found) == ["b", "top"]

    found = judged(frozen(top), forced=("a",), **done)
    assert states(found) == {"a": RUN, "side": CACHED, "b": RUN, "top": RUN}
    assert reasons(found)["b"] == "dependency a would run"


def test_a_forced_step_needs_its_missing_dependencies() -> None:
    found = judged(frozen(chain()), forced=("b",), b=SUCCESS, c=SUCCESS)
    assert states(found) == {"a": RUN, "b": RUN, "c": RUN}
    assert reasons(found) == {"a": "new", "b": "forced", "c": "dependency b would run"}


def test_forcing_what_is_new_is_no_other_reason() -> None:
    found = judged(frozen(step("a")), forced=("a",))
    assert reasons(found) == {"a": "new"}


# --- elsewhere


def test_a_live_lease_is_waited_for() -> None:
    lease = LeaseRecord(worker_id="host-17-abcd", timestamp=0.0)
    found = judged(frozen(chain()), leases={"b": lease}, a=SUCCESS, b=RUNNING)
    assert states(found) == {"a": CACHED, "b": ELSEWHERE, "c": RUN}
    assert reasons(found)["b"].startswith("by host-17-abcd, last heartbeat ")
    assert reasons(found)["c"] == "new; dependency b running elsewhere"
    assert scheduled(found) == ["b", "c"]


def test_the_lease_of_a_finished_step_says_nothing() -> None:
    lease = LeaseRecord(worker_id="host-17-abcd", timestamp=0.0)

    def lease_of(item: FrozenStep) -> LeaseRecord:
        assert item.name == "b", "only a lease on a running step is looked at"
        return lease

    plan = frozen(chain())
    statuses: dict[str, Any] = dict(
        zip((item.output_path for item in plan.steps), (SUCCESS, RUNNING, FAILED), strict=True)
    )
    found = assess(plan, statuses, lease_of=lease_of)
    assert states(found) == {"a": CACHED, "b": ELSEWHERE, "c": RUN}


# --- refused


def test_a_failure_that_is_not_to_run_again_blocks_what_hangs_on_it_and_nothing_else() -> None:
    bad = step("bad", step("source"))
    free = step("free", step("other"))
    plan = frozen(step("top", step("user", bad), free), free, force_run_failed=False)
    found = judged(plan, source=SUCCESS, bad=FAILED)
    assert states(found) == {
        "source": CACHED,
        "bad": BLOCKED,
        "user": BLOCKED,
        "other": RUN,
        "free": RUN,
        "top": BLOCKED,
    }
    assert reasons(found)["bad"].startswith("failed before at noon of bad")
    assert "force_run_failed" in reasons(found)["bad"]
    assert reasons(found)["user"] == "dependency bad is blocked"
    assert reasons(found)["top"] == "dependency user is blocked"
    assert reasons(found)["free"] == "new; dependency other would run"
    assert [verdict.step.name for verdict in found.verdicts if verdict.refused] == ["bad"]
    assert scheduled(found) == ["bad", "user", "other", "free", "top"]
    assert found.counts == {CACHED: 1, BLOCKED: 3, RUN: 2}


@pytest.mark.parametrize("status", [DEP_FAILED, CANCELLED, RUNNING, None])
def test_only_a_failure_of_its_own_blocks_a_step(status: Status | None) -> None:
    found = judged(frozen(step("a"), force_run_failed=False), a=status)
    assert states(found) == {"a": RUN}


def test_a_dependent_of_an_old_failure_is_blocked_and_not_refused() -> None:
    found = judged(frozen(chain(), force_run_failed=False), a=FAILED, b=DEP_FAILED, c=DEP_FAILED)
    assert states(found) == {"a": BLOCKED, "b": BLOCKED, "c": BLOCKED}
    assert [verdict.refused for verdict in found.verdicts] == [True, False, False]


def test_an_old_failure_runs_again_by_default() -> None:
    found = judged(frozen(chain()), a=FAILED, b=DEP_FAILED, c=DEP_FAILED)
    assert states(found) == {"a": RUN, "b": RUN, "c": RUN}


def test_finished_work_does_not_care_for_a_refused_ancestor() -> None:
    found = judged(frozen(chain(), force_run_failed=False), a=FAILED, b=SUCCESS)
    assert states(found) == {"a": NOT_NEEDED, "b": CACHED, "c": RUN}


# --- corrupt


def corrupt(path: str) -> CorruptStatusError:
    with pytest.raises(CorruptStatusError) as caught:
        parse_status(b"SUCC", path)
    return caught.value


@pytest.mark.parametrize("culprit", ["a", "b", "c"])
def test_a_corrupt_status_is_an_error(culprit: str) -> None:
    statuses: dict[str, Any] = {culprit: corrupt(f"/p/{culprit}/.executor_status")}
    with pytest.raises(CorruptStatusError, match=f"/p/{culprit}/.executor_status"):
        judged(frozen(chain()), **statuses)


def test_a_corrupt_status_of_a_forced_step_is_an_error() -> None:
    with pytest.raises(CorruptStatusError):
        judged(frozen(chain()), forced=("b",), a=SUCCESS, b=corrupt("/p/b"), c=SUCCESS)


def test_a_corrupt_status_that_nothing_needs_is_left_alone() -> None:
    old = step("old")
    found = judged(frozen(step("top", output_path_of(old).nonblocking())), old=corrupt("/p/old"))
    assert states(found) == {"old": NOT_NEEDED, "top": RUN}


# --- large


def test_a_long_chain_is_judged() -> None:
    last = step("s0")
    for number in range(1, 3000):
        last = step(f"s{number}", last)
    plan = frozen(last)
    found = judged(plan, s1000=SUCCESS)
    assert found.counts == {NOT_NEEDED: 1000, CACHED: 1, RUN: 1999}
    done: dict[str, Any] = {f"s{number}": SUCCESS for number in range(3000)}
    found = judged(plan, forced=("s0",), **done)
    assert found.counts == {RUN: 3000}


def test_a_step_without_a_function_may_only_be_done() -> None:
    made_elsewhere: ExecutorStep[Any] = ExecutorStep("raw", None, None)
    plan = frozen(step("clean", made_elsewhere))
    why = judged(plan).without_function
    assert why is not None
    assert "step 'raw' has no function to run, and it is not done" in why
    assert f"write SUCCESS into {plan.steps[0].output_path}/.executor_status" in why
    assert judged(plan, raw=SUCCESS).without_function is None
    assert judged(plan, clean=SUCCESS).without_function is None
    again = judged(plan, forced=("raw",), raw=SUCCESS, clean=SUCCESS).without_function
    assert again == "step 'raw' has no function to run, and so cannot be run again: force other steps."
