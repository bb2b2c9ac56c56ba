"""Preconditions as the real clients send them: one winner, no lost update, nothing changed by a loser."""

from __future__ import annotations

import gcsfs
import pytest
import requests
from google.api_core.exceptions import BadRequest, NotFound, NotModified, PreconditionFailed
from google.cloud.storage import Bucket

from support.emulators.gcs.clients import bucket_of
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.racing import RACERS, race

STALE = 12345


@pytest.fixture(autouse=True)
def takes_what_gcsfs_sends(gcs: GcsEmulator) -> None:
    gcs.set_quirks("takes bare line feeds")


@pytest.fixture
def bucket(gcs_here: GcsEmulator) -> Bucket:
    return bucket_of(gcs_here)


def test_only_the_first_creation_succeeds(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    bucket.blob("new").upload_from_string("first", if_generation_match=0)
    with pytest.raises(PreconditionFailed):
        bucket.blob("new").upload_from_string("second", if_generation_match=0)
    files = gcsfs.GCSFileSystem()
    with pytest.raises(FileExistsError):
        files.pipe_file("bucket/new", b"third", mode="create")
    with pytest.raises(FileExistsError), files.open("bucket/new", "xb") as file:
        file.write(b"fourth")
    assert gcs_here.history("bucket", "new") == [b"first"]
    bucket.blob("new").delete()
    files.pipe_file("bucket/new", b"fifth", mode="create")
    assert gcs_here.history("bucket", "new") == [b"first", None, b"fifth"]


def test_every_verb_refuses_a_stale_generation(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    gcs_here.put("bucket", "held", b"content")
    gcs_here.put("bucket", "other", b"other")
    held, other = bucket.blob("held"), bucket.blob("other")
    held.metadata = {"key": "value"}
    refused = [
        lambda: held.upload_from_string("x", if_generation_match=STALE),
        lambda: held.create_resumable_upload_session(if_generation_match=STALE),
        lambda: bucket.blob("absent").upload_from_string("x", if_generation_match=STALE),
        lambda: held.patch(if_generation_match=STALE),
        lambda: held.patch(if_metageneration_match=STALE),
        lambda: held.delete(if_generation_match=STALE),
        lambda: held.delete(if_metageneration_match=STALE),
        lambda: held.reload(if_generation_match=STALE),
        lambda: held.download_as_bytes(if_generation_match=STALE),
        lambda: held.rewrite(other, if_generation_match=STALE),
        lambda: held.rewrite(other, if_generation_match=0),
        lambda: bucket.blob("absent").rewrite(other, if_source_generation_match=STALE),
        lambda: bucket.blob("absent").rewrite(other, if_source_metageneration_match=STALE),
        lambda: bucket.copy_blob(other, bucket, "held", if_generation_match=0),
        lambda: bucket.copy_blob(other, bucket, "absent", if_source_generation_match=STALE),
        lambda: bucket.move_blob(other, "held", if_generation_match=0),
        lambda: bucket.move_blob(other, "absent", if_source_generation_match=STALE),
        lambda: held.compose([other], if_generation_match=STALE),
        lambda: held.compose([other], if_source_generation_match=[STALE]),
    ]
    for call in refused:
        with pytest.raises(PreconditionFailed):
            call()
    assert gcs_here.history("bucket", "held") == [b"content"]
    assert gcs_here.history("bucket", "other") == [b"other"]
    assert gcs_here.names("bucket") == ["held", "other"]
    assert bucket.get_blob("held").metageneration == 1


def test_every_verb_accepts_the_current_generation(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    gcs_here.put("bucket", "held", b"0")
    gcs_here.put("bucket", "other", b"other")
    held, other = bucket.get_blob("held"), bucket.get_blob("other")
    first = held.generation
    assert held.download_as_bytes(if_generation_match=first) == b"0"
    held.upload_from_string("1", if_generation_match=first)
    assert held.generation > first
    held.metadata = {"key": "value"}
    held.patch(if_generation_match=held.generation, if_metageneration_match=1)
    assert (held.metageneration, bucket.get_blob("held").metadata) == (2, {"key": "value"})
    held.rewrite(other, if_generation_match=held.generation, if_source_generation_match=other.generation)
    held.compose([other, other], if_generation_match=held.generation, if_source_generation_match=[other.generation] * 2)
    held.delete(if_generation_match=held.generation)
    assert gcs_here.history("bucket", "held") == [b"0", b"1", b"other", b"otherother", None]


def test_a_read_of_what_is_known_is_not_modified_and_of_what_is_absent_not_found(
    gcs_here: GcsEmulator, bucket: Bucket
) -> None:
    gcs_here.put("bucket", "held", b"content")
    held = bucket.get_blob("held")
    with pytest.raises(NotModified):
        held.reload(if_generation_not_match=held.generation)
    held.reload(if_generation_not_match=STALE)
    with pytest.raises(PreconditionFailed):
        held.delete(if_generation_not_match=held.generation)
    with pytest.raises(NotFound):
        bucket.blob("held", generation=STALE).download_as_bytes()
    with pytest.raises(NotFound, match="No such object: bucket/absent"):
        bucket.blob("absent").delete(if_generation_match=STALE)
    with pytest.raises(FileNotFoundError):
        gcsfs.GCSFileSystem().cat_file("bucket/absent")


def test_a_resumable_upload_loses_against_what_came_while_it_was_under_way(
    gcs_here: GcsEmulator, bucket: Bucket
) -> None:
    session = bucket.blob("raced").create_resumable_upload_session(if_generation_match=0)
    gcs_here.put("bucket", "raced", b"faster")
    response = requests.put(session, data=b"slower", timeout=10)
    assert response.status_code == 412
    assert response.json()["error"]["errors"][0]["reason"] == "conditionNotMet"
    assert gcs_here.history("bucket", "raced") == [b"faster"]


def test_a_rewrite_of_several_calls_loses_against_what_came_while_it_was_under_way(
    gcs_here: GcsEmulator, bucket: Bucket
) -> None:
    gcs_here.put("bucket", "source", b"x" * 3 * 2**20)
    gcs_here.create_bucket("far", "europe-west4")
    raced, replaced = (bucket_of(gcs_here, "far").blob(name) for name in ("raced", "replaced"))
    source = bucket.blob("source")
    raced_token, replaced_token = (blob.rewrite(source, if_generation_match=0)[0] for blob in (raced, replaced))
    gcs_here.put("far", "raced", b"faster")
    with pytest.raises(PreconditionFailed):
        raced.rewrite(source, token=raced_token, if_generation_match=0)
    assert gcs_here.history("far", "raced") == [b"faster"]
    # A source that changed half way must not be mixed with what it was.
    gcs_here.put("bucket", "source", b"y" * 3 * 2**20)
    with pytest.raises(BadRequest):
        replaced.rewrite(source, token=replaced_token, if_generation_match=0)
    assert gcs_here.names("far") == ["raced"]


@pytest.mark.parametrize("client", ["google", "gcsfs"])
def test_of_racing_creations_one_wins(gcs_here: GcsEmulator, client: str) -> None:
    files = gcsfs.GCSFileSystem()
    buckets = [bucket_of(gcs_here) for _ in range(RACERS)]
    for turn in range(8):

        def create(racer: int, name: str = f"turn-{turn}") -> bool:
            try:
                if client == "google":
                    buckets[racer].blob(name).upload_from_string(str(racer), if_generation_match=0, retry=None)
                else:
                    files.pipe_file(f"bucket/{name}", str(racer).encode(), mode="create")
            except (PreconditionFailed, FileExistsError):
                return False
            return True

        won = race(create)
        assert won.count(True) == 1
        assert gcs_here.history("bucket", f"turn-{turn}") == [str(won.index(True)).encode()]


def test_racing_increments_lose_no_update(gcs_here: GcsEmulator) -> None:
    gcs_here.put("bucket", "counter", b"0")
    increments = 3

    def count(racer: int) -> None:
        bucket = bucket_of(gcs_here)
        done = 0
        while done < increments:
            counter = bucket.get_blob("counter")
            try:
                value = int(counter.download_as_bytes(if_generation_match=counter.generation, retry=None))
                counter.upload_from_string(str(value + 1), if_generation_match=counter.generation, retry=None)
            except (PreconditionFailed, NotFound):
                continue
            done += 1

    race(count)
    assert gcs_here.history("bucket", "counter") == [str(value).encode() for value in range(RACERS * increments + 1)]
