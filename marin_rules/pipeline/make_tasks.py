"""Small tasks for lm-eval, made of held-out text: no network, no licence, and right for tiny models.

| task | asks | chance |
|---|---|---|
| `word_order` | which is the sentence, and which the same words in another order | 1/2 |
| `sentence_endings` | which of four endings belongs to the beginning of a sentence | 1/4 |
| `facts` | which of four words ends a sentence that everybody can end | 1/4 |
| `facts_generated` | the same, but the model writes the word | 0 |

The output is a folder for `EvalTask(name, folder=...)`: for each task `<task>.yaml` and its items in `<task>.jsonl`;
`tasks.json` says how many items there are. Which sentences become items, and how they are changed, depends on the
sentences and the seed alone, not on the division into shards.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, write_json
from marin_rules.pipeline.core.shard_map import list_shards
from marin_rules.pipeline.evaluation.facts import FACTS

TASKS = ("word_order", "sentence_endings", "facts", "facts_generated")

_SENTENCE = re.compile(r"[A-Z][^.!?\n]*[.!?](?=\s|$)")
_LEAST_WORDS, _MOST_WORDS = 8, 30
_ENDING_WORDS = 4
_WRONG_ENDINGS = 3
_LEAST_ITEMS = 10
_HELD_SENTENCES = 8
"""Sentences that are kept for each item, to choose from."""


@dataclass(frozen=True)
class MakeTasksConfig:
    """Tasks from a folder of held-out documents."""

    input_path: str | InputName
    items: int = 200
    """At most this many of a task."""

    seed: int = 0
    output_path: str = THIS_OUTPUT_PATH


def make_tasks(config: MakeTasksConfig) -> dict[str, int]:
    """Write the tasks; returns how many items each has."""
    check_tasks(config)
    sentences = chosen_sentences(config)
    made = {
        "word_order": list(word_order(sentences, config.items, config.seed)),
        "sentence_endings": list(sentence_endings(sentences, config.items, config.seed)),
        "facts": list(facts(config.seed)),
        "facts_generated": [{"query": beginning, "answer": right} for beginning, right, _ in FACTS],
    }
    for name, items in made.items():
        if len(items) < _LEAST_ITEMS:
            raise DataError(
                f"{config.input_path} has text for only {len(items)} items of {name!r}: use at least {_LEAST_ITEMS}"
                f" sentences of {_LEAST_WORDS} to {_MOST_WORDS} words"
            )
        _write(config.output_path, name, items)
    counts = {name: len(items) for name, items in made.items()}
    write_json(join(config.output_path, "tasks.json"), counts)
    return counts


def check_tasks(config: MakeTasksConfig) -> None:
    """Refuse tasks that could not show anything."""
    if config.items < _LEAST_ITEMS:
        raise DataError(f"{config.items} items of a task say nothing about a model: use at least {_LEAST_ITEMS}")


def chosen_sentences(config: MakeTasksConfig) -> list[str]:
    """Those with the lowest hashes: the same for each division of the documents, and no more than are needed."""
    kept: dict[str, str] = {}
    most = config.items * _HELD_SENTENCES
    for sentence in _sentences(str(config.input_path)):
        kept[hashlib.sha256(f"{config.seed} {sentence}".encode()).hexdigest()] = sentence
        if len(kept) > 2 * most:
            kept = dict(sorted(kept.items())[:most])
    return [sentence for _, sentence in sorted(kept.items())[:most]]


def word_order(sentences: Sequence[str], most: int, seed: int) -> Iterator[dict[str, Any]]:
    """A sentence, and the same words in another order; which of the two comes first is random."""
    for number, sentence in enumerate(sentences[:most]):
        random = Random(f"{seed} {number} {sentence}")
        words = sentence.split()
        if len(set(words)) < 2:
            continue
        mixed = words
        while mixed == words:
            mixed = random.sample(words, len(words))
        label = random.randrange(2)
        choices = [" ".join(mixed), " ".join(words)]
        yield {"query": "", "choices": choices if label else choices[::-1], "label": label}


def sentence_endings(sentences: Sequence[str], most: int, seed: int) -> Iterator[dict[str, Any]]:
    """A beginning, its own ending, and endings of as many words from other sentences."""
    endings = [" ".join(sentence.split()[-_ENDING_WORDS:]) for sentence in sentences]
    for number, sentence in enumerate(sentences[:most]):
        random = Random(f"{seed} {number} {sentence}")
        own = endings[number]
        others = sorted(set(endings) - {own})
        if len(others) < _WRONG_ENDINGS:
            return
        choices = random.sample(others, _WRONG_ENDINGS)
        label = random.randrange(_WRONG_ENDINGS + 1)
        choices.insert(label, own)
        yield {"query": " ".join(sentence.split()[:-_ENDING_WORDS]), "choices": choices, "label": label}


def facts(seed: int) -> Iterator[dict[str, Any]]:
    for beginning, right, wrong in FACTS:
        random = Random(f"{seed} {beginning}")
        choices = random.sample(wrong, len(wrong))
        label = random.randrange(len(wrong) + 1)
        choices.insert(label, right)
        yield {"query": beginning, "choices": choices, "label": label}


def _sentences(path: str) -> Iterator[str]:
    shards = list_shards(path)
    if not shards:
        raise DataError(f"no documents below {path}: tasks are made of held-out text")
    for shard in shards:
        account = Account(shard.name, lambda row: None)
        for row in shard.rows(account):
            for match in _SENTENCE.finditer(row.record["text"]):
                words = match[0].split()
                if _LEAST_WORDS <= len(words) <= _MOST_WORDS:
                    yield " ".join(words)
        if account.rejected:
            raise DataError(f"{shard.path} has bad records: {dict(account.rejected)}. Fix the documents")


def _write(folder: str, name: str, items: Sequence[dict[str, Any]]) -> None:
    import orjson

    with into_place(join(folder, f"{name}.jsonl")) as file:
        for item in items:
            file.write(orjson.dumps(item) + b"\n")
    asks = _GENERATES if "answer" in items[0] else _CHOOSES
    with into_place(join(folder, f"{name}.yaml")) as file:
        file.write(_YAML.format(name=name, asks=asks).encode())


_YAML = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {name}.jsonl
test_split: test
doc_to_text: "{{{{query}}}}"
{asks}metadata:
  version: 1.0
"""

_CHOOSES = """\
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: label
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""

_GENERATES = """\
output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs:
  until: [".", ",", "\\n"]
  max_gen_toks: 8
  do_sample: false
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
    ignore_punctuation: true
filter_list:
  - name: none
    filter:
      - function: remove_whitespace
      - function: take_first
"""
