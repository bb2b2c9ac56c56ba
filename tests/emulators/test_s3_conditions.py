"""Conditional writes as botocore and s3fs send them: one winner, no lost update, nothing changed by a loser."""

from __future__ import annotations

from typing import Any

import pytest
import s3fs

from support.emulators.racing import RACERS, race
from support.emulators.s3.clients import client_of, outcome
from support.emulators.s3.emulator import S3Emulator

ODD_NAME = "a b/ü%2F?#+&="
STALE = '"0123456789abcdef0123456789abcdef"'
REFUSED = (412, "PreconditionFailed")


@pytest.fixture
def client(s3_here: S3Emulator) -> Any:
    return client_of(s3_here)


def test_only_the_first_creation_succeeds(s3_here: S3Emulator, client: Any) -> None:
    place = {"Bucket": "bucket", "Key": ODD_NAME}
    assert outcome(client.put_object, **place, Body=b"first", IfNoneMatch="*") == (200, None)
    assert outcome(client.put_object, **place, Body=b"second", IfNoneMatch="*") == REFUSED
    files = s3fs.S3FileSystem()
    with pytest.raises(FileExistsError):
        files.pipe_file(f"bucket/{ODD_NAME}", b"third", mode="create")
    with pytest.raises(FileExistsError), files.open(f"bucket/{ODD_NAME}", "xb") as file:
        file.write(b"fourth")
    assert s3_here.history("bucket", ODD_NAME) == [b"first"]
    client.delete_object(**place)
    files.pipe_file(f"bucket/{ODD_NAME}", b"fifth", mode="create")
    assert s3_here.history("bucket", ODD_NAME) == [b"first", None, b"fifth"]


def test_writes_and_deletions_are_for_the_current_content_only(s3_here: S3Emulator, client: Any) -> None:
    place = {"Bucket": "bucket", "Key": "held"}
    s3_here.put("bucket", "held", b"0")
    s3_here.put("bucket", "other", b"other")
    copied = {**place, "CopySource": "bucket/other"}
    assert outcome(client.put_object, **place, Body=b"x", IfMatch=STALE) == REFUSED
    assert outcome(client.copy_object, **copied, IfMatch=STALE) == REFUSED
    assert outcome(client.copy_object, **copied, IfNoneMatch="*") == REFUSED
    assert outcome(client.delete_object, **place, IfMatch=STALE) == REFUSED
    assert outcome(client.get_object, **place, IfMatch=STALE) == REFUSED
    assert s3_here.history("bucket", "held") == [b"0"]
    etag = client.head_object(**place)["ETag"]
    assert outcome(client.get_object, **place, IfNoneMatch=etag)[0] == 304
    etag = client.put_object(**place, Body=b"1", IfMatch=etag)["ETag"]
    etag = client.copy_object(**copied, IfMatch=etag)["CopyObjectResult"]["ETag"]
    assert outcome(client.delete_object, **place, IfMatch=etag) == (204, None)
    assert s3_here.history("bucket", "held") == [b"0", b"1", b"other", None]
    # As Amazon documents it: absent is a 404 to who would replace it, and done to who would delete it.
    assert outcome(client.put_object, **place, Body=b"x", IfMatch=etag) == (404, "NoSuchKey")
    assert outcome(client.delete_object, **place, IfMatch=etag) == (204, None)
    assert outcome(client.delete_object, Bucket="bucket", Key="other", IfMatch="*") == (204, None)
    assert s3_here.names("bucket") == []


def test_an_upload_in_parts_loses_against_what_came_while_it_was_under_way(s3_here: S3Emulator, client: Any) -> None:
    place = {"Bucket": "bucket", "Key": "raced"}

    def parts() -> dict[str, Any]:
        upload = {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}
        etag = client.upload_part(**upload, PartNumber=1, Body=b"slower")["ETag"]
        return {**upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}

    creating, replacing = parts(), parts()
    s3_here.put("bucket", "raced", b"faster")
    assert outcome(client.complete_multipart_upload, **creating, IfNoneMatch="*") == REFUSED
    assert outcome(client.complete_multipart_upload, **replacing, IfMatch=STALE) == REFUSED
    etag = client.head_object(**place)["ETag"]
    assert outcome(client.complete_multipart_upload, **replacing, IfMatch=etag) == (200, None)
    assert s3_here.history("bucket", "raced") == [b"faster", b"slower"]


def test_files_and_folders_of_s3fs(s3_here: S3Emulator) -> None:
    files = s3fs.S3FileSystem()
    content = bytes(range(256)) * 4096 * 6
    with files.open("bucket/d/large", "wb", block_size=5 * 2**20) as file:
        file.write(content)
    files.pipe_file("bucket/d/small", b"0123456789")
    assert files.cat_file("bucket/d/small", start=2, end=5) == b"234"
    assert files.cat_file("bucket/d/large") == content
    assert files.info("bucket/d/large")["size"] == len(content)
    files.cp("bucket/d", "bucket/e", recursive=True)
    files.rm("bucket/d", recursive=True)
    assert sorted(files.ls("bucket/e", detail=False)) == ["bucket/e/large", "bucket/e/small"]
    assert s3_here.names("bucket") == ["e/large", "e/small"]
    assert s3_here.history("bucket", "d/small") == [b"0123456789", None]
    assert s3_here.get("bucket", "e/large") == content


@pytest.mark.parametrize("way", ["botocore", "s3fs"])
def test_of_racing_creations_one_wins(s3_here: S3Emulator, way: str) -> None:
    files = s3fs.S3FileSystem()
    # botocore's clients may be shared by threads, and take long to make.
    client = client_of(s3_here)
    for turn in range(8):

        def create(racer: int, name: str = f"turn-{turn}") -> bool:
            body = str(racer).encode()
            if way == "botocore":
                return outcome(client.put_object, Bucket="bucket", Key=name, Body=body, IfNoneMatch="*")[0] == 200
            try:
                files.pipe_file(f"bucket/{name}", body, mode="create")
            except FileExistsError:
                return False
            return True

        won = race(create)
        assert won.count(True) == 1
        assert s3_here.history("bucket", f"turn-{turn}") == [str(won.index(True)).encode()]


def test_racing_increments_lose_no_update(s3_here: S3Emulator) -> None:
    s3_here.put("bucket", "counter", b"0")
    client = client_of(s3_here)
    place = {"Bucket": "bucket", "Key": "counter"}
    increments = 3

    def count(racer: int) -> None:
        done = 0
        while done < increments:
            found = client.get_object(**place)
            value = int(found["Body"].read())
            answer = outcome(client.put_object, **place, Body=str(value + 1).encode(), IfMatch=found["ETag"])
            assert answer in ((200, None), REFUSED)
            done += answer[0] == 200

    race(count)
    assert s3_here.history("bucket", "counter") == [str(value).encode() for value in range(RACERS * increments + 1)]
