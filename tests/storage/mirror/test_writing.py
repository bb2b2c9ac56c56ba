"""Writes go to the prefix, and no source is ever changed."""

import pytest

from support.mirror_world import World


def changes_of_sources(world: World) -> list[str]:
    return [
        f"{call.method} {call.path}"
        for call in world.store.calls()
        if call.method != "GET" and call.method != "HEAD" and call.place.startswith(("far", "near"))
        if "rewriteTo" not in call.path
    ]


def test_everything_that_writes(world: World) -> None:
    fs = world.fs
    with fs.open("mirror://new/a.txt", "wt") as file:
        file.write("a")
    fs.pipe({"new/b.txt": b"b", "new/c.txt": b"c"})
    (world.folder / "d").write_bytes(b"d")
    fs.put(str(world.folder / "d"), "new/d.txt")
    fs.makedirs("new/empty", exist_ok=True)
    fs.cp("new/a.txt", "new/e.txt")
    fs.mv("new/b.txt", "new/f.txt")
    fs.touch("new/g.txt")
    assert world.at_home() == [f"new/{name}.txt" for name in "acdefg"]
    assert fs.cat_file("new/f.txt") == b"b"
    fs.rm("new/a.txt")
    fs.rm("new", recursive=True)
    assert world.at_home() == []
    assert changes_of_sources(world) == []


def test_only_the_copy_here_is_removed(google: World) -> None:
    google.store.put("far", "x", b"theirs")
    with pytest.raises(FileNotFoundError, match="what other regions have stays there"):
        google.fs.rm("x")
    assert google.fs.cat_file("x") == b"theirs"
    google.fs.rm("x")
    assert google.content("x") is None
    assert google.store.get("far", "x") == b"theirs"
    assert google.fs.exists("x")
    with pytest.raises(ValueError, match="names no file"):
        google.fs.rm("mirror://", recursive=True)
    assert changes_of_sources(google) == []


def test_copies_and_moves_from_another_region_stay_here(google: World) -> None:
    google.store.put("far", "tree/x", b"theirs")
    google.fs.mv("tree/x", "mine/x")
    assert google.at_home() == ["mine/x"]
    assert google.store.get("far", "tree/x") == b"theirs"


def test_a_write_hides_what_others_have(google: World) -> None:
    google.store.put("far", "x", b"theirs")
    google.fs.pipe_file("x", b"ours")
    assert google.fs.cat_file("x") == b"ours"
    assert google.store.get("far", "x") == b"theirs"
