"""A file that is read from `mirror://` comes from wherever it is, once."""

import os
import threading
from collections.abc import Callable

import fsspec
import pytest

from support.mirror_world import World, spent

DATA = bytes(range(256)) * 40


def test_a_file_of_another_region_is_read_and_then_is_here(world: World) -> None:
    world.store.put("far", "documents/x.bin", DATA)
    with fsspec.open("mirror://documents/x.bin", "rb") as file:
        assert file.read() == DATA
    assert world.at_home() == ["documents/x.bin"]
    assert world.content("documents/x.bin") == DATA
    assert spent() == len(DATA)


def test_it_is_copied_once_and_never_again(world: World) -> None:
    world.store.put("far", "documents/x.bin", DATA)
    assert world.fs.cat_file("documents/x.bin") == DATA
    assert len(world.moves()) == 1
    world.store.forget_calls()
    assert world.fs.cat_file("documents/x.bin") == DATA
    with world.fs.open("documents/x.bin") as file:
        assert file.read() == DATA
    assert world.moves() == []
    assert not [call for call in world.store.calls() if call.place.startswith(("far", "near"))]
    assert spent() == len(DATA)


def test_what_is_here_is_read_here_whatever_others_have(google: World) -> None:
    google.fs.pipe_file("documents/x.bin", b"ours")
    google.store.put("far", "documents/x.bin", DATA)
    assert google.fs.cat_file("mirror://documents/x.bin") == b"ours"
    assert spent() == 0


def test_the_nearest_source_is_taken(make_world: Callable[[str, str], World]) -> None:
    world = make_world("gs", "gs")
    world.store.put("far", "x", b"from far")
    world.store.put("near", "x", b"from near")
    assert world.fs.cat_file("x") == b"from near"


@pytest.mark.parametrize("size", [0, 1, 3 * 2**20 + 17])
def test_sizes(google: World, size: int) -> None:
    data = os.urandom(size)
    google.store.put("near", "x", data)
    assert google.fs.cat_file("x") == data
    assert google.content("x") == data
    assert spent() == size


def test_all_ways_to_read(google: World) -> None:
    fs = google.fs
    for name in "abcdefgh":
        google.store.put("far", f"t/{name}.txt", f"{name} one\n{name} two\n".encode())
    with fsspec.open("mirror://t/a.txt", "rt") as file:
        assert file.readlines() == ["a one\n", "a two\n"]
    assert fs.read_block("t/b.txt", 0, 8, delimiter=b"\n") == b"b one\nb two\n"
    assert fs.cat_file("t/c.txt", start=2, end=5) == b"one"
    assert fs.head("t/d.txt", 5) == b"d one"
    assert fs.cat_ranges(["t/e.txt", "t/f.txt"], [0, 2], [1, 5]) == [b"e", b"one"]
    fs.get("t/g.txt", str(google.folder / "g"))
    assert (google.folder / "g").read_bytes() == b"g one\ng two\n"
    read = [fs.cat_file(name) for _, _, files in fs.walk("t") for name in (f"t/{file}" for file in files)]
    assert len(read) == 8
    assert spent() == 8 * 12


def test_many_are_copied_together(google: World) -> None:
    paths = {f"tree/{part}/{number}": f"{part} {number}".encode() for part in "ab" for number in range(10)}
    for path, data in paths.items():
        google.store.put("far", path, data)
    target = google.folder / "out"
    google.fs.get("tree", str(target), recursive=True)
    assert {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()} == {
        path.removeprefix("tree/"): data for path, data in paths.items()
    }
    assert google.at_home() == sorted(paths)
    assert spent() == sum(map(len, paths.values()))
    assert google.fs.cat(list(paths)) == paths
    assert len(google.moves()) == len(paths)


def test_prefetch_says_where_the_files_are(google: World) -> None:
    google.store.put("far", "tree/a", b"1")
    google.store.put("near", "tree/b/c", b"2")
    assert google.fs.prefetch("mirror://tree") == [f"{google.prefix}/tree/a", f"{google.prefix}/tree/b/c"]
    google.store.forget_calls()
    google.fs.prefetch(["tree/a", "tree/b/c"])
    assert google.moves() == []
    with pytest.raises(FileNotFoundError, match="no such file in any of"):
        google.fs.prefetch("nothing")


def test_materialize_copies_a_tree_and_says_where_it_is(google: World) -> None:
    """Levanter reads tokens of `mirror://` this way, with a library that does not know fsspec."""
    google.store.put("far", "tree/a", b"1")
    google.store.put("near", "tree/b/c", b"2")
    assert google.fs.materialize("mirror://tree") == f"{google.prefix}/tree"
    assert google.at_home() == ["tree/a", "tree/b/c"]
    assert google.fs.materialize("tree/b/c") == f"{google.prefix}/tree/b/c"
    with pytest.raises(FileNotFoundError, match="no such file in any of"):
        google.fs.materialize("nothing")


def test_a_path_that_is_nowhere_names_the_places(google: World) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        google.fs.cat_file("documents/absent")
    message = str(caught.value)
    assert all(place in message for place in (google.prefix, "far", "near", "mirror://documents/absent"))
    assert google.at_home() == []


@pytest.mark.parametrize("path", ["mirror://../x", "mirror:///etc/passwd", "mirror://a/../../x", "mirror://", "a/.."])
def test_paths_that_leave_the_prefix_are_refused(make_world: Callable[[str, str], World], path: str) -> None:
    make_world("gs", "file")
    with pytest.raises(ValueError, match="prefix"):
        fsspec.open(path if "://" in path else f"mirror://{path}", "rb").open()


def test_whole_paths_of_the_prefix_and_of_other_buckets_are_understood(google: World) -> None:
    google.store.put("far", "step-abc/x", DATA)
    assert google.fs.cat_file("mirror://gs://far/step-abc/x") == DATA
    assert google.fs.cat_file(f"mirror://{google.prefix}/step-abc/x") == DATA
    with pytest.raises(ValueError, match="gs://elsewhere"):
        google.fs.cat_file("mirror://gs://elsewhere/x")


def test_the_state_of_a_step_is_not_taken_over_from_another_region(google: World) -> None:
    """Its data may not be here: a status that says SUCCESS would be a lie."""
    google.store.put("far", "step-abc/.executor_status", b"SUCCESS")
    google.store.put("far", "step-abc/data", DATA)
    google.fs.prefetch("step-abc")
    assert google.at_home() == ["step-abc/data"]
    assert not google.fs.exists("step-abc/.executor_status")
    assert google.fs.find("step-abc") == ["step-abc/data"]


def test_threads_share_one_copy(google: World) -> None:
    google.store.put("far", "x", DATA)
    fs = google.fs
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(fs.cat_file("x"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [DATA] * 4
    assert len(google.moves()) == 1
    assert spent() == len(DATA)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_reads_with_the_filesystem_of_its_parent(google: World) -> None:
    google.store.put("far", "x", b"before")
    google.store.put("far", "y", DATA)
    fs = google.fs
    assert fs.cat_file("x") == b"before"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if fs.cat_file("y") == DATA and fs.cat_file("x") == b"before" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert google.content("y") == DATA
