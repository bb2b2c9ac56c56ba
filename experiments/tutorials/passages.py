"""Books as documents: text files cut into passages of a few hundred words, some of them held out.

    <output>/texts/part-00003-of-00008.jsonl      the passages of a corpus
    <output>/held_out/part-00003-of-00008.jsonl   passages that a model is to be tested with

A hash of a passage's id decides where it goes, so neighbours are not kept together. Passages end where sentences do.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, open_to_read, sizes_below
from marin_rules.pipeline.core.fingerprints import digest

_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|\Z)\s*", re.DOTALL)


@dataclass(frozen=True)
class PassagesConfig:
    """Passages of the `.txt` files below each of `books`, by name."""

    books: Mapping[str, str | InputName]
    words: int = 300
    """A passage ends with the sentence in which it reaches this many words."""

    held_out: float = 0.02
    """The share of passages that are held out, of those that are not shorter than the others."""

    shards: int = 8
    output_path: str = THIS_OUTPUT_PATH


def cut_passages(config: PassagesConfig) -> dict[str, int]:
    """Write all passages; returns how many of each kind there are."""
    lines: dict[str, list[str]] = {}
    kinds = {"texts": 0, "held_out": 0}
    for name, folder in config.books.items():
        files = [file for file in sizes_below(str(folder)) if file.endswith(".txt")]
        if not files:
            raise DataError(f"{name}: there are no .txt files below {folder}")
        for file in files:
            with open_to_read(join(str(folder), file)) as opened:
                text = opened.read().decode("utf-8", errors="replace")
            for number, passage in enumerate(passages_of(text, config.words)):
                document = {"id": f"{name}/{file}/{number}", "text": passage, "source": name}
                chance = int.from_bytes(digest(document["id"])[:8], "big")
                is_whole = len(passage.split()) >= config.words
                kind = "held_out" if is_whole and chance < config.held_out * 2**64 else "texts"
                shard = f"part-{chance % config.shards:05}-of-{config.shards:05}.jsonl"
                lines.setdefault(f"{kind}/{shard}", []).append(json.dumps(document))
                kinds[kind] += 1
    for shard, documents in lines.items():
        with into_place(join(config.output_path, shard)) as target:
            target.write("".join(f"{line}\n" for line in documents).encode())
    return kinds


def passages_of(text: str, words: int) -> Iterator[str]:
    """All sentences of a text, grouped until they have this many words; the last group may have fewer."""
    begun: list[str] = []
    length = 0
    for sentence in _SENTENCE.findall(text.replace("\r\n", "\n")):
        begun.append(sentence)
        length += len(sentence.split())
        if length >= words:
            yield "".join(begun).strip()
            begun, length = [], 0
    if "".join(begun).strip():
        yield "".join(begun).strip()
