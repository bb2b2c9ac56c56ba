"""Objects as the real clients store, read, list, copy and delete them."""

from __future__ import annotations

import base64
import hashlib
import json
from itertools import product
from urllib.parse import quote

import gcsfs
import google_crc32c
import pytest
import requests
from google.api_core.exceptions import BadRequest, GoogleAPICallError, NotFound
from google.cloud.storage import Bucket

from support.emulators.gcs.clients import bucket_of
from support.emulators.gcs.emulator import GcsEmulator

ODD_NAME = "a b/ü%2F?#+&=/{x}"
MIB = 2**20


@pytest.fixture(autouse=True)
def takes_what_gcsfs_sends(gcs: GcsEmulator) -> None:
    gcs.set_quirks("takes bare line feeds")


@pytest.fixture
def bucket(gcs_here: GcsEmulator) -> Bucket:
    return bucket_of(gcs_here)


@pytest.fixture
def files(gcs_here: GcsEmulator) -> gcsfs.GCSFileSystem:
    return gcsfs.GCSFileSystem()


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n--\r\n\n\n", bytes(range(256)) * 40])
def test_both_clients_read_what_either_wrote(
    gcs_here: GcsEmulator, bucket: Bucket, files: gcsfs.GCSFileSystem, content: bytes
) -> None:
    bucket.blob(ODD_NAME).upload_from_string(content)
    files.pipe_file("bucket/plain", content)
    with files.open("bucket/streamed", "wb") as file:
        file.write(content)
    assert bucket.blob("plain").download_as_bytes() == content == bucket.blob("streamed").download_as_bytes()
    assert files.cat_file(f"bucket/{ODD_NAME}") == content == gcs_here.get("bucket", ODD_NAME)
    assert gcs_here.names("bucket") == sorted([ODD_NAME, "plain", "streamed"])
    stored = bucket.get_blob(ODD_NAME)
    assert stored.size == len(content)
    assert stored.md5_hash == base64.b64encode(hashlib.md5(content).digest()).decode()
    assert stored.crc32c == base64.b64encode(google_crc32c.Checksum(content).digest()).decode()


def test_ranges(gcs_here: GcsEmulator, bucket: Bucket, files: gcsfs.GCSFileSystem) -> None:
    gcs_here.put("bucket", "digits", b"0123456789")
    assert files.cat_file("bucket/digits", 2, 5) == b"234"
    assert files.cat_file("bucket/digits", -3) == b"789"
    assert files.cat_ranges(["bucket/digits"] * 2, [0, 7], [2, 99]) == [b"01", b"789"]
    assert bucket.blob("digits").download_as_bytes(start=8) == b"89"
    with pytest.raises(GoogleAPICallError) as raised:
        bucket.blob("digits").download_as_bytes(start=10)
    assert raised.value.code == 416
    # The address that `gsutil` and plain HTTP clients use.
    response = requests.get(f"{gcs_here.url}/bucket/digits", headers={"Range": "bytes=-4"}, timeout=10)
    assert (response.status_code, response.content) == (206, b"6789")
    assert response.headers["Content-Range"] == "bytes 6-9/10"


def test_a_content_that_is_not_what_was_sent_is_refused(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    blob = bucket.blob("damaged")
    blob.md5_hash = base64.b64encode(hashlib.md5(b"something else").digest()).decode()
    with pytest.raises(BadRequest, match="md5Hash"):
        blob.upload_from_string("content", checksum=None)
    assert gcs_here.names("bucket") == []


def test_metadata(bucket: Bucket) -> None:
    blob = bucket.blob("described")
    blob.metadata = {"one": "1", "two": "2"}
    blob.cache_control = "no-store"
    blob.upload_from_string("{}", content_type="application/json")
    blob.metadata = {"one": None, "three": "3"}
    blob.patch()
    stored = bucket.get_blob("described")
    assert (stored.metadata, stored.content_type) == ({"two": "2", "three": "3"}, "application/json")
    assert (stored.cache_control, stored.metageneration) == ("no-store", 2)


def test_listing_in_pages_gives_what_listing_at_once_gives(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    names = ["a", "a/", "a/b", "a/b/c", "a/b/d", "a!", "b/x", "b0", "c/y/z", "é/ü"]
    for name in names:
        gcs_here.put("bucket", name, b"")
    for prefix, delimiter, page_size in product(["", "a", "a/", "a/b/", "no"], [None, "/"], [1, 2, 3, None]):
        listed = bucket.list_blobs(prefix=prefix, delimiter=delimiter, page_size=page_size)
        found = [blob.name for blob in listed]
        under = sorted(name for name in names if name.startswith(prefix))
        deeper = {name for name in under if delimiter and delimiter in name[len(prefix) :]}
        assert found == [name for name in under if name not in deeper]
        assert listed.prefixes == {prefix + name[len(prefix) :].split("/")[0] + "/" for name in deeper}
    offset = [blob.name for blob in bucket.list_blobs(start_offset="a/b", end_offset="b0")]
    assert offset == ["a/b", "a/b/c", "a/b/d", "b/x"]
    assert len(list(bucket.list_blobs(max_results=4))) == 4


def test_a_resumable_upload_goes_on_where_it_was_interrupted(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    session = bucket.blob("long").create_resumable_upload_session(content_type="text/plain")
    chunk = b"x" * 256 * 1024

    def put(data: bytes, content_range: str) -> requests.Response:
        return requests.put(session, data=data, headers={"Content-Range": content_range}, timeout=10)

    assert "Range" not in put(b"", "bytes */*").headers
    first = put(chunk, f"bytes 0-{len(chunk) - 1}/*")
    asked = put(b"", "bytes */*")
    assert first.status_code == asked.status_code == 308
    assert first.headers["Range"] == asked.headers["Range"] == f"bytes=0-{len(chunk) - 1}"
    assert gcs_here.names("bucket") == []
    # Half of this is known already: a client that was not told sends it again.
    total = len(chunk) + 10
    last = put(chunk[:10] + b"0123456789", f"bytes {len(chunk) - 10}-{total - 1}/{total}")
    assert (last.status_code, last.json()["size"]) == (200, str(total))
    assert put(b"", f"bytes */{total}").json()["generation"] == last.json()["generation"]
    assert gcs_here.history("bucket", "long") == [chunk + b"0123456789"]
    assert requests.put(f"{session}x", data=b"", timeout=10).status_code == 404


def test_large_contents_go_in_chunks(gcs_here: GcsEmulator, bucket: Bucket, files: gcsfs.GCSFileSystem) -> None:
    content = bytes(range(256)) * 4 * 700
    with bucket.blob("google").open("wb", chunk_size=256 * 1024) as file:
        file.write(content)
    with files.open("bucket/gcsfs", "wb", block_size=256 * 1024) as file:
        for start in range(0, len(content), 100_000):
            file.write(content[start : start + 100_000])
    assert {call.object for call in gcs_here.calls() if "upload_id" in call.query} == {"google", "gcsfs"}
    assert sum("upload_id" in call.query for call in gcs_here.calls()) >= 6
    assert gcs_here.history("bucket", "google") == [content] == gcs_here.history("bucket", "gcsfs")


def test_rewrites_take_several_calls_between_locations_only(
    gcs_here: GcsEmulator, bucket: Bucket, files: gcsfs.GCSFileSystem
) -> None:
    content = b"x" * (2 * MIB + 1)
    gcs_here.put("bucket", "source", content)
    gcs_here.create_bucket("near")
    gcs_here.create_bucket("far", "europe-west4")
    source = bucket.blob("source")
    near, far = (bucket_of(gcs_here, name).blob("copy") for name in ("near", "far"))
    assert near.rewrite(source) == (None, len(content), len(content))
    token, rewritten, total = far.rewrite(source)
    assert (rewritten, total) == (MIB, len(content))
    assert gcs_here.get("far", "copy") is None
    token, rewritten, _ = far.rewrite(source, token=token)
    assert rewritten == 2 * MIB
    assert far.rewrite(source, token=token)[0] is None
    files.cp("bucket/source", "far/other")
    assert gcs_here.get("far", "copy") == content == gcs_here.get("far", "other")


def test_compositions_and_moves(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    for name in ("one", "two"):
        gcs_here.put("bucket", name, name.encode())
    both = bucket.blob("both")
    both.compose([bucket.blob("one"), bucket.blob("two")])
    assert both.download_as_bytes() == b"onetwo"
    assert (both.component_count, both.md5_hash) == (2, None)
    bucket.move_blob(both, "moved")
    assert gcs_here.names("bucket") == ["moved", "one", "two"]
    with pytest.raises(NotFound):
        bucket.blob("all").compose([bucket.blob("one"), bucket.blob("absent")])


def test_a_batch_fails_part_by_part(gcs_here: GcsEmulator, bucket: Bucket) -> None:
    for name in (ODD_NAME, "two"):
        gcs_here.put("bucket", name, b"")
    missing: list[str] = []
    blobs = [bucket.blob(name) for name in (ODD_NAME, "absent", "two")]
    bucket.delete_blobs(blobs, on_error=lambda blob: missing.append(blob.name))
    assert missing == ["absent"]
    for name in (ODD_NAME, "two"):
        gcs_here.put("bucket", name, b"")
    with bucket.client.batch():
        for name in (ODD_NAME, "two"):
            bucket.blob(name).delete()
    assert gcs_here.names("bucket") == []
    assert gcs_here.calls()[-1].path.startswith("/batch")
    # gcsfs deletes in batches only where it takes its endpoint for Google's own.
    gcs_here.put("bucket", "a/b", b"")
    body = (
        "\n--==b==\nContent-Type: application/http\nContent-Transfer-Encoding: binary\nContent-ID: <x+1>\n\n"
        f"DELETE /storage/v1/b/bucket/o/{quote('a/b', safe='')} HTTP/1.1\n"
        "Content-Type: application/json\naccept: application/json\ncontent-length: 0\n\n--==b==--"
    )
    headers = {"Content-Type": 'multipart/mixed; boundary="==b=="'}
    response = requests.post(f"{gcs_here.url}/batch/storage/v1", data=body, headers=headers, timeout=10)
    assert "HTTP/1.1 204" in response.text
    assert gcs_here.names("bucket") == []


def test_folders_of_gcsfs(gcs_here: GcsEmulator, files: gcsfs.GCSFileSystem) -> None:
    for name in ("d/one", "d/e/two", "d/e/three"):
        files.pipe_file(f"bucket/{name}", name.encode())
    assert sorted(files.ls("bucket/d", detail=False)) == ["bucket/d/e", "bucket/d/one"]
    assert len(files.find("bucket/d")) == 3
    assert files.info("bucket/d")["type"] == "directory"
    files.mv("bucket/d/e", "bucket/f", recursive=True)
    files.cp("bucket/d", "bucket/g", recursive=True)
    files.rm("bucket/d", recursive=True)
    assert not files.exists("bucket/d")
    assert gcs_here.names("bucket") == ["f/three", "f/two", "g/one"]


def test_what_is_not_emulated_says_so_at_once(gcs_here: GcsEmulator) -> None:
    response = requests.get(f"{gcs_here.url}/storage/v1/b/bucket/acl", timeout=10)
    assert response.status_code == 400
    assert "the emulator lacks GET /storage/v1/b/bucket/acl" in json.loads(response.text)["error"]["message"]
