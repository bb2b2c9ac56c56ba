"""Faults of the emulated S3, as botocore and s3fs see them. The rules themselves: `test_gcs_faults.py`."""

from __future__ import annotations

import time

import pytest
import s3fs
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError, ResponseStreamingError

from support.emulators.s3.clients import client_of, outcome
from support.emulators.s3.emulator import S3Emulator

PLACE = {"Bucket": "bucket", "Key": "folder/x"}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "InvalidToken"),
        (403, "AccessDenied"),
        (404, "NoSuchKey"),
        (409, "ConditionalRequestConflict"),
        (412, "PreconditionFailed"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "SlowDown"),
    ],
)
def test_a_status_is_answered_instead_of_acting(s3_here: S3Emulator, status: int, code: str) -> None:
    client = client_of(s3_here)
    s3_here.inject(status, methods=["PUT"], path="^bucket/folder/x$", times=1)
    assert outcome(client.put_object, **PLACE, Body=b"1") == (status, code)
    assert s3_here.history("bucket", "folder/x") == []
    assert [(call.method, call.object, call.fault, call.status) for call in s3_here.calls()] == [
        ("PUT", "folder/x", str(status), status)
    ]
    assert outcome(client.put_object, **PLACE, Body=b"2") == (200, None)


def test_a_cut_request_was_not_applied_and_a_lost_answer_was(s3_here: S3Emulator) -> None:
    client = client_of(s3_here)
    for kind, history in (("cut", []), ("lost", [b"1"])):
        s3_here.inject(kind, times=1)
        with pytest.raises(ConnectionClosedError):
            client.put_object(Bucket="bucket", Key=kind, Body=b"1", IfNoneMatch="*")
        assert s3_here.history("bucket", kind) == history


def test_a_client_that_tries_again_after_a_lost_answer_takes_itself_for_another(s3_here: S3Emulator) -> None:
    s3_here.inject("lost", times=1)
    assert outcome(client_of(s3_here, attempts=3).put_object, **PLACE, Body=b"mine", IfNoneMatch="*")[0] == 412
    assert s3_here.history("bucket", "folder/x") == [b"mine"]
    assert [call.status for call in s3_here.calls()] == [200, 412]


def test_a_cut_download_is_noticed(s3_here: S3Emulator) -> None:
    content = bytes(range(256)) * 4000
    s3_here.put("bucket", "folder/x", content)
    s3_here.inject("cut_body", times=1)
    client = client_of(s3_here)
    assert client.head_object(**PLACE)["ContentLength"] == len(content)
    assert client.list_objects_v2(Bucket="bucket")["KeyCount"] == 1
    with pytest.raises(ResponseStreamingError):
        client.get_object(**PLACE)["Body"].read()
    s3_here.inject("cut_body", times=1)
    assert s3fs.S3FileSystem().cat_file("bucket/folder/x") == content


def test_late_and_hanging_calls(s3_here: S3Emulator) -> None:
    impatient = client_of(s3_here, read_timeout=0.2)
    s3_here.inject("latency", path="bucket/late", seconds=0.5)
    s3_here.inject("hang", path="bucket/stuck")
    for name in ("late", "stuck"):
        with pytest.raises(ReadTimeoutError):
            impatient.put_object(Bucket="bucket", Key=name, Body=b"1")
    time.sleep(0.5)
    assert outcome(impatient.put_object, **PLACE, Body=b"1") == (200, None)
    assert s3_here.names("bucket") == ["folder/x", "late"]


def test_a_reset_leaves_nothing(s3: S3Emulator) -> None:
    s3.create_bucket("left", "eu-west-1")
    s3.put("left", "x", b"x")
    s3.inject(503)
    s3.reset()
    s3.create_bucket("left")
    client = client_of(s3)
    assert outcome(client.head_object, Bucket="left", Key="x")[0] == 404
    assert (s3.names("left"), s3.history("left", "x"), len(s3.calls())) == ([], [], 1)
