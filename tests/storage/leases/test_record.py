"""The content of a lease file: what is one, what is none, and how it is shown."""

import json
import time
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LIFETIME_SECONDS, UNREADABLE, CorruptLeaseError, LeaseRecord, describe
from support.lease_models.clock import elsewhere


def test_a_record_survives_the_file() -> None:
    record = LeaseRecord.first(Owner.current(), epoch=3, now=1_700_000_000.25)
    assert LeaseRecord.parse(record.to_bytes(), "path") == record


def test_marins_workers_find_their_own_two_keys() -> None:
    """They make an object of exactly these, and stop at any other; a heartbeat of 90 s ago is stale to them."""
    record = LeaseRecord.first(Owner.current(), epoch=3, now=1_700_000_000.25)
    fields = json.loads(record.to_bytes())
    assert list(fields) == ["worker_id", "timestamp"]
    assert fields["worker_id"].startswith(f"{record.worker_id} ")
    assert fields["timestamp"] == 1_700_000_000.25


def test_a_record_of_an_earlier_version_is_understood() -> None:
    owner = elsewhere("h")
    fields = {"epoch": 3, "since": 1.5, "owner": owner.to_fields(), "nonce": "ab", "lifetime": 60.0}
    data = json.dumps({"worker_id": "h-1", "timestamp": 2.5, **fields}).encode()
    assert LeaseRecord.parse(data, "path") == LeaseRecord("h-1", 2.5, 3, 1.5, owner, "ab", 60.0)


@pytest.mark.parametrize(
    "change",
    [
        {"worker_id": None},
        {"timestamp": "now"},
        {"timestamp": True},
        {"timestamp": float("nan")},
        {"timestamp": 1e300},
        {"epoch": -1},
        {"epoch": 1.5},
        {"epoch": 10**30},
        {"since": -1},
        {"lifetime": 0.5},
        {"lifetime": 86401},
        {"lifetime": "90"},
        {"lifetime": True},
        {"lifetime": float("nan")},
        {"owner": []},
        {"owner": {}},
        {"owner": {"worker_id": "a", "host": "h", "user": "u", "pid": 0}},
        {"owner": {"worker_id": "a", "host": "h", "user": "u", "pid": 1 << 40}},
        {"owner": {"worker_id": "a", "host": "h", "user": "u", "pid": 5, "start_ticks": "x"}},
    ],
)
@pytest.mark.parametrize("earlier", [False, True])
def test_a_record_with_a_wrong_field_is_no_lease(change: dict[str, object], earlier: bool) -> None:
    fields = {"worker_id": "a", "timestamp": 1.0, "epoch": 1, "since": 1.0, "owner": None} | change
    if not earlier and fields["worker_id"] is not None:
        details = {name: fields.pop(name) for name in list(fields) if name not in ("worker_id", "timestamp")}
        fields["worker_id"] = f"a {json.dumps(details)}"
    with pytest.raises(CorruptLeaseError, match="path"):
        LeaseRecord.parse(json.dumps(fields).encode(), "path")


@given(st.binary() | st.dictionaries(st.text(), st.text() | st.none()).map(lambda fields: json.dumps(fields).encode()))
def test_no_content_of_a_lease_escapes(data: bytes) -> None:
    assume(b'"timestamp"' not in data)  # Hypothesis also tries texts that it finds in the code, and one is a lease.
    with pytest.raises(CorruptLeaseError):
        LeaseRecord.parse(data, "path")


def test_a_record_may_have_fields_of_a_later_version() -> None:
    fields = {"worker_id": "a", "timestamp": 1, "later": {"x": 1}}
    assert LeaseRecord.parse(json.dumps(fields).encode(), "path") == LeaseRecord("a", 1.0)


def test_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = 1_700_049_600.0  # 2023-11-15 12:00:00 UTC
    monkeypatch.setattr(time, "localtime", time.gmtime)
    record = LeaseRecord("h-123-ab", noon + 90, epoch=2, since=noon + 90, owner=replace(elsewhere("h"), pid=123))
    assert describe(record, noon + 102) == (
        "h-123-ab (pid 123 on h, user u), running since 12:01:30, last heartbeat 12 s ago"
    )
    assert "running since 2023-11-15 12:01:30, last heartbeat 24 h ago" in describe(record, noon + 86_500)
    assert describe(LeaseRecord("marin-1", noon), noon + 600) == "marin-1, last heartbeat 10 min ago"
    assert describe(LeaseRecord("marin-1", noon), noon - 60) == "marin-1, last heartbeat 0 s ago"
    assert "cannot be read" in describe(UNREADABLE, noon)


def test_a_holder_cannot_write_to_the_terminal_of_others() -> None:
    shown = describe(LeaseRecord("\x1b[2J\x1b]0;title\x07\r\n" + 10_000 * "x", 0.0), 60.0)
    assert shown.startswith("?[2J?]0;title???xxx")
    assert len(shown) < 400


def test_a_lifetime_travels_in_the_record_and_has_a_default() -> None:
    record = LeaseRecord.first(elsewhere("a"), epoch=1, now=1.0, lifetime=5.0)
    assert LeaseRecord.parse(record.to_bytes(), "path").lifetime == 5.0
    assert LeaseRecord.parse(b'{"worker_id": "a", "timestamp": 1}', "path").lifetime == LIFETIME_SECONDS
