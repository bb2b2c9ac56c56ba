"""Objects that grow: appended to in pieces, by more than one writer, with lost answers, in bounded memory."""

import os
import tempfile
import threading
import tracemalloc
from collections.abc import Iterator
from typing import IO

import pytest

from marin_rules.storage.objects import growing
from marin_rules.storage.objects import open as open_module
from marin_rules.storage.objects.growing import GrowingObject
from marin_rules.storage.objects.s3 import _ranges
from marin_rules.storage.objects.store import ObjectState
from support.lease_models.remote import Remote

MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_clients_of_earlier_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_module, "_local", threading.local())


@pytest.fixture
def file() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(buffering=0) as file:
        yield file


def go_on() -> bool:
    return True


def test_small_and_large_pieces(remote: Remote, file: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the sizes at which the stores append in another way."""
    log = GrowingObject(f"{remote.bucket}/log")
    written = b""
    for size in (10, MIB, 6 * MIB, 17 * MIB, 3):
        part = os.urandom(size)
        written += part
        file.write(part)
        assert log.publish(file.fileno(), go_on)
        assert remote.held("log") == written
        assert log.published == len(written)
    assert remote.emulator.names("bucket") == ["log"], "no parts are left"


def test_an_earlier_log_is_kept_and_not_fetched(remote: Remote, file: IO[bytes]) -> None:
    earlier = os.urandom(6 * MIB)
    remote.emulator.put("bucket", "log", earlier)
    file.write(b"attempt 2\n")
    GrowingObject(f"{remote.bucket}/log").publish(file.fileno(), go_on)
    assert remote.held("log") == earlier + b"attempt 2\n"
    assert not [call for call in remote.emulator.calls() if call.download]


def test_another_writer_loses_nothing(remote: Remote, file: IO[bytes]) -> None:
    one, other = GrowingObject(f"{remote.bucket}/log"), GrowingObject(f"{remote.bucket}/log")
    file.write(b"first\n")
    one.publish(file.fileno(), go_on)
    with tempfile.TemporaryFile(buffering=0) as others:
        others.write(b"late\n")
        other.publish(others.fileno(), go_on)
    file.write(b"second\n")
    one.publish(file.fileno(), go_on)
    assert remote.held("log") == b"first\nlate\nsecond\n"


@pytest.mark.parametrize("before", [0, 6 * MIB])
def test_lost_answers_repeat_nothing(remote: Remote, file: IO[bytes], before: int) -> None:
    remote.emulator.put("bucket", "log", b"x" * before)
    log = GrowingObject(f"{remote.bucket}/log")
    for number in range(4):
        file.write(b"line %d\n" % number)
        remote.emulator.inject("lost", methods=["POST", "PUT"], times=1)
        log.publish(file.fileno(), go_on)
    assert remote.held("log") == b"x" * before + b"line 0\nline 1\nline 2\nline 3\n"


def test_it_can_be_ended_between_two_pieces(remote: Remote, file: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "PIECE_BYTES", 10)
    file.write(b"0123456789" * 5)
    answers = iter([True, True, False])
    log = GrowingObject(f"{remote.bucket}/log")
    assert not log.publish(file.fileno(), lambda: next(answers))
    assert remote.held("log") == b"0123456789" * 2
    assert log.publish(file.fileno(), go_on)
    assert remote.held("log") == b"0123456789" * 5


class Sink:
    """A store that keeps only sizes."""

    size = 0

    def state(self, url: str) -> ObjectState | None:
        return ObjectState(str(self.size), self.size) if self.size else None

    def append(self, url: str, data: bytes, state: ObjectState | None) -> str | None:
        self.size += len(data)
        return str(self.size)


def test_memory_is_bounded(file: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    monkeypatch.setattr(growing, "open_objects", lambda url: sink)
    os.truncate(file.fileno(), 300 * MIB)
    tracemalloc.start()
    try:
        assert GrowingObject("s3://bucket/log").publish(file.fileno(), go_on)
        assert tracemalloc.get_traced_memory()[1] < 3 * growing.PIECE_BYTES
    finally:
        tracemalloc.stop()
    assert sink.size == 300 * MIB


@pytest.mark.parametrize(
    ("size", "ranges"),
    [
        (6 * MIB, [(0, 6 * MIB - 1)]),
        (1024 * MIB, [(0, 1024 * MIB - 1)]),
        (1026 * MIB, [(0, 1026 * MIB - 1)]),
        (1030 * MIB, [(0, 1024 * MIB - 1), (1024 * MIB, 1030 * MIB - 1)]),
    ],
)
def test_what_s3_copies_in_one_call(size: int, ranges: list[tuple[int, int]]) -> None:
    assert _ranges(size) == ranges
