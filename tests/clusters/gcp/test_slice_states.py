"""What becomes of a TPU slice by the words of Google, and what to do when none comes."""

from __future__ import annotations

import pytest
from google.cloud import tpu_v2

from marin_rules.clusters.gcp.shortages import advice_about_slice
from marin_rules.clusters.gcp.slice_states import SliceState, SliceWord, judge_slice

WAITING, READY, LOST, REFUSED = SliceState.WAITING, SliceState.READY, SliceState.LOST, SliceState.REFUSED

RESOURCE_STATES = {
    "STATE_UNSPECIFIED": WAITING,
    "CREATING": WAITING,
    "ACCEPTED": WAITING,
    "WAITING_FOR_RESOURCES": WAITING,
    "PROVISIONING": WAITING,
    "ACTIVE": READY,
    "SUSPENDING": LOST,
    "SUSPENDED": LOST,
    "DELETING": LOST,
    "FAILED": REFUSED,
}

NODE_STATES = {
    "STATE_UNSPECIFIED": WAITING,
    "CREATING": WAITING,
    "STARTING": WAITING,
    "UNHIDING": WAITING,
    "READY": READY,
    "RESTARTING": LOST,
    "REIMAGING": LOST,
    "REPAIRING": LOST,
    "STOPPING": LOST,
    "STOPPED": LOST,
    "DELETING": LOST,
    "PREEMPTED": LOST,
    "TERMINATED": LOST,
    "HIDING": LOST,
    "HIDDEN": LOST,
    "UNKNOWN": LOST,
}


def test_every_state_of_google_has_a_meaning() -> None:
    assert set(RESOURCE_STATES) == {state.name for state in tpu_v2.QueuedResourceState.State}
    assert set(NODE_STATES) == {state.name for state in tpu_v2.Node.State}


@pytest.mark.parametrize(("state", "expected"), RESOURCE_STATES.items())
def test_the_state_of_a_queued_resource(state: str, expected: SliceState) -> None:
    word = judge_slice(state, nodes=["READY", "READY"] if state == "ACTIVE" else [])
    assert word == SliceWord(expected, "" if expected is READY else state)


@pytest.mark.parametrize(("state", "expected"), NODE_STATES.items())
def test_one_node_decides_for_the_slice(state: str, expected: SliceState) -> None:
    word = judge_slice("ACTIVE", nodes=["READY", state])
    assert word.state is expected
    assert expected is READY or state in word.reason


@pytest.mark.parametrize(
    ("state", "error", "nodes", "word"),
    [
        (None, "", [], SliceWord(LOST, "it was deleted")),
        ("FAILED", "There is no more capacity", [], SliceWord(REFUSED, "There is no more capacity")),
        # The nodes of an active one may be listed a little later.
        ("ACTIVE", "", [], SliceWord(WAITING, "ACTIVE")),
        ("ACTIVE", "", ["CREATING", "PREEMPTED"], SliceWord(LOST, "a node is PREEMPTED")),
        ("SUSPENDED", "", ["READY"], SliceWord(LOST, "SUSPENDED")),
    ],
)
def test_both_together(state: str | None, error: str, nodes: list[str], word: SliceWord) -> None:
    assert judge_slice(state, error, nodes) == word


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("Quota limit 'TPUV4PerProject' has been exceeded.", "iam-admin/quotas"),
        ("There is no more capacity in the zone.", "name more zones"),
        ("The queued resource could not be provisioned before its valid_until time.", "on_demand: true"),
        ("An internal error occurred.", None),
        ("WAITING_FOR_RESOURCES", None),
    ],
)
def test_what_to_do_when_none_comes(reason: str, advice: str | None) -> None:
    found = advice_about_slice(reason)
    assert found is None if advice is None else advice in str(found)
