"""Statuses are read as Marin wrote them, and a file that says nothing is never taken for an answer."""

import json
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_rules.state.status import (
    CorruptStatusError,
    Status,
    parse_status,
    read_status,
    read_statuses,
    status_path,
)
from marin_rules.storage.files import write_atomic


def event(status: object) -> bytes:
    fields = {"date": "2025-01-01T00:00:00", "status": status, "message": None, "ray_task_id": None}
    return json.dumps(fields).encode()


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("end", [b"", b"\n", b" \r\n\n"])
def test_one_token(status: Status, end: bytes) -> None:
    assert parse_status(status.encode() + end, "path") is status


def test_the_tokens_are_those_on_disk() -> None:
    assert {str(status) for status in Status} == {"SUCCESS", "FAILED", "DEP_FAILED", "RUNNING", "CANCELLED"}


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_last_event_of_a_legacy_log_counts(end: bytes) -> None:
    log = b"\n".join([event("WAITING"), event("RUNNING"), event("FAILED"), event("RUNNING"), event("SUCCESS")])
    assert parse_status(log + end, "path") is Status.SUCCESS
    assert parse_status(event("RUNNING") + end, "path") is Status.RUNNING


@pytest.mark.parametrize("word", ["WAITING", "UNKNOWN"])
def test_older_statuses_of_a_step_that_nobody_ended_stop_nobody(word: str) -> None:
    assert parse_status(event(word), "path") is Status.RUNNING
    assert parse_status(event("FAILED") + b"\n" + event(word), "path") is Status.RUNNING
    assert parse_status(event(word) + b"\n" + event("SUCCESS"), "path") is Status.SUCCESS
    assert parse_status(word.encode(), "path") is Status.RUNNING


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"SUCC",
        b" SUCCESS",
        b"success",
        b"SUCCESS SUCCESS",
        b"RUNNING\nSUCCESS",
        b"DONE",
        b"\0" * 7,
        b"SUCCESS\0",
        b"\xff\xfe",
        b'"SUCCESS"',
        b"[" * 100_000,
        b'{"status":' * 100_000,
        event("DONE"),
        event(None),
        event("SUCCESS")[:-1],
        event("RUNNING") + b"\n" + event("SUCCESS")[:20],
        event("RUNNING") + b"\nSUCCESS",
        b'{"date": "2025-01-01"}',
        b'{"status": "RUNNING"}\n["SUCCESS"]',
    ],
)
def test_anything_else_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptStatusError) as caught:
        parse_status(data, "/data/step-123456/.executor_status")
    message = str(caught.value)
    assert "/data/step-123456/.executor_status" in message
    assert "write SUCCESS into the file" in message
    assert "delete the file" in message
    assert len(message) < 600


@given(st.binary() | st.text().map(str.encode))
def test_no_content_escapes(data: bytes) -> None:
    try:
        status = parse_status(data, "path")
    except CorruptStatusError:
        return
    assert data.decode().rstrip().endswith((status, "}"))


def test_read_status(tmp_path: Path) -> None:
    output_path = str(tmp_path / "step")
    assert status_path(output_path) == f"{output_path}/.executor_status"
    assert status_path("gs://bucket/step-123456") == "gs://bucket/step-123456/.executor_status"
    assert read_status(output_path) is None
    write_atomic(status_path(output_path), b"FAILED")
    assert read_status(output_path) is Status.FAILED
    write_atomic(status_path(output_path), b"")
    with pytest.raises(CorruptStatusError, match=output_path):
        read_status(output_path)


def test_many_at_once_here_and_in_an_object_store(tmp_path: Path) -> None:
    places = [str(tmp_path), f"memory://{uuid.uuid4().hex}"]
    expected: dict[str, Status | None] = {}
    for number in range(200):
        output_path = f"{places[number % 2]}/step-{number}"
        expected[output_path] = [Status.SUCCESS, Status.RUNNING, None][number % 3]
        if status := expected[output_path]:
            write_atomic(status_path(output_path), status.encode())
    corrupt = [f"{place}/corrupt" for place in places]
    for output_path in corrupt:
        write_atomic(status_path(output_path), b"SUCC")

    found = read_statuses([*expected, *corrupt, *expected])

    for output_path in corrupt:
        error = found.pop(output_path)
        assert isinstance(error, CorruptStatusError)
        assert output_path in str(error)
    assert found == expected
    assert list(found) == list(expected)


def test_many_is_none() -> None:
    assert read_statuses([]) == {}


def test_reading_changes_nothing(tmp_path: Path) -> None:
    read_status(str(tmp_path / "absent"))
    read_statuses([str(tmp_path / "absent")])
    assert list(tmp_path.iterdir()) == []
