"""The driver of stages: what is done, what is not done again, what is refused, and that the counts add up."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import zstandard

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, list_shards, map_shards

SHARDS = {
    "data-00000-of-00003.jsonl": [{"id": "a", "text": "ONE"}, {"id": "b", "text": ""}, "{cut"],
    "data-00001-of-00003.jsonl": [{"id": "c", "text": "TWO"}],
    "more/data.jsonl": [{"id": "d", "text": "THREE"}, {"id": "e"}],
}
SUMMARY = {
    "read": 6,
    "written": 3,
    "bytes_read": sum(
        len(line if isinstance(line, str) else json.dumps(line)) for lines in SHARDS.values() for line in lines
    ),
    "rejected": {"no text": 1, "not JSON": 1},
    "dropped": {"empty": 1},
    "tallies": {"characters": 11},
    "shards": {
        "data-00000-of-00003.jsonl": {"read": 3, "written": 1},
        "data-00001-of-00003.jsonl": {"read": 1, "written": 1},
        "more/data.jsonl": {"read": 2, "written": 1},
    },
}


def lower(shard: Shard, account: Account) -> Iterator[Any]:
    for row in shard.rows(account):
        if not row.record["text"]:
            account.drop("empty")
            continue
        account.tallies["characters"] += len(row.record["text"])
        yield {**row.record, "text": row.record["text"].lower()}


def test_every_record_is_written_rejected_or_dropped(corpus: Any) -> None:
    counts = map_shards(lower, corpus.write("in", SHARDS), corpus.path("out"), output_format=".jsonl.zst")
    assert corpus.read("out") == {
        "data-00000-of-00003.jsonl.zst": [{"id": "a", "text": "one"}],
        "data-00001-of-00003.jsonl.zst": [{"id": "c", "text": "two"}],
        "more/data.jsonl.zst": [{"id": "d", "text": "three"}],
    }
    assert corpus.summary("out") == SUMMARY
    assert counts == {name: value for name, value in SUMMARY.items() if name != "shards"}
    assert [(row["shard"], row["number"], row["reason"], row.get("id")) for row in corpus.rejects("out")] == [
        ("data-00000-of-00003.jsonl", 3, "not JSON", None),
        ("more/data.jsonl", 2, "no text", "e"),
    ]


@pytest.mark.parametrize("tasks", [2, 5])
def test_the_bytes_do_not_depend_on_the_number_or_order_of_tasks(tasks: int, corpus: Any, as_task: Any) -> None:
    given = corpus.write("in", SHARDS)
    map_shards(lower, given, corpus.path("whole"))
    for task in reversed(range(tasks)):
        assert not os.path.exists(corpus.path("parts/summary.json"))
        as_task(task, tasks)
        map_shards(lower, given, corpus.path("parts"))
    assert corpus.bytes_of("parts") == corpus.bytes_of("whole")


@pytest.mark.processes
def test_the_bytes_do_not_depend_on_processes(corpus: Any) -> None:
    given = corpus.write("in", SHARDS)
    map_shards(lower, given, corpus.path("one"))
    map_shards(lower, given, corpus.path("two"), settings=ShardSettings(processes=2))
    assert corpus.bytes_of("two") == corpus.bytes_of("one")


@pytest.mark.processes
def test_a_process_that_dies_fails_its_shard_alone(corpus: Any) -> None:
    given = corpus.write("in", SHARDS)

    def dies(shard: Shard, account: Account) -> Iterator[Any]:
        if shard.name == "more/data.jsonl":
            os.kill(os.getpid(), signal.SIGKILL)
        yield from lower(shard, account)

    told = r"1 of 3 shards failed, and the others are done: more/data.jsonl: its process ended with -9 \(killed"
    with pytest.raises(DataError, match=told):
        map_shards(dies, given, corpus.path("out"), settings=ShardSettings(processes=2))
    assert sorted(corpus.read("out")) == ["data-00000-of-00003.jsonl", "data-00001-of-00003.jsonl"]


@pytest.mark.processes
def test_processes_end_with_a_task_that_is_killed(corpus: Any) -> None:
    """Else they would go on writing, when the next attempt has begun the same shards again."""

    def forever(shard: Shard, account: Account) -> Iterator[Any]:
        Path(corpus.path(f"pid-{os.getpid()}")).touch()
        signal.pause()
        yield from ()

    given = corpus.write("in", SHARDS)
    task = os.fork()
    if not task:
        map_shards(forever, given, corpus.path("out"), settings=ShardSettings(processes=2))
    try:
        wait_until(lambda: len(list(corpus.folder.glob("pid-*"))) == 2)
    finally:
        os.kill(task, signal.SIGKILL)
        os.waitpid(task, 0)
    pids = [int(path.name.removeprefix("pid-")) for path in corpus.folder.glob("pid-*")]
    try:
        wait_until(lambda: not any(map(is_alive, pids)))
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_after_a_failure_only_what_is_left_is_done(corpus: Any) -> None:
    given = corpus.write("in", SHARDS)
    tried: list[str] = []
    broken = ["data-00001-of-00003.jsonl"]

    def stage(shard: Shard, account: Account) -> Iterator[Any]:
        tried.append(shard.name)
        yield from lower(shard, account)
        if shard.name in broken:
            raise OSError("no space left on device")

    with pytest.raises(DataError, match=r"1 of 3 shards failed.*data-00001-of-00003.jsonl: OSError: no space left"):
        map_shards(stage, given, corpus.path("out"))
    assert tried == sorted(SHARDS)
    assert not os.path.exists(corpus.path("out/summary.json"))
    assert not [name for name in corpus.bytes_of("out") if name.endswith(".part")]

    broken.clear()
    tried.clear()
    map_shards(stage, given, corpus.path("out"))
    assert tried == ["data-00001-of-00003.jsonl"]
    assert corpus.summary("out") == SUMMARY


@pytest.mark.processes
@pytest.mark.parametrize("processes", [1, 2])
def test_on_a_full_disk_no_more_shards_are_tried_and_what_is_done_stays_done(processes: int, corpus: Any) -> None:
    full = Path(corpus.path("full"))
    shards = {f"{n:02}.jsonl": [{"id": "a", "text": "X"}] for n in range(20)}

    def until_full(shard: Shard, account: Account) -> Iterator[Any]:
        if full.exists() and int(shard.name[:2]) > 3:
            Path(corpus.path(f"tried-{shard.name}")).touch()
            raise OSError(errno.ENOSPC, "No space left on device")
        yield from lower(shard, account)

    full.touch()
    settings = ShardSettings(processes=processes)
    told = (
        r"1 of 20 shards failed, 1[56] were not finished, and the others are done: 0[45].jsonl: there is no space left"
    )
    with pytest.raises(DataError, match=told):
        map_shards(until_full, corpus.write("in", shards), corpus.path("out"), settings=settings)
    assert len(list(corpus.folder.glob("tried-*"))) <= processes
    # Not what a process left unfinished that was ended with the others: its name begins with a dot.
    done = {name: data for name, data in corpus.bytes_of("out").items() if "00" <= name < "04"}
    assert done
    full.unlink()
    assert map_shards(until_full, corpus.path("in"), corpus.path("out"), settings=settings)["written"] == 20
    assert {name: corpus.bytes_of("out")[name] for name in done} == done


@pytest.mark.parametrize("harm", ["counts are cut", "shard is cut", "shard is gone", "input has changed"])
def test_what_is_not_as_it_was_counted_is_done_again(harm: str, corpus: Any) -> None:
    given, name = corpus.write("in", SHARDS), "more/data.jsonl"
    map_shards(lower, given, corpus.path("out"))
    before = corpus.bytes_of("out")
    shard, counts = Path(corpus.path("out"), name), Path(corpus.path("out"), f"counts/{name}.json")
    left = shard.with_name(f".{shard.name}.01234567.part")
    left.write_text("of an attempt that was killed")
    if harm == "counts are cut":
        counts.write_bytes(counts.read_bytes()[:30])
    elif harm == "shard is cut":
        shard.write_bytes(b"")
    elif harm == "shard is gone":
        shard.unlink()
    else:
        corpus.write("in", {name: [*SHARDS[name], {"id": "f", "text": "FOUR"}]})
    map_shards(lower, given, corpus.path("out"))
    assert not left.exists()
    if harm == "input has changed":
        assert corpus.summary("out")["written"] == 4
    else:
        assert corpus.bytes_of("out") == before


def test_a_stage_that_could_read_nothing_fails(corpus: Any) -> None:
    """Data with other names of fields, say, or in another encoding: an empty corpus is no success."""
    given = corpus.write("in", {"a.jsonl": [{"id": 1, "text": "x"}, {"id": 2, "text": "y"}], "b.jsonl": ["{cut"]})
    for _ in range(2):
        with pytest.raises(DataError, match=r"all 3 records .* \(id is not text: 2, not JSON: 1\): see .*out/rejects"):
            map_shards(lower, given, corpus.path("out"))
        assert len(corpus.rejects("out")) == 3
    corpus.write("in", {"b.jsonl": [{"id": "a", "text": "MENDED"}]})
    assert map_shards(lower, given, corpus.path("out"))["written"] == 1


def test_a_stage_that_loses_a_record_fails(corpus: Any) -> None:
    def loses(shard: Shard, account: Account) -> Iterator[Any]:
        yield from list(lower(shard, account))[1:]

    with pytest.raises(DataError, match="1 records were read, but 0 written, 0 rejected and 0 dropped"):
        map_shards(loses, corpus.write("in", {"a.jsonl": [{"id": "a", "text": "b"}]}), corpus.path("out"))


def test_damaged_shards_fail_by_name_or_give_what_is_readable(corpus: Any) -> None:
    given = corpus.write("in", SHARDS)
    lines = [json.dumps({"id": str(n), "text": os.urandom(500).hex()}) for n in range(200)]
    Path(given, "cut.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode())[:-50_000])
    with pytest.raises(DataError, match=r"1 of 4 shards failed.*cut\.jsonl\.gz is cut"):
        map_shards(lower, given, corpus.path("out"))
    map_shards(lower, given, corpus.path("out"), damaged_shards="keep_what_is_readable")
    summary = corpus.summary("out")
    assert summary["tallies"]["damaged shards"] == 1
    assert 10 < summary["shards"]["cut.jsonl.gz"]["written"] < 200


@pytest.mark.parametrize(
    ("shards", "told"),
    [
        ({}, "no shards below"),
        (
            {"notes.txt": ["x"]},
            r"no shards below .*: looked for .jsonl, .* read_dump makes shards of text and HTML files",
        ),
        ({"a.jsonl": [], "b.jsonl": []}, "2 shards below .* but no records in any"),
        (
            {"a.jsonl": [{"id": "a", "text": "b"}], "a.jsonl.gz": []},
            r"both a.jsonl and a.jsonl.gz.* both be a.jsonl.zst",
        ),
    ],
)
def test_a_corpus_that_is_refused(shards: Any, told: str, corpus: Any) -> None:
    with pytest.raises(DataError, match=told):
        map_shards(lower, corpus.write("in", shards), corpus.path("out"), output_format=".jsonl.zst")


def test_what_was_made_of_shards_that_are_gone_is_removed(corpus: Any) -> None:
    """A later stage would take them for part of the data, though nobody has counted them."""
    given, broken = corpus.write("in", SHARDS), ["more/data.jsonl"]

    def stage(shard: Shard, account: Account) -> Iterator[Any]:
        yield from lower(shard, account)
        if shard.name in broken:
            raise OSError("broken")

    with pytest.raises(DataError, match="1 of 3 shards failed"):
        map_shards(stage, given, corpus.path("out"), output_format=".jsonl.zst")
    broken.clear()
    Path(given, "data-00000-of-00003.jsonl").unlink()
    Path(given, "data-00001-of-00003.jsonl").rename(Path(given, "data-00001-of-00003.jsonl.zst"))
    Path(given, "data-00001-of-00003.jsonl.zst").write_bytes(zstandard.compress(b'{"id": "c", "text": "TWO"}\n'))
    map_shards(stage, given, corpus.path("out"), output_format=".jsonl.zst")
    expected = {"data-00001-of-00003.jsonl.zst", "more/data.jsonl.zst"}
    assert set(corpus.read("out")) == expected
    counted = {"counts/data-00001-of-00003.jsonl.zst.json", "counts/more/data.jsonl.json"}
    assert set(corpus.bytes_of("out")) == {*expected, *counted, "summary.json", "rejects/more/data.jsonl.jsonl"}


def test_rejects_are_those_of_the_last_attempt(corpus: Any) -> None:
    given = corpus.write("in", SHARDS)
    map_shards(lower, given, corpus.path("out"))
    assert len(corpus.rejects("out")) == 2
    corpus.write("in", {"data-00000-of-00003.jsonl": [{"id": "a", "text": "MENDED"}]})
    map_shards(lower, given, corpus.path("out"))
    assert [reject["shard"] for reject in corpus.rejects("out")] == ["more/data.jsonl"]


def test_a_finished_step_is_done_again_once_by_each_task(corpus: Any, as_task: Any) -> None:
    """Its input may be another by now, with files of the same size."""
    given, again = corpus.write("in", SHARDS), Path(corpus.path("out/.executor_again"))
    tried: list[str] = []
    killed_at = ["more/data.jsonl"]

    def stage(shard: Shard, account: Account) -> Iterator[Any]:
        tried.append(shard.name)
        if shard.name in killed_at:
            raise KeyboardInterrupt
        yield from lower(shard, account)

    def run() -> list[str]:
        tried.clear()
        for task in range(2):
            as_task(task, 2)
            with contextlib.suppress(KeyboardInterrupt):
                map_shards(stage, given, corpus.path("out"))
        return sorted(tried)

    killed_at.clear()
    assert run() == sorted(SHARDS)
    before = corpus.bytes_of("out")
    assert run() == [], "an attempt that was killed at its very end"
    again.write_text('{"id": "first", "after_done": "first"}')
    killed_at.append("more/data.jsonl")
    assert run() == sorted(SHARDS)
    killed_at.clear()
    assert run() == ["more/data.jsonl"], "an attempt after a kill goes on"
    assert {name: data for name, data in corpus.bytes_of("out").items() if not name.startswith(".")} == before
    again.write_text('{"id": "second", "after_done": "first"}')
    assert run() == sorted(SHARDS), "the step is begun anew once more"


@pytest.mark.parametrize("place", ["file://{}/a.jsonl", "{}/a.jsonl", "{}/*.jsonl"])
def test_a_path_that_is_no_folder_is_refused(place: str, corpus: Any) -> None:
    given = corpus.write("in", {"a.jsonl": [{"id": "a", "text": "b"}]})
    with pytest.raises(DataError, match="no shards below"):
        map_shards(lower, place.format(given), corpus.path("out"))


def test_a_link_to_a_folder_is_refused(corpus: Any) -> None:
    """What is behind it would be missing unnoticed. One to a file is read, and hidden ones are nobody's data."""
    given, elsewhere = Path(corpus.write("in", SHARDS)), Path(corpus.write("elsewhere", SHARDS))
    (given / "link.jsonl").symlink_to(elsewhere / "more/data.jsonl")
    (given / ".hidden").symlink_to(elsewhere)
    assert [shard.name for shard in list_shards(str(given))] == sorted([*SHARDS, "link.jsonl"])
    (given / "more" / "folder").symlink_to(elsewhere)
    with pytest.raises(DataError, match=r"in/more/folder is a link to a folder, which is not followed"):
        map_shards(lower, str(given), corpus.path("out"))


def test_a_shard_whose_name_is_not_utf8_is_refused(corpus: Any) -> None:
    given = corpus.write("in", SHARDS)
    Path(os.fsdecode(os.fsencode(given) + b"/caf\xe9.jsonl")).write_text("")
    with pytest.raises(DataError, match=r"below .*/in is a file whose name is not UTF-8, 'caf\\udce9\.jsonl': rename"):
        map_shards(lower, given, corpus.path("out"))


def test_what_is_unfinished_of_a_file_with_a_longer_name_is_left_alone(corpus: Any) -> None:
    """`a.jsonl` and `a.jsonl.gz` are written at the same time, if a stage keeps their formats."""
    given = corpus.write("in", {"a.jsonl": [{"id": "a", "text": "b"}]})
    other = Path(corpus.path("out"), ".a.jsonl.gz.01234567.part")
    other.parent.mkdir()
    other.write_text("of a process that is at it")
    map_shards(lower, given, corpus.path("out"))
    assert other.exists()


def test_shards_in_a_store(corpus: Any) -> None:
    map_shards(lower, corpus.write("in", SHARDS), corpus.path("here"))
    store = fsspec.filesystem("memory")
    store.put(corpus.path("in") + "/", "/shards/in", recursive=True)
    map_shards(lower, "memory://shards/in", "memory://shards/out")
    there = {path.removeprefix("/shards/out/"): store.cat(path) for path in store.find("/shards/out")}
    store.rm("/shards", recursive=True)
    assert there == corpus.bytes_of("here")
