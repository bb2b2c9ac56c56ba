"""A copy that fails is never served, and is given back to the budget."""

import os
import types
from collections.abc import Callable
from pathlib import Path

import gcsfs.retry
import pytest

from marin_rules.storage.explain import StorageError
from marin_rules.storage.leases.lease import LeaseLostError
from marin_rules.storage.mirror import progress, rewrites
from support.mirror_world import World, spent

type MakeWorld = Callable[[str, str], World]

DATA = os.urandom(3 * 2**20)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """gcsfs tries six times, with pauses of half a minute in all."""

    async def sleep(seconds: float) -> None:
        pass

    monkeypatch.setattr(gcsfs.retry, "asyncio", types.SimpleNamespace(sleep=sleep))


FAULTS = [
    ("gs-file", "cut_body", "/o/x"),
    ("gs-file", "cut", "alt=media"),
    ("gs-file", 503, "alt=media"),
    ("gs-gs", 503, "rewriteTo"),
    ("gs-gs", 503, "rewriteToken"),
    ("gs-gs", "cut", "rewriteToken"),
    ("gs-gs", 403, "rewriteTo"),
    ("s3-file", 403, "far/x"),
    ("s3-s3", 403, "^bucket/x"),
]


@pytest.mark.parametrize(("kinds", "fault", "path"), FAULTS)
def test_a_failed_copy_leaves_nothing_and_costs_nothing(
    make_world: MakeWorld, kinds: str, fault: str | int, path: str
) -> None:
    world = make_world(*kinds.split("-"))
    world.store.put("far", "x", DATA)
    fs = world.fs
    if kinds == "s3-file":
        # It may be looked at, but not read.
        world.store.inject(fault, methods=["GET"], path="/far/x")
    elif kinds == "gs-file":
        world.store.inject(fault, path=rf"{path}.*|far/x" if fault == "cut_body" else "/far/o/x.*alt=media")
    else:
        world.store.inject(fault, methods=["PUT", "POST"], path=path)
    with pytest.raises(OSError, match=r"far/x"):
        fs.cat_file("x")
    assert [name for name in world.at_home() if not name.startswith(".mirror")] == []
    assert spent() == 0
    world.store.clear_faults()
    assert fs.cat_file("x") == DATA
    assert world.at_home() == ["x"]
    assert spent() == len(DATA)


@pytest.mark.parametrize(("kinds", "fault"), [("gs-gs", 503), ("gs-gs", "lost"), ("gs-file", "cut_body")])
def test_passing_trouble_is_overcome(make_world: MakeWorld, kinds: str, fault: str | int) -> None:
    world = make_world(*kinds.split("-"))
    world.store.put("far", "x", DATA)
    world.store.inject(fault, path="rewriteToken|alt=media", times=1)
    assert world.fs.cat_file("x") == DATA
    assert world.content("x") == DATA
    assert spent() == len(DATA)


def test_a_bulk_keeps_and_pays_for_what_is_complete(google: World) -> None:
    for number in range(6):
        google.store.put("far", f"tree/{number}", b"x" * 1000)
    google.store.inject(418, path="far/tree/3|/far/o/tree%2F3")
    with pytest.raises(StorageError, match="tree/3"):
        google.fs.prefetch("tree")
    kept = [name for name in google.at_home() if name.startswith("tree")]
    assert "tree/3" not in kept
    assert spent() == 1000 * len(kept)
    google.store.clear_faults()
    google.fs.prefetch("tree")
    assert google.at_home() == [f"tree/{number}" for number in range(6)]
    assert spent() == 6000


def test_parts_of_a_failed_copy_in_parts_are_given_up(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "LARGEST_SINGLE_COPY", 2**20)
    monkeypatch.setattr(rewrites, "PART_SIZE", 5 * 2**20)
    world = make_world("s3", "s3")
    world.store.put("far", "x", b"x" * (11 * 2**20))
    world.store.inject(403, path="partNumber=2")
    with pytest.raises(OSError, match="far/x"):
        world.fs.cat_file("x")
    assert [call.method for call in world.store.calls() if "uploadId" in call.query][-1] == "DELETE"
    assert spent() == 0


def test_a_full_disk_is_told(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    world = make_world("gs", "file")
    world.store.put("far", "documents/x", DATA)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"documents/x: no space left on the device"):
        world.fs.cat_file("documents/x")
    assert world.at_home() == []
    assert spent() == 0


def test_a_reader_that_lost_its_lease_waits_for_its_successor(google: World, monkeypatch: pytest.MonkeyPatch) -> None:
    google.store.put("far", "x", DATA)
    losses = []
    real = progress.Progress.__enter__

    def lose(self: progress.Progress) -> progress.Progress:
        if not losses:
            losses.append(True)
            raise LeaseLostError("stood still", None)
        return real(self)

    monkeypatch.setattr(progress.Progress, "__enter__", lose)
    assert google.fs.cat_file("x") == DATA
    assert spent() == len(DATA)


def test_what_a_killed_copy_left_is_removed_by_the_next(make_world: MakeWorld) -> None:
    from marin_rules.storage.mirror.paths import temporary_prefix

    world = make_world("gs", "file")
    world.store.put("far", "documents/x", DATA)
    folder = Path(world.prefix, "documents")
    folder.mkdir(parents=True)
    (folder / f"{temporary_prefix('documents/x')}0123.tmp").write_bytes(DATA[:100])
    assert world.fs.find("documents") == ["documents/x"]
    assert world.fs.cat_file("documents/x") == DATA
    assert world.at_home() == ["documents/x"]


def test_one_failure_stops_the_copies_of_other_directories(google: World) -> None:
    for directory in "abc":
        google.store.put("far", f"tree/{directory}/x", DATA)
    google.store.put("far", "tree/d/x", b"1")
    google.store.inject(418, path="far/tree/d|/far/o/tree%2Fd")
    # The others have not got far by then.
    google.store.inject("latency", path="far/tree/[abc]|/far/o/tree%2F[abc]", seconds=0.3)
    with pytest.raises(StorageError, match="tree/d/x"):
        google.fs.prefetch("tree")
    kept = [name for name in google.at_home() if name.startswith("tree")]
    assert all(google.content(name) == DATA for name in kept)
    assert spent() == len(DATA) * len(kept)
    if "://" in google.prefix:
        assert kept == []
