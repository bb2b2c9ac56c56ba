"""How a copy is made: in parts, checked, into another kind of store, and by one worker of many."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from marin_rules.storage.budget import remaining, step_ledger
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.mirror import progress, rewrites, rights, streams
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.s3.emulator import S3Emulator
from support.mirror_world import GB, World, spent

type MakeWorld = Callable[[str, str], World]


def test_a_large_object_is_rewritten_by_several_calls(make_world: MakeWorld) -> None:
    world = make_world("gs", "gs")
    data = os.urandom(3 * 2**20 + 5)
    world.store.put("far", "x", data)
    assert world.fs.cat_file("x") == data
    assert len(world.moves()) == 4
    assert world.store.history("bucket", "x") == [data]


def test_a_large_object_of_s3_is_copied_in_parts(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "LARGEST_SINGLE_COPY", 2**20)
    monkeypatch.setattr(rewrites, "PART_SIZE", 5 * 2**20)
    world = make_world("s3", "s3")
    data = os.urandom(11 * 2**20)
    world.store.put("far", "x", data)
    assert world.fs.cat_file("x") == data
    assert len([line for line in world.moves() if "partNumber" in line]) == 3


def test_a_large_object_is_streamed_in_pieces(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PIECE", 1000)
    world = make_world("gs", "file")
    data = os.urandom(9_500)
    world.store.put("far", "x", data)
    assert world.fs.cat_file("x") == data
    assert len(world.moves()) == 10


@pytest.mark.parametrize("size", [0, 10, 6 * 2**20])
def test_from_one_kind_of_store_to_another(
    make_world: MakeWorld, s3_here: S3Emulator, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    world = make_world("gs", "gs")
    data = os.urandom(size)
    world.store.put("far", "documents/x", data)
    monkeypatch.setenv("MARIN_PREFIX", "s3://bucket")
    assert world.fs.cat_file("documents/x") == data
    assert s3_here.get("bucket", "documents/x") == data
    assert s3_here.names("bucket") == ["documents/x"]
    assert spent() == size


@pytest.mark.parametrize("size", [0, 10, 6 * 2**20])
def test_and_back(make_world: MakeWorld, gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    world = make_world("s3", "s3")
    data = os.urandom(size)
    world.store.put("far", "documents/x", data)
    monkeypatch.setenv("MARIN_PREFIX", "gs://bucket")
    assert world.fs.cat_file("documents/x") == data
    assert gcs_here.get("bucket", "documents/x") == data
    assert gcs_here.names("bucket") == ["documents/x"]


def test_wrong_bytes_are_not_kept(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world("gs", "file")
    world.store.put("far", "x", b"right bytes")
    # A memory error, or a proxy that changes what passes through it.
    real = streams._pieces
    monkeypatch.setattr(streams, "_pieces", lambda *given: (piece.replace(b"r", b"w") for piece in real(*given)))
    with pytest.raises(OSError, match="checksum is wrong"):
        world.fs.cat_file("x")
    assert world.at_home() == []
    assert spent() == 0
    monkeypatch.undo()


@pytest.fixture
def at_first_progress(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Do something as soon as the first bytes of a copy have moved."""

    def arrange(do: Callable[[], None]) -> None:
        real, done = progress.Progress.advance, []

        def advance(self: progress.Progress, size: int) -> None:
            if not done:
                done.append(True)
                do()
            real(self, size)

        monkeypatch.setattr(progress.Progress, "advance", advance)

    return arrange


@pytest.mark.parametrize("kinds", ["gs-gs", "gs-file", "s3-file"])
@pytest.mark.parametrize("change", ["overwritten", "removed"])
def test_a_source_that_changes_meanwhile_is_noticed(
    make_world: MakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    at_first_progress: Callable[[Callable[[], None]], None],
    kinds: str,
    change: str,
) -> None:
    monkeypatch.setattr(streams, "_PIECE", 2**18)
    world = make_world(*kinds.split("-"))
    old, new = b"o" * (3 * 2**20), b"n" * (3 * 2**20)
    world.store.put("far", "x", old)

    def change_it() -> None:
        if change == "overwritten":
            world.store.put("far", "x", new)
        else:
            remove(world, "far", "x")

    at_first_progress(change_it)
    with pytest.raises(OSError, match=r"far/x: it was changed or removed while it was being copied"):
        world.fs.cat_file("x")
    assert world.at_home() == []
    assert spent() == 0
    if change == "overwritten":
        assert world.fs.cat_file("x") == new


def remove(world: World, bucket: str, name: str) -> None:
    """As somebody else: a client that runs on fsspec's loop would wait for itself here."""
    if world.scheme == "gs":
        from google.cloud import storage

        storage.Client().bucket(bucket).blob(name).delete()
    else:
        import botocore.session

        botocore.session.get_session().create_client("s3").delete_object(Bucket=bucket, Key=name)


@contextmanager
def children(number: int, do: Callable[[], None]) -> Iterator[None]:
    """Forked processes that begin together."""
    reading, writing = os.pipe()
    processes = []
    for _ in range(number):
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.close(writing)
                os.read(reading, 1)
                do()
                status = 0
            finally:
                os._exit(status)
        processes.append(process)
    os.close(reading)
    os.close(writing)
    yield
    for process in processes:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("do", ["cat", "prefetch", "both"])
def test_racing_processes_make_and_pay_for_one_copy(google: World, do: str) -> None:
    names = [f"tree/{number}" for number in range(4)]
    for name in names:
        google.store.put("far", name, b"x" * 1000)
    # So long that the others certainly come while the first one copies.
    google.store.inject("latency", path="rewriteTo|alt=media.*|/o/tree", seconds=0.05)

    def read() -> None:
        if do == "prefetch" or (do == "both" and os.getpid() % 2):
            google.fs.prefetch("tree")
        for name in names:
            assert google.fs.cat_file(name) == b"x" * 1000

    # Just enough for one copy of each.
    with step_ledger(4000 / GB):
        with children(3, read):
            pass
        assert remaining() == 0
    assert len(google.moves()) == 4
    assert google.at_home() == names


def test_who_waits_reads_what_the_other_one_copied(google: World, monkeypatch: pytest.MonkeyPatch) -> None:
    google.store.put("far", "tree/x", b"x")
    lease = open_lease_at(rights._lease_url(google_home(), "tree/x"), Owner.current())
    assert lease.try_acquire() is None

    def sleep(seconds: float) -> None:
        # The other one is done, just while we wait.
        google.fs.pipe_file("tree/x", b"copied by another")
        lease.release()

    monkeypatch.setattr(rights.time, "sleep", sleep)
    assert google.fs.cat_file("tree/x") == b"copied by another"
    assert google.moves() == []
    assert spent() == 0


def test_one_file_waits_for_a_copy_of_its_directory(google: World, monkeypatch: pytest.MonkeyPatch) -> None:
    google.store.put("far", "tree/x", b"x")
    lease = open_lease_at(rights._directory_lease_url(google_home(), "tree"), Owner.current())
    assert lease.try_acquire() is None
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        # Nobody waits with a lease in its hands.
        assert not [name for name in google.at_home() if name.count(".") == 3]
        lease.release()

    monkeypatch.setattr(rights.time, "sleep", sleep)
    assert google.fs.cat_file("tree/x") == b"x"
    assert waits
    assert google.at_home() == ["tree/x"]


def test_a_copy_of_a_directory_leaves_files_in_hand_for_later(google: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        google.store.put("far", f"tree/{name}", b"x")
    lease = open_lease_at(rights._lease_url(google_home(), "tree/b"), Owner.current())
    assert lease.try_acquire() is None

    def sleep(seconds: float) -> None:
        assert [name for name in google.at_home() if name.startswith("tree")] == ["tree/a", "tree/c"]
        lease.release()

    monkeypatch.setattr(rights.time, "sleep", sleep)
    google.fs.prefetch("tree")
    assert google.at_home() == ["tree/a", "tree/b", "tree/c"]
    assert spent() == 3


def google_home() -> object:
    from marin_rules.storage.mirror.places import home

    return home()


def test_long_copies_say_how_far_they_are(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.01)
    world = make_world("gs", "gs")
    world.store.put("far", "documents/x", b"x" * 2048)
    world.store.inject("latency", path="rewriteTo", seconds=0.2)
    world.fs.cat_file("documents/x")
    said = capsys.readouterr().err
    assert "copying gs://far/documents/x: 0 bytes of 2.00 kB (0%)" in said
    assert "europe-west4 -> us-central1" in said
    assert "2.00 kB of 2.00 kB (100%)" in said.splitlines()[-1]


def test_short_copies_say_nothing(google: World, capsys: pytest.CaptureFixture[str]) -> None:
    google.store.put("far", "x", b"x")
    google.fs.cat_file("x")
    assert capsys.readouterr().err == ""


def test_the_filesystem_is_registered_by_name_only() -> None:
    from fsspec.registry import known_implementations

    assert known_implementations["mirror"]["class"] == "marin_rules.storage.mirror.filesystem.MirrorFileSystem"
    project = Path(__file__).resolve().parents[3] / "pyproject.toml"
    assert 'mirror = "marin_rules.storage.mirror.filesystem:MirrorFileSystem"' in project.read_text()
    assert type(fsspec.filesystem("mirror")).__name__ == "MirrorFileSystem"
