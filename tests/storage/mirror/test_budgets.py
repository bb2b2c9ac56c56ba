"""What a copy may cost is decided before its first byte moves."""

from collections.abc import Callable

import fsspec
import pytest

from marin_rules.storage import regions
from marin_rules.storage.budget import BudgetError, mirror_budget, remaining
from marin_rules.storage.guard import install_guard
from marin_rules.storage.mirror import places
from support.mirror_world import GB, World, spent

SIZE = 3_000_000
DATA = b"x" * SIZE


def test_too_little_is_refused_before_the_first_byte(world: World) -> None:
    world.store.put("far", "documents/x", DATA)
    with mirror_budget(SIZE / 2 / GB), pytest.raises(BudgetError) as caught:
        world.fs.cat_file("mirror://documents/x")
    message = str(caught.value)
    assert f"{world.scheme}://far/documents/x" in message
    assert "2.86 MB" in message
    assert ("europe-west4" if world.scheme == "gs" else "eu-west-1") in message
    assert "MARIN_MIRROR_BUDGET_GB" in message
    assert world.moves() == []
    assert world.at_home() == []


def test_the_message_tells_both_regions_and_the_price(make_world: Callable[[str, str], World]) -> None:
    world = make_world("gs", "gs")
    world.store.put("far", "documents/x", DATA)
    with mirror_budget(0), pytest.raises(BudgetError, match=r"from europe-west4 to us-central1.*\$0.01"):
        world.fs.cat_file("mirror://documents/x")


def test_exactly_enough_is_enough_once(google: World) -> None:
    google.store.put("far", "a", DATA)
    google.store.put("far", "b", b"1")
    with mirror_budget(SIZE / GB):
        google.fs.cat_file("a")
        assert remaining() == 0
        google.fs.cat_file("a")
        with pytest.raises(BudgetError):
            google.fs.cat_file("b")


def test_a_tree_is_refused_as_a_whole(google: World) -> None:
    for number in range(5):
        google.store.put("far", f"tree/{number}", b"x" * 1000)
    with mirror_budget(4000 / GB), pytest.raises(BudgetError, match="5 files of gs://far/tree"):
        google.fs.prefetch("tree")
    assert google.moves() == []
    assert google.at_home() == []


def test_the_budget_counts_in_the_threads_of_a_bulk(google: World) -> None:
    for number in range(6):
        google.store.put("far", f"tree/{number}/x", b"x" * 1000)
    with mirror_budget(1):
        google.fs.prefetch("tree")
        assert remaining() == GB - 6000
    assert spent() == 0


def test_inside_a_region_nothing_is_charged(
    make_world: Callable[[str, str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    google = make_world("gs", "gs")
    google.store.put("bucket", "x", DATA)
    # The same bucket is a source of a prefix deeper in it.
    monkeypatch.setenv("MARIN_PREFIX", "gs://bucket/users/me")
    with mirror_budget(0):
        assert google.fs.cat_file("x") == DATA
    assert google.at_home() == ["users/me/x", "x"]


def test_with_the_guard_a_copy_is_charged_once(
    make_world: Callable[[str, str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world("gs", "file")
    for module in (places, regions):
        monkeypatch.setattr(module, "region_of_this_machine", lambda cluster: "us-central1")
    install_guard()
    world.store.put("far", "x", DATA)
    assert world.fs.cat_file("x") == DATA
    assert spent() == SIZE
    # The guard is on: the same without the mirror is charged, too.
    assert fsspec.filesystem("gs").cat_file("gs://far/x") == DATA
    assert spent() == 2 * SIZE
