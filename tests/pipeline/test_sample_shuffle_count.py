"""Stages that change no document: which ones they keep, in what order, and how many there are."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.consolidate import Condition, ConsolidateConfig, consolidate
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.count import CountConfig, count, left_out
from marin_rules.pipeline.sample import SampleConfig, sample
from marin_rules.pipeline.shuffle import GatherConfig, ScatterConfig, gather, scatter

DOCUMENTS = [{"id": f"{number:03}", "text": f"text {number}"} for number in range(300)]


def divided(documents: list[Any], shards: int) -> dict[str, list[Any]]:
    return {f"{number}.jsonl": documents[number::shards] for number in range(shards)}


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_a_sample_is_the_same_for_all_divisions(fraction: float, corpus: Any) -> None:
    chosen = []
    for shards in (1, 4):
        given = corpus.write(f"in-{shards}", divided(DOCUMENTS, shards))
        sample(SampleConfig(given, fraction, seed=5, output_path=corpus.path(f"out-{shards}")))
        chosen.append(sorted(record["id"] for record in corpus.records(f"out-{shards}")))
    assert chosen[0] == chosen[1]
    assert abs(len(chosen[0]) - 300 * fraction) <= 30
    summary = corpus.summary("out-4")
    assert summary["written"] + summary["dropped"].get("not in the sample", 0) == 300


def test_samples_grow_and_seeds_differ(corpus: Any) -> None:
    given = corpus.write("in", divided(DOCUMENTS, 1))
    chosen = {}
    for fraction, seed in ((0.2, 1), (0.4, 1), (0.4, 2)):
        sample(SampleConfig(given, fraction, seed, output_path=corpus.path(f"out-{fraction}-{seed}")))
        chosen[fraction, seed] = {record["id"] for record in corpus.records(f"out-{fraction}-{seed}")}
    assert chosen[0.2, 1] < chosen[0.4, 1] != chosen[0.4, 2]
    with pytest.raises(DataError, match=r"fraction of 1.5 cannot"):
        sample(SampleConfig(given, 1.5, output_path=corpus.path("out")))


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_a_sample_and_its_rest_are_all_documents_each_once(fraction: float, corpus: Any) -> None:
    given = corpus.write("in", divided(DOCUMENTS, 3))
    sample(SampleConfig(given, fraction, seed=2, output_path=corpus.path("sample")))
    sample(SampleConfig(given, fraction, seed=2, rest=True, output_path=corpus.path("rest")))
    both = corpus.records("sample") + corpus.records("rest")
    assert sorted(both, key=lambda record: record["id"]) == DOCUMENTS
    chosen, left = corpus.summary("sample"), corpus.summary("rest")
    assert left["dropped"].get("in the sample", 0) == chosen["written"]
    assert chosen["dropped"].get("not in the sample", 0) == left["written"]


def shuffled(corpus: Any, documents: list[Any], shards: int, name: str, seed: int = 1) -> dict[str, bytes]:
    given = corpus.write(f"{name}-in", divided(documents, shards))
    scatter(ScatterConfig(given, 4, seed, output_path=corpus.path(f"{name}-scattered")))
    gather(GatherConfig(corpus.path(f"{name}-scattered"), 4, output_path=corpus.path(f"{name}-out")))
    return dict(corpus.bytes_of(f"{name}-out"))


def test_a_shuffle_keeps_all_documents_in_an_order_of_its_own(corpus: Any) -> None:
    shuffled(corpus, DOCUMENTS, 3, "a")
    records = corpus.records("a-out")
    assert records != DOCUMENTS
    assert sorted(records, key=lambda record: record["id"]) == DOCUMENTS
    out = corpus.read("a-out")
    assert sorted(out) == [f"data-0000{number}-of-00004.jsonl.zst" for number in range(4)]
    assert all(50 < len(shard) < 100 for shard in out.values())
    numbers = [int(record["id"]) for record in records]
    rising = sum(one < other for one, other in pairwise(numbers))
    assert 120 < rising < 180, "half of the neighbours are in their old order"


def test_the_order_depends_on_the_seed_and_on_no_division(corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = shuffled(corpus, DOCUMENTS, 3, "a")
    monkeypatch.setattr("marin_rules.pipeline.shuffle._HELD_BYTES", 500)
    assert shuffled(corpus, random.Random(3).sample(DOCUMENTS, 300), 7, "b") == one
    assert shuffled(corpus, DOCUMENTS, 3, "c", seed=2) != one


def test_a_shuffle_of_a_sample_with_the_same_seed_fills_all_shards(corpus: Any) -> None:
    given = corpus.write("in", divided(DOCUMENTS, 2))
    sample(SampleConfig(given, 0.5, seed=1, output_path=corpus.path("sample")))
    chosen = corpus.records("sample")
    shuffled(corpus, chosen, 2, "a", seed=1)
    sizes = [len(shard) for shard in corpus.read("a-out").values()]
    assert sum(sizes) == len(chosen)
    assert all(len(chosen) / 8 < size < len(chosen) / 2 for size in sizes), "four shards of about the same size"


def test_a_shard_that_is_gone_is_not_shuffled(corpus: Any) -> None:
    """What an earlier attempt has scattered of it is no document of the corpus."""
    shuffled(corpus, DOCUMENTS, 3, "a")
    Path(corpus.path("a-in/1.jsonl")).unlink()
    scatter(ScatterConfig(corpus.path("a-in"), 4, 1, output_path=corpus.path("a-scattered")))
    gather(GatherConfig(corpus.path("a-scattered"), 4, output_path=corpus.path("again")))
    there = [document for shard in (0, 2) for document in DOCUMENTS[shard::3]]
    assert sorted(record["id"] for record in corpus.records("again")) == sorted(one["id"] for one in there)


def test_damaged_pieces_are_named(corpus: Any) -> None:
    shuffled(corpus, DOCUMENTS, 3, "a")
    pieces = Path(corpus.path("a-scattered/1.jsonl.pieces"))
    pieces.write_bytes(pieces.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"shards failed.*data-00003-of-00004"):
        gather(GatherConfig(corpus.path("a-scattered"), 4, output_path=corpus.path("other")))
    with pytest.raises(DataError, match="was scattered to 4 shards, not to 5"):
        gather(GatherConfig(corpus.path("a-scattered"), 5, output_path=corpus.path("five")))
    with pytest.raises(DataError, match="nothing was scattered"):
        gather(GatherConfig(corpus.path("nothing"), 4, output_path=corpus.path("none")))


def test_counts(corpus: Any) -> None:
    documents = [{"id": "a", "text": "Zoë is here", "source": "s"}, {"id": "b", "text": " "}, "{cut"]
    count(CountConfig(corpus.write("in", {"a.jsonl": documents}), output_path=corpus.path("out")))
    summary = corpus.summary("out")
    assert summary["tallies"] == {
        **{"documents": 2, "characters": 12, "bytes": 13, "words": 3, "empty": 1},
        **{"documents from s": 1, "characters from s": 11, "bytes from s": 12, "words from s": 3, "empty from s": 0},
    }
    assert summary["rejected"] == {"not JSON": 1}
    assert corpus.read("out") == {}


def test_counts_of_what_a_filter_left_out(corpus: Any) -> None:
    """Ids of any kind are found again, and a filter over other documents is not taken for one over these."""
    odd = ['a "quoted", id', "two\nlines", "x" * 200_000, "null \0", "\u2028"]
    documents = [{"id": id, "text": "drop this"} for id in odd] + [{"id": "kept", "text": "kept"}]
    given = corpus.write("in", {"a.jsonl": documents, "b.jsonl": [{"id": "long", "text": "far too long a text"}]})
    short, this = Condition("len(text) < 10"), Condition("text != 'drop this'")
    consolidate(ConsolidateConfig(given, [short, this], output_path=corpus.path("filtered")))
    count(CountConfig(given, filtered_path=corpus.path("filtered"), output_path=corpus.path("out")))
    tallies = corpus.summary("out")["tallies"]
    assert tallies["documents"] == 7
    assert left_out(tallies, "documents") == {"not: len(text) < 10": 1, "not: text != 'drop this'": 5}
    assert left_out(tallies, "bytes") == {"not: len(text) < 10": 19, "not: text != 'drop this'": 45}
    assert sorted(corpus.read("filtered")) == ["a.jsonl.zst", "b.jsonl.zst"], "what was left out is no shard"

    other = corpus.write("other", {"a.jsonl": documents[1:]})
    with pytest.raises(DataError, match=r"has left out documents that .*a.jsonl does not have, such as 'a .quoted"):
        count(CountConfig(other, filtered_path=corpus.path("filtered"), output_path=corpus.path("wrong")))
