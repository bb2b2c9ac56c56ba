"""Orders carried out in the training environment, in one process that imports Levanter once.

An order is a line of JSON, `[name, settings]`, and so is each answer: what the order returned, or why it was refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from marin_rules import ThisProcess
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.shard_map import ShardSettings
from marin_rules.pipeline.count import CountConfig, count
from marin_rules.pipeline.levanter_data import levanter_data_config
from marin_rules.pipeline.tokenize import (
    ChatDatasetFormat,
    SupervisedDatasetFormat,
    TextDatasetFormat,
    TokenizeConfig,
    tokenize,
)
from marin_rules.pipeline.train_tokenizer import TrainTokenizerConfig, train_tokenizer

FORMATS = {"text": TextDatasetFormat, "chat": ChatDatasetFormat, "supervised": SupervisedDatasetFormat}


def make_tokens(**settings: Any) -> Any:
    """`tokenize`, by so many tasks, one after the other."""
    tasks, processes = settings.pop("tasks", 1), settings.pop("processes", 1)
    if "format" in settings:
        name, given = settings.pop("format")
        settings["format"] = FORMATS[name](**given)
    config = TokenizeConfig(**settings, shards=ShardSettings(processes=processes))
    answer = None
    for task in range(tasks):
        os.environ.update(ThisProcess(task=task, tasks=tasks).to_variables())
        answer = tokenize(config)
    os.environ.update(ThisProcess().to_variables())
    return answer


def read_cache(path: str, masked: bool = False) -> list[dict[str, list[int]]]:
    """All documents of a cache, as Levanter reads it."""
    import numpy
    from levanter.store.cache import TreeCache

    fields = ("input_ids", "assistant_masks") if masked else ("input_ids",)
    cache = TreeCache.load(path, {name: numpy.zeros((0,), numpy.int32) for name in fields})
    return [{name: row[name].tolist() for name in fields} for row in cache.get_batch_sync(range(len(cache)))]


def levanters_tokens(tokenizer: str, texts: list[str]) -> list[list[int]]:
    """What Levanter's own preparation of data makes of texts."""
    from levanter.data.text._batch_tokenizer import BatchTokenizer
    from levanter.tokenizers import load_tokenizer

    made = BatchTokenizer(load_tokenizer(tokenizer))([{"text": text} for text in texts])
    return [list(map(int, one["input_ids"])) for one in made]


def encoded(tokenizer: str, texts: list[str]) -> list[list[int]]:
    """What the tokenizers library makes of texts."""
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    return [one.ids for one in library.encode_batch(texts, add_special_tokens=False)]


def decoded(tokenizer: str, tokens: list[int]) -> str:
    from tokenizers import Tokenizer

    text: str = Tokenizer.from_file(f"{tokenizer}/tokenizer.json").decode(tokens, skip_special_tokens=False)
    return text


def chat_tokens(tokenizer: str, messages: list[dict[str, str]], template: str | None = None) -> Any:
    """What transformers makes of a conversation."""
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(tokenizer).apply_chat_template(
        messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True
    )
    return {"input_ids": made["input_ids"], "assistant_masks": made["assistant_masks"]}


def open_for_training(path: str) -> list[str]:
    """The components that Levanter would train from."""
    return list(levanter_data_config(path).components)


def train(**settings: Any) -> Any:
    return train_tokenizer(TrainTokenizerConfig(**settings))


def count_tokens(**settings: Any) -> Any:
    return count(CountConfig(**settings))


ORDERS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        *(train, make_tokens, count_tokens, read_cache, levanters_tokens, encoded, decoded),
        *(chat_tokens, open_for_training),
    )
}

if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What stages print is no answer.
    for line in sys.stdin:
        name, settings = json.loads(line)
        try:
            answer = {"answer": ORDERS[name](**settings)}
        except DataError as error:
            answer = {"refused": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
