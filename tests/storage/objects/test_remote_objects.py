"""Objects on GCS and S3, with the real clients: whole contents, true versions, conditions that hold under races."""

import threading
import time

import pytest

from marin_rules.storage.objects.store import StoredObject
from support.lease_models.remote import Remote


@pytest.mark.parametrize("key", ["step/.executor_status", "a b+c", "100%", "q?x=1&y#z", "ümlaut/ß", "'\"~"])
def test_a_content_comes_back_with_its_version(remote: Remote, key: str) -> None:
    objects, url, data = remote.open(), f"{remote.bucket}/{key}", b"\0\xff\r\n"
    assert objects.read(url) is None
    assert objects.modified(url) is None
    version = objects.write(url, data, None)
    assert version is not None
    assert objects.read(url) == StoredObject(data, version)
    assert remote.held(key) == data
    assert abs((objects.modified(url) or 0.0) - time.time()) < 60
    assert objects.delete(url, version)
    assert objects.read(url) is None


def test_a_write_needs_the_version_that_is_there(remote: Remote) -> None:
    objects, url = remote.open(), f"{remote.bucket}/a"
    assert objects.write(url, b"zero", "1") is None
    first = objects.write(url, b"one", None)
    assert first is not None
    assert objects.write(url, b"other", None) is None
    second = objects.write(url, b"two", first)
    assert second is not None
    assert objects.write(url, b"other", first) is None
    assert not objects.delete(url, first)
    assert objects.read(url) == StoredObject(b"two", second)


def test_versions_repeat_only_where_the_store_says_so(remote: Remote) -> None:
    objects, url = remote.open(), f"{remote.bucket}/a"
    first = objects.write(url, b"RUNNING", None)
    second = objects.write(url, b"SUCCESS", first)
    third = objects.write(url, b"RUNNING", second)
    assert (third == first) == objects.repeats_versions


def test_put_asks_for_no_version(remote: Remote) -> None:
    objects, url = remote.open(), f"{remote.bucket}/a"
    objects.put(url, b"one")
    objects.put(url, b"two")
    assert remote.held("a") == b"two"


def test_a_store_that_asks_nothing_of_a_read_but_one_call(remote: Remote) -> None:
    """Content and version in one answer: with two calls they might belong to different writes."""
    objects, url = remote.open(), f"{remote.bucket}/a"
    objects.put(url, b"one")
    remote.emulator.forget_calls()
    objects.read(url)
    assert [call.method for call in remote.emulator.calls()] == ["GET"]


def test_of_racing_writers_one_wins(remote: Remote) -> None:
    url, barrier, answers = f"{remote.bucket}/a", threading.Barrier(4), list[str | None]()

    def write(number: int) -> None:
        objects = remote.open()
        barrier.wait(30)
        for round_ in range(5):
            answers.append(objects.write(f"{url}-{round_}", str(number).encode(), None))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(answer is not None for answer in answers) == 5
    assert [len(remote.emulator.history("bucket", f"a-{round_}")) for round_ in range(5)] == [1] * 5


def test_a_read_never_mixes_the_content_of_one_write_with_the_version_of_another(remote: Remote) -> None:
    url, contents, is_done = f"{remote.bucket}/a", dict[str, bytes](), threading.Event()
    reader = remote.open()

    def write() -> None:
        objects, version = remote.open(), None
        for number in range(60):
            data = str(number).encode() * 1000
            version = objects.write(url, data, version)
            contents[version] = data
        is_done.set()

    seen, writer = list[StoredObject](), threading.Thread(target=write)
    writer.start()
    while not is_done.is_set():
        found = reader.read(url)
        if found is not None:
            seen.append(found)
    writer.join(60)
    assert len(contents) == 60
    assert all(contents[found.version] == found.data for found in seen)
    assert len({found.version for found in seen}) > 1


@pytest.mark.parametrize(
    ("start", "size", "part"),
    [
        (0, 4, b"0123"), (7, 99, b"789"), (10, 4, b""), (99, 4, b""),
        (-3, 3, b"789"), (-3, 2, b"78"), (-99, 99, b"0123456789"),
    ],
)  # fmt: skip
def test_a_part_of_an_object(remote: Remote, start: int, size: int, part: bytes) -> None:
    objects, url = remote.open(), f"{remote.bucket}/a"
    assert objects.read_part(url, start, size) is None
    assert objects.size(url) is None
    objects.put(url, b"0123456789")
    assert objects.read_part(url, start, size) == part
    assert objects.size(url) == 10
    objects.put(url, b"")
    assert objects.read_part(url, start, size) == b""
    assert objects.size(url) == 0


def test_the_end_of_a_large_object_is_all_that_is_fetched(remote: Remote) -> None:
    objects, url = remote.open(), f"{remote.bucket}/a"
    objects.put(url, b"x" * (8 << 20) + b"end")
    remote.emulator.forget_calls()
    assert objects.read_part(url, -1003, 1003) == b"x" * 1000 + b"end"
    assert [call.method for call in remote.emulator.calls()] == ["GET"]
