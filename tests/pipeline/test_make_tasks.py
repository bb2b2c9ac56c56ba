"""Tasks made of held-out text: right answers that are right, wrong ones that are wrong, and no pattern in between."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.make_tasks import TASKS, MakeTasksConfig, make_tasks

SENTENCES = [
    f"In the year {number} the people of town {number * 7} built bridge number {number * 3} over their river."
    for number in range(400)
]
DOCUMENTS = [
    {"id": str(number), "text": f"Short one. {SENTENCES[2 * number]} and\n{SENTENCES[2 * number + 1]}"}
    for number in range(200)
]


def made(corpus: Any, shards: int = 1, **changes: Any) -> dict[str, list[Any]]:
    given = corpus.write(f"in-{shards}", {f"{number}.jsonl": DOCUMENTS[number::shards] for number in range(shards)})
    out = Path(corpus.path(f"out-{shards}-{changes}"))
    counts = make_tasks(MakeTasksConfig(given, output_path=str(out), **changes))
    items = {name: [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()] for name in TASKS}
    assert (
        counts
        == {name: len(of_task) for name, of_task in items.items()}
        == json.loads((out / "tasks.json").read_text())
    )
    return items


def test_word_order_hides_a_real_sentence_beside_the_same_words(corpus: Any) -> None:
    items = made(corpus)["word_order"]
    assert len(items) == 200
    for item in items:
        right, wrong = item["choices"][item["label"]], item["choices"][1 - item["label"]]
        assert right in SENTENCES
        assert wrong not in SENTENCES
        assert sorted(right.split()) == sorted(wrong.split())
    assert 70 < sum(item["label"] for item in items) < 130, "the right answer stands anywhere"


def test_sentence_endings_have_one_that_belongs(corpus: Any) -> None:
    items = made(corpus)["sentence_endings"]
    for item in items:
        whole = [f"{item['query']} {choice}" in SENTENCES for choice in item["choices"]]
        assert whole == [place == item["label"] for place in range(4)]
    assert all(count > 25 for count in Counter(item["label"] for item in items).values())


def test_the_division_into_shards_changes_nothing_and_the_seed_does(corpus: Any) -> None:
    assert made(corpus, 3) == made(corpus, 1)
    assert made(corpus, 1, seed=5)["word_order"] != made(corpus, 1)["word_order"]


def test_facts_have_four_answers_of_which_one_is_right(corpus: Any) -> None:
    items = made(corpus, items=20)
    assert len(items["word_order"]) == 20
    answers = {item["query"]: item["answer"] for item in items["facts_generated"]}
    for item in items["facts"]:
        assert len(set(item["choices"])) == 4
        assert item["choices"][item["label"]] == answers[item["query"]]


def test_the_yaml_names_its_own_data(corpus: Any) -> None:
    made(corpus)
    for name in TASKS:
        task = yaml.safe_load(Path(corpus.path("out-1-{}"), f"{name}.yaml").read_text())
        assert task["task"] == name
        assert task["dataset_kwargs"]["data_files"] == {"test": f"{name}.jsonl"}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"id": "1", "text": "Too short."}], "text for only 0 items of 'word_order'"),
        ([{"id": "1", "text": SENTENCES[0]}, "{cut"], "bad records"),
    ],
)
def test_text_that_is_not_enough_or_bad_is_refused(records: list[Any], message: str, corpus: Any) -> None:
    given = corpus.write("in", {"a.jsonl": records})
    with pytest.raises(DataError, match=message):
        make_tasks(MakeTasksConfig(given, output_path=corpus.path("out")))
