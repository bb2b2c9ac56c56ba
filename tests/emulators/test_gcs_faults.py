"""Faults: what each kind does to the store and to the clients, and which calls it befalls."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import gcsfs
import pytest
import requests
from google.api_core import exceptions
from google.cloud.storage import Bucket
from google.cloud.storage.retry import DEFAULT_RETRY

from support.emulators.gcs.clients import bucket_of
from support.emulators.gcs.emulator import GcsEmulator

QUICKLY = DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.05).with_timeout(10)


@pytest.fixture(autouse=True)
def takes_what_gcsfs_sends(gcs: GcsEmulator) -> None:
    gcs.set_quirks("takes bare line feeds")


@pytest.fixture
def bucket(gcs_here: GcsEmulator) -> Bucket:
    return bucket_of(gcs_here)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, exceptions.Forbidden),
        (404, exceptions.NotFound),
        (409, exceptions.Conflict),
        (412, exceptions.PreconditionFailed),
        (429, exceptions.TooManyRequests),
        (500, exceptions.InternalServerError),
        (503, exceptions.ServiceUnavailable),
    ],
)
def test_a_status_is_answered_instead_of_acting(
    gcs_here: GcsEmulator, bucket: Bucket, status: int, error: type[Exception]
) -> None:
    gcs_here.inject(status, methods=["POST"], times=1)
    with pytest.raises(error):
        bucket.blob("x").upload_from_string("1", retry=None)
    assert gcs_here.history("bucket", "x") == []
    assert [(call.method, call.object, call.fault, call.status) for call in gcs_here.calls()] == [
        ("POST", "x", str(status), status)
    ]
    bucket.blob("x").upload_from_string("2", retry=None)
    assert gcs_here.history("bucket", "x") == [b"2"]


def test_missing_credentials_look_as_google_words_them(gcs_here: GcsEmulator) -> None:
    gcs_here.inject(401, times=1)
    answer = requests.get(f"{gcs_here.url}/storage/v1/b/bucket", timeout=10)
    # gcsfs tries again if it finds these words, and only then.
    assert (answer.status_code, answer.json()["error"]["message"]) == (401, "Invalid Credentials")


def test_a_cut_request_was_not_applied_and_a_lost_answer_was(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    for kind, history in (("cut", []), ("lost", [b"1"])):
        gcs_here.inject(kind, path=f"^bucket/{kind}$", times=1)
        with pytest.raises(requests.exceptions.ConnectionError):
            bucket.blob(kind).upload_from_string("1", if_generation_match=0, retry=None)
        assert gcs_here.history("bucket", kind) == history
    gcs_here.put("bucket", "x", b"x")
    gcs_here.inject("lost", methods=["DELETE"], times=1)
    with pytest.raises(requests.exceptions.ConnectionError):
        bucket.blob("x").delete(retry=None)
    assert gcs_here.history("bucket", "x") == [b"x", None]


def test_a_client_that_tries_again_after_a_lost_answer_takes_itself_for_another(
    gcs_here: GcsEmulator, bucket: Bucket
) -> None:
    gcs_here.inject("lost", methods=["POST"], path="bucket/lease", times=1)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lease").upload_from_string("mine", if_generation_match=0, retry=QUICKLY)
    assert gcs_here.history("bucket", "lease") == [b"mine"]
    assert [call.status for call in gcs_here.calls()] == [200, 412]
    assert [call.fault for call in gcs_here.calls()] == ["lost", None]


def test_a_cut_download_is_noticed_and_repeated(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    content = bytes(range(256)) * 4000
    gcs_here.put("bucket", "x", content)
    gcs_here.inject("cut_body", times=1)
    # A look at the metadata is no download, and leaves the fault for one.
    assert bucket.get_blob("x").size == len(content)
    with pytest.raises(requests.exceptions.RequestException):
        bucket.blob("x").download_as_bytes(retry=None)
    gcs_here.inject("cut_body", times=1)
    assert bucket.blob("x").download_as_bytes(retry=QUICKLY) == content
    gcs_here.inject("cut_body", times=1)
    assert gcsfs.GCSFileSystem().cat_file("bucket/x") == content
    assert sum(call.fault == "cut_body" for call in gcs_here.calls()) == 3


def test_a_late_request_is_applied_although_its_client_gave_up(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    gcs_here.inject("latency", methods=["POST"], seconds=0.4)
    started = time.monotonic()
    with pytest.raises(requests.exceptions.ReadTimeout):
        bucket.blob("late").upload_from_string("1", timeout=0.1, retry=None)
    assert time.monotonic() - started < 0.35
    assert gcs_here.history("bucket", "late") == []
    time.sleep(0.5)
    assert gcs_here.history("bucket", "late") == [b"1"]


def test_a_reset_drops_what_was_held_back(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    for kind in ("latency", "hang"):
        gcs_here.inject(kind, path=f"bucket/{kind}", seconds=30)
        with pytest.raises(requests.exceptions.ReadTimeout):
            bucket.blob(kind).upload_from_string("1", timeout=0.1, retry=None)
    gcs_here.reset()
    gcs_here.create_bucket("bucket")
    # Answered after the calls that were let go: all requests take their turn in one thread.
    assert requests.get(f"{gcs_here.url}/storage/v1/b/bucket/o", timeout=10).json()["items"] == []
    assert gcs_here.names("bucket") == []


def test_a_hanging_call_blocks_no_other_and_is_cut_when_faults_are_cleared(
    gcs_here: GcsEmulator, bucket: Bucket
) -> None:
    gcs_here.inject("hang", path="bucket/stuck")
    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(bucket.blob("stuck").upload_from_string, "1", retry=None)
        bucket_of(gcs_here).blob("free").upload_from_string("1", retry=None)
        while not any(call.fault == "hang" for call in gcs_here.calls()):
            time.sleep(0.01)
        assert not stuck.done()
        gcs_here.clear_faults()
        with pytest.raises(requests.exceptions.ConnectionError):
            stuck.result(10)
    assert gcs_here.names("bucket") == ["free"]


def test_chance_is_the_same_each_time(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    gcs_here.put("bucket", "x", b"x")

    def struck(seed: int) -> list[bool]:
        gcs_here.clear_faults()
        gcs_here.forget_calls()
        gcs_here.inject(503, probability=0.3, seed=seed)
        for _ in range(60):
            try:
                bucket.get_blob("x", retry=None)
            except exceptions.ServiceUnavailable:
                continue
        return [call.fault is not None for call in gcs_here.calls()]

    first = struck(1)
    assert 8 < sum(first) < 30
    assert struck(1) == first
    assert struck(2) != first


def test_rules_pick_calls_by_method_path_query_and_name(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    gcs_here.put("bucket", "folder/x", b"x")
    gcs_here.inject(503, methods=["DELETE"])
    gcs_here.inject(429, path="^bucket/folder/y$")
    gcs_here.inject(500, path=r"[?&]prefix=secret")
    assert bucket.blob("folder/x").download_as_bytes(retry=None) == b"x"
    bucket.blob("folder/yes").upload_from_string("y", retry=None)
    list(bucket.list_blobs(prefix="open", retry=None))
    with pytest.raises(exceptions.ServiceUnavailable):
        bucket.blob("folder/x").delete(retry=None)
    with pytest.raises(exceptions.TooManyRequests):
        bucket.blob("folder/y").upload_from_string("y", retry=None)
    with pytest.raises(exceptions.InternalServerError):
        list(bucket.list_blobs(prefix="secret", retry=None))
    with pytest.raises(ValueError, match="unknown kind of fault 'explode'"):
        gcs_here.inject("explode")
