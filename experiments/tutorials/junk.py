"""A corpus with known faults, made from good documents: what the data stages find can be counted against the truth.

Each good document stays, unless it is chosen to hold an item of an evaluation set. Randomly added are a page of
navigation, a page of a template, its words in another order, an exact copy, and a copy with a few other words. The
`metadata` of a record says what it is (`truth`) and which document it was made from (`made_of`). Choices depend on the
seed and on ids alone, so the records are the same however documents are divided into shards.

Documents have a field `text`, or are pages with a field `html`. A page that declares a language other than English
(`<html lang="de">`) has that as its truth, and nothing is made from it.
"""

import html
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.records import Record, document_fault, identified_fault
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, list_shards, map_shards

GOOD, CONTAMINATED, OTHER_LANGUAGE = "good", "contaminated", "other_language"
LOW_QUALITY = ("navigation", "template", "shuffled")
COPIES = ("exact_copy", "near_copy")

_WORDS_A_CHANGE = 150
"""Of a near copy. One change breaks five shingles of five words, so that at least 0.93 of them are shared."""

_LANGUAGE = re.compile(r"<html[^>]*\slang=[\"']?([A-Za-z]+)")

_MENU = (
    *("Home", "About us", "Contact", "Log in", "Register", "My account", "Basket (0)", "Search", "Next page"),
    *("Previous page", "Privacy policy", "Terms of use", "Site map", "Share this", "Print", "Subscribe", "Help"),
    *("Back to top", "Read more", "All categories", "Newsletter", "Cookie settings", "Follow us", "English | Deutsch"),
)
_TEMPLATES = (
    "Buy {0} online! Best {0} at the lowest price, with free delivery.",
    "Are you looking for {0}? Click here for {1} and {0} near you.",
    "{0} is currently unavailable. Sign up and be the first to know about {1}.",
    "Welcome to our page about {0}. This page was last updated by {1}.",
    "Top 10 {0} of the year: number 7 will surprise {1}!",
)


@dataclass(frozen=True)
class JunkConfig:
    """A corpus made from the good documents below `input_path`."""

    input_path: str | InputName
    shares: Mapping[str, float] = field(
        default_factory=lambda: {**dict.fromkeys((*LOW_QUALITY, *COPIES), 0.1), CONTAMINATED: 0.05}
    )
    """Kind -> how many records of it there are per good document, from 0 to 1."""

    evaluation_path: str | InputName | None = None
    """Shards of documents, an item each, for `contaminated`."""

    as_pages: bool = False
    """Whether all records get a field `html` instead of `text`, for `extract`; pages are left as they are."""

    seed: int = 0
    output_format: str = ".jsonl.zst"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def plant_junk(config: JunkConfig) -> dict[str, Any]:
    """Write a shard for each shard; `tallies` of its summary say how many records of each kind there are."""
    if unknown := config.shares.keys() - {CONTAMINATED, *_MAKERS}:
        raise DataError(f"no kinds of records are called {sorted(unknown)}: use {[CONTAMINATED, *_MAKERS]}")
    items = _items(config)

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        for row in shard.rows(account, _fault):
            records = list(_records(row.record, items, config))
            account.read += len(records) - 1  # What is made here counts as read, to balance the account.
            account.tallies.update(record["metadata"]["truth"] for record in records)
            yield from (_as_page(record) if config.as_pages else record for record in records)

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format=config.output_format,
        settings=config.shards,
    )


def _items(config: JunkConfig) -> list[str]:
    """In the order of their ids."""
    if not config.shares.get(CONTAMINATED):
        return []
    if config.evaluation_path is None:
        raise DataError("nothing to contaminate documents with: give evaluation_path, or a share of 0 contaminated")
    account = Account(str(config.evaluation_path), lambda row: None)
    rows = [row for shard in list_shards(str(config.evaluation_path)) for row in shard.rows(account)]
    if not rows:
        raise DataError(f"the evaluation set below {config.evaluation_path} has no items")
    return [row.record["text"] for row in sorted(rows, key=lambda row: str(row.record["id"]))]


def _fault(record: Record) -> str | None:
    return identified_fault(record) if isinstance(record.get("html"), str) else document_fault(record)


def _records(document: Record, items: list[str], config: JunkConfig) -> Iterator[Record]:
    def chance_of(kind: str) -> random.Random:
        return random.Random(f"{config.seed} {kind} {document['id']}")

    def is_chosen(kind: str, chance: random.Random) -> bool:
        return chance.random() < config.shares.get(kind, 0)

    if _is_in_another_language(document):
        yield _labelled(document, OTHER_LANGUAGE)
        return
    text = _text_of(document)
    chance = chance_of(CONTAMINATED)
    if items and is_chosen(CONTAMINATED, chance):
        paragraphs = text.split("\n\n")
        paragraphs.insert(chance.randint(0, len(paragraphs)), chance.choice(items))
        yield _labelled(_with_text(document, "\n\n".join(paragraphs)), CONTAMINATED)
        return
    yield _labelled(document, GOOD)
    for kind, make in _MAKERS.items():
        chance = chance_of(kind)
        if is_chosen(kind, chance) and (made := make(text, chance)) is not None:
            copy = document if made == text else _with_text(document, made)
            yield _labelled({**copy, "id": f"{document['id']}/{kind}"}, kind, made_of=document["id"])


def _is_in_another_language(document: Record) -> bool:
    said = _LANGUAGE.search(document.get("html", ""))
    return said is not None and said[1].lower() != "en"


def _text_of(document: Record) -> str:
    if "html" not in document:
        text: str = document["text"]
        return text
    from resiliparse.extract.html2text import extract_plain_text

    return str(extract_plain_text(document["html"], main_content=True, links=False))


def _with_text(document: Record, text: str) -> Record:
    return {**{name: value for name, value in document.items() if name != "html"}, "text": text}


def _labelled(document: Record, truth: str, **more: str) -> Record:
    return {**document, "metadata": {**document.get("metadata", {}), "truth": truth, **more}}


def _as_page(record: Record) -> Record:
    if "html" in record:
        return record
    paragraphs = "\n".join(f"<p>{html.escape(part)}</p>" for part in record["text"].split("\n\n") if part.strip())
    page = f"<!DOCTYPE html>\n<html><body><main>\n{paragraphs}\n</main></body></html>"
    return {**{name: value for name, value in record.items() if name != "text"}, "html": page}


# --- kinds of records


def _navigation(text: str, chance: random.Random) -> str | None:
    words = text.split()
    entries = [chance.choice(_MENU) for _ in range(chance.randint(20, 60))]
    entries += [" ".join(chance.choices(words, k=2)).title() for _ in range(chance.randint(5, 20)) if words]
    chance.shuffle(entries)
    return "\n".join(entries)


def _template(text: str, chance: random.Random) -> str | None:
    words = [word for word in text.split() if len(word) > 4] or ["this page"]
    about = [chance.choice(words) for _ in range(2)]
    return "\n".join(chance.choice(_TEMPLATES).format(*about) for _ in range(chance.randint(5, 25)))


def _shuffled(text: str, chance: random.Random) -> str | None:
    words = text.split()
    chance.shuffle(words)
    return " ".join(words) or None


def _exact_copy(text: str, chance: random.Random) -> str | None:
    return text


def _near_copy(text: str, chance: random.Random) -> str | None:
    """None for a text that is too short to be changed only a little."""
    words = text.split(" ")
    if len(words) < _WORDS_A_CHANGE:
        return None
    for place in chance.sample(range(len(words)), len(words) // _WORDS_A_CHANGE):
        words[place] = f"{chance.choice(words).strip() or 'and'}ish"
    return " ".join(words)


_MAKERS: Mapping[str, Callable[[str, random.Random], str | None]] = {
    "navigation": _navigation,
    "template": _template,
    "shuffled": _shuffled,
    "exact_copy": _exact_copy,
    "near_copy": _near_copy,
}
