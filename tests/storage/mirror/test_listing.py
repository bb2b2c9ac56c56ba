"""All places look like one, and looking copies and charges nothing."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.storage.explain import StorageError
from support.mirror_world import World, spent


def fill(world: World) -> None:
    world.fs.pipe_file("documents/here.txt", b"1")
    world.fs.pipe_file("documents/both.txt", b"ours")
    world.store.put("far", "documents/both.txt", b"theirs!")
    world.store.put("far", "documents/sub/deep.txt", b"four")
    world.store.put("near", "documents/near.txt", b"22")


def test_the_union_of_all_places(world: World) -> None:
    fill(world)
    fs = world.fs
    before = world.at_home()
    world.store.forget_calls()
    files = ["documents/both.txt", "documents/here.txt", "documents/near.txt", "documents/sub/deep.txt"]
    assert fs.find("documents") == files
    assert fs.glob("mirror://documents/**/*.txt") == files
    assert fs.glob("documents/*.txt") == files[:3]
    assert fs.ls("documents", detail=False) == [*files[:3], "documents/sub"]
    assert {entry["name"]: entry["type"] for entry in fs.ls("documents")} == dict.fromkeys(files[:3], "file") | {
        "documents/sub": "directory"
    }
    assert fs.du("documents") == 1 + 4 + 4 + 2
    assert fs.size("documents/near.txt") == 2
    assert fs.info("documents/both.txt")["size"] == 4
    assert [fs.isdir(path) for path in ("documents", "documents/sub", "documents/near.txt", "absent")] == [1, 1, 0, 0]
    assert [fs.exists(path) for path in ("documents/sub/deep.txt", "documents/sub", "absent")] == [1, 1, 0]
    assert [(root, sorted(dirs), sorted(names)) for root, dirs, names in fs.walk("documents")] == [
        ("documents", ["sub"], ["both.txt", "here.txt", "near.txt"]),
        ("documents/sub", [], ["deep.txt"]),
    ]
    assert fs.ls("", detail=False) == ["documents"]
    assert fs.find("documents/near.txt") == ["documents/near.txt"]
    assert fs.find("absent") == []
    assert fs.modified("documents/near.txt").year >= 2026
    assert fs.ls("absent") == []
    assert world.moves() == []
    assert world.at_home() == before
    assert spent() == 0


def test_depths(google: World) -> None:
    fill(google)
    fs = google.fs
    assert "documents/sub/deep.txt" not in fs.find("documents", maxdepth=1)
    assert "documents/sub" in fs.find("documents", withdirs=True)
    assert sum(fs.du("documents", total=False).values()) == 11


def test_what_the_mirror_keeps_for_itself_is_not_listed(make_world: Callable[[str, str], World]) -> None:
    world = make_world("gs", "file")
    world.fs.pipe_file("documents/x", b"1")
    Path(world.prefix, "documents", ".marin-rules-mirror-0123-45.tmp").write_bytes(b"half")
    Path(world.prefix, ".mirror").mkdir()
    Path(world.prefix, ".mirror", "a.b.lock").write_bytes(b"{}")
    assert world.fs.find("") == ["documents/x"]
    assert world.fs.ls("", detail=False) == ["documents"]
    assert world.fs.ls("documents", detail=False) == ["documents/x"]
    with pytest.raises(ValueError, match="mirror's own"):
        world.fs.cat_file("mirror://.mirror/a.b.lock")


def test_a_source_that_denies_access(google: World, caplog: pytest.LogCaptureFixture) -> None:
    google.store.put("near", "documents/x", b"1")
    google.store.inject(403, path=r"/b/far(/|$|\?)")
    with caplog.at_level(logging.WARNING):
        assert google.fs.find("documents") == ["documents/x"]
        assert google.fs.cat_file("documents/x") == b"1"
    assert "Forbidden: b/far" in caplog.text
    with pytest.raises(StorageError, match=r"cannot say where mirror://documents/y is.*gs://far.*Forbidden"):
        google.fs.cat_file("documents/y")
    with pytest.raises(StorageError, match="Forbidden"):
        google.fs.exists("documents/y")


def test_without_a_cluster_there_is_only_the_prefix(google: World, monkeypatch: pytest.MonkeyPatch) -> None:
    google.fs.pipe_file("x", b"1")
    monkeypatch.delenv("MARIN_CLUSTER")
    assert google.fs.cat_file("x") == b"1"
    with pytest.raises(FileNotFoundError, match="MARIN_CLUSTER"):
        google.fs.cat_file("y")
