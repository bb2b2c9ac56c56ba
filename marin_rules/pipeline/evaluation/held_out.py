"""Held-out sets: how many bits a model needs for each byte of text that it has not seen.

A set is a folder of documents, or the output of a tokenize step with a `validation` split. Either way a document is
scored from its text's own tokens, given the token that begins texts: what a tokenizer or a cache puts around it is not
scored. A document longer than the model's window is scored in windows, every token once.

Bits per byte can be compared between tokenizers; perplexity (per token) cannot.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, read_json
from marin_rules.pipeline.core.shard_map import list_shards
from marin_rules.pipeline.evaluation.model_files import tokenizer_digest
from marin_rules.pipeline.evaluation.packing import windows
from marin_rules.pipeline.evaluation.statistics import Estimate, ItemSums, estimate_of_items, sums_of_items

if TYPE_CHECKING:
    import numpy

    from marin_rules.pipeline.evaluation.loaded_model import LoadedModel

    type Array = numpy.ndarray[Any, Any]

_TOKENS_AT_ONCE = 1 << 18
"""Tokens of documents that are scored together: many rows to fill, little memory."""


@dataclass(frozen=True)
class Document:
    id: str
    tokens: list[int]
    bytes: int
    digest: str
    """Of its text."""

    is_changed: bool = False
    """Whether its tokens stand for another text: a tokenizer may lose letters, or whether they are capital."""


@dataclass(frozen=True)
class ScoredDocument:
    id: str
    tokens: int
    bytes: int
    log_probability: float
    digest: str
    unknown_tokens: int = 0
    """How many of its tokens stand for text that the tokenizer lost: a model need not say which."""

    is_changed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "log_probability": self.log_probability,
            "sha256": self.digest,
            "unknown_tokens": self.unknown_tokens,
            "is_changed": self.is_changed,
        }


def check_set(name: str, path: str, model_tokenizer: str) -> None:
    """Refuse a set that cannot be read, before a model is loaded for it."""
    tokens = read_json(join(path, "tokens.json"))
    if tokens is None:
        if not list_shards(path):
            raise DataError(f"held-out set {name!r}: there are neither documents nor a tokens.json below {path}")
        return
    if tokens.get("format") != "text":
        raise DataError(
            f"held-out set {name!r}: {path} holds {tokens.get('format')!r}, not text. Evaluate its documents instead"
        )
    if "validation" not in tokens.get("splits", {}):
        raise DataError(
            f"held-out set {name!r}: {path} has no validation split. Tokenize it as one, or name its documents"
        )
    if tokenizer_digest(join(path, "tokenizer")) != model_tokenizer:
        raise DataError(
            f"held-out set {name!r}: {path} was made with another tokenizer than the model's."
            " Name the documents instead: bits per byte do not depend on the tokenizer"
        )


def score_set(
    name: str, path: str, model: LoadedModel, *, most_documents: int | None = None, overlap: int = 0
) -> list[ScoredDocument]:
    """Each document of a set that has any text, in the order of the files; one of which the tokenizer makes no tokens
    costs a model nothing, and is counted among those that are changed."""
    scored: list[ScoredDocument] = []
    waiting: list[Document] = []
    tokens = 0
    for document in _documents(name, path, model, most_documents):
        waiting.append(document)
        tokens += len(document.tokens)
        if tokens >= _TOKENS_AT_ONCE:
            scored += _score(waiting, model, overlap)
            waiting, tokens = [], 0
    scored += _score(waiting, model, overlap)
    if not scored:
        raise DataError(f"held-out set {name!r}: there is no text in {path}")
    if not any(one.tokens for one in scored):
        raise DataError(f"held-out set {name!r}: the model's tokenizer makes no tokens of the text in {path}")
    return scored


def summarise_sets(sets: dict[str, list[ScoredDocument]], vocabulary: int, resamples: int, seed: int) -> dict[str, Any]:
    """Scores of each set, and of all: `macro` gives each set the same weight, `micro` each byte."""
    import numpy

    results, sums = {}, {}
    for name, documents in sets.items():
        rows = numpy.array([[-one.log_probability / math.log(2), one.bytes, one.tokens] for one in documents])
        sums[name] = sums_of_items(rows, name, resamples, seed)
        results[name] = {
            "documents": len(documents),
            "unknown_tokens": sum(one.unknown_tokens for one in documents),
            "changed_documents": sum(one.is_changed for one in documents),
            "items_sha256": items_digest([(one.id, one.digest) for one in documents]),
            **_scores(sums[name], vocabulary),
        }
    all_sets = list(sums.values())
    averages = {
        "macro": _bits_per_byte(all_sets, vocabulary, _mean_of_sets),
        "micro": _bits_per_byte(all_sets, vocabulary, _mean_of_bytes),
    }
    return {"held_out": results, "averages": averages}


def _mean_of_sets(bits: Array, size: Array) -> Array:
    return (bits / size).mean(axis=-1)


def _mean_of_bytes(bits: Array, size: Array) -> Array:
    mean: Array = bits.sum(axis=-1) / size.sum(axis=-1)
    return mean


def _bits_per_byte(sets: list[ItemSums], vocabulary: int, mean: Callable[[Array, Array], Array]) -> dict[str, Any]:
    """Of the model, and of one that is blind."""
    blind = math.log2(vocabulary)
    return {
        "bits_per_byte": _positive(lambda sums: mean(sums[..., 0], sums[..., 1]), sets).to_json(),
        "chance": {"bits_per_byte": _positive(lambda sums: mean(blind * sums[..., 2], sums[..., 1]), sets).to_json()},
    }


def _positive(score: Callable[[Array], Array], sets: list[ItemSums]) -> Estimate:
    """Of bits and perplexities, which are never less than nothing."""
    found = estimate_of_items(score, sets)
    return found if found.low is None else replace(found, low=max(0.0, found.low))


def items_digest(items: list[tuple[str, str]]) -> str:
    """The same for the same items in the same order."""
    digest = hashlib.sha256()
    for id, contents in items:
        digest.update(f"{id}\0{contents}\n".encode())
    return digest.hexdigest()


def _scores(one: ItemSums, vocabulary: int) -> dict[str, Any]:
    import numpy

    bits, size, tokens = (float(number) for number in one.sums)
    found = _bits_per_byte([one], vocabulary, _mean_of_bytes)
    # A resample may draw only documents without tokens.
    perplexity = _positive(lambda sums: numpy.exp2(sums[..., 0, 0] / numpy.maximum(sums[..., 0, 2], 1)), [one])
    return {
        "tokens": int(tokens),
        "bytes": int(size),
        "loss": bits * math.log(2) / tokens,
        "bits_per_byte": found["bits_per_byte"],
        "perplexity": perplexity.to_json(),
        "chance": {**found["chance"], "perplexity": float(vocabulary)},
    }


def _score(documents: list[Document], model: LoadedModel, overlap: int) -> list[ScoredDocument]:
    pieces = [windows(one.tokens, model.first_token, model.longest, overlap) for one in documents]
    scores = iter(model.score([window for of_document in pieces for window in of_document]))
    return [
        ScoredDocument(
            document.id,
            len(document.tokens),
            document.bytes,
            float(sum(next(scores).log_probabilities.sum() for _ in of_document)),
            document.digest,
            document.tokens.count(model.unknown_token) if model.unknown_token is not None else 0,
            document.is_changed,
        )
        for document, of_document in zip(documents, pieces, strict=True)
    ]


def _documents(name: str, path: str, model: LoadedModel, most: int | None) -> Iterator[Document]:
    tokens = read_json(join(path, "tokens.json"))
    found = _from_shards(name, path, model) if tokens is None else _from_cache(name, path, tokens, model)
    for number, document in enumerate(found):
        if most is not None and number >= most:
            return
        yield document


def _from_shards(name: str, path: str, model: LoadedModel) -> Iterator[Document]:
    for shard in list_shards(path):
        account = Account(shard.name, lambda row: None)
        for row in shard.rows(account):
            if text := row.record["text"]:
                yield _document(row.record["id"], text, model)
        if account.rejected:
            raise DataError(
                f"held-out set {name!r}: {shard.path} has bad records: {dict(account.rejected)}."
                " A score of what is left could be compared with no other: fix the set"
            )


def _from_cache(name: str, path: str, facts: dict[str, Any], model: LoadedModel) -> Iterator[Document]:
    """Documents of a Levanter cache, by the text that their tokens stand for.

    Levanter puts a space between a text and the token that ends it. The text without it is encoded again, so that a set
    has the same score as its documents.
    """
    import numpy
    from levanter.store.cache import TreeCache

    exemplar = {"input_ids": numpy.zeros((0,), numpy.int32)}
    special = set(model.tokenizer.all_special_ids)
    size = 0
    for number, row in enumerate(TreeCache.load(join(path, "validation"), exemplar)):
        stored = [int(token) for token in row["input_ids"]]
        kept = [token for token in stored if token not in special]
        text = model.decode(kept)
        if stored[-1:] == [model.tokenizer.eos_token_id]:
            text = text.removesuffix(" ")
        size += len(text.encode())
        if text:
            yield _document(str(number), text, model)
    if size != facts["splits"]["validation"]["bytes"]:
        raise DataError(
            f"held-out set {name!r}: the tokens in {path} stand for {size} bytes, but its documents had"
            f" {facts['splits']['validation']['bytes']}: the tokenizer loses something. Name the documents instead"
        )


def _document(id: str, text: str, model: LoadedModel) -> Document:
    tokens, contents = model.encode(text), text.encode()
    # Some tokenizers put a space before a text, and take it away again.
    is_changed = not tokens or model.decode(tokens).strip() != text.strip()
    return Document(id, tokens, len(contents), hashlib.sha256(contents).hexdigest(), is_changed)
