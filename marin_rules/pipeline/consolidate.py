"""One corpus from documents and their attributes: filters by attributes, and removal of spans.

Every document that is read is written, or dropped for a reason that names the filter, or (bad input) rejected: the
summary adds up, or the step fails. `dropped/` has the ids of what was dropped, with the reasons. A document without
the attributes that a filter asks for fails the step too, unless `missing_attributes` says otherwise; it is never lost
silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.attribute_files import AttributeFile
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.expressions import ConditionFailed, compile_condition
from marin_rules.pipeline.core.files import join, read_json, write_json
from marin_rules.pipeline.core.fingerprints import digest
from marin_rules.pipeline.core.records import Record, attributes_fault
from marin_rules.pipeline.core.shard_files import Row
from marin_rules.pipeline.core.shard_map import DamagedShards, Shard, ShardSettings, list_shards, map_shards


@dataclass(frozen=True)
class Threshold:
    """Keeps documents whose score is neither below `lower` nor above `upper`."""

    attributes_path: str | InputName
    attribute: str
    label: str | None = None
    """Which of the attribute's scores; None if its value is the score."""

    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class AnyOf:
    """Keeps documents of whose labels at least one of `labels` has a high enough score; a label that a document does
    not have has none."""

    attributes_path: str | InputName
    attribute: str
    labels: Sequence[str]
    lower: float = 0.5


@dataclass(frozen=True)
class KeepFraction:
    """Keeps the best documents, as many as the step `find_cut` was asked for."""

    attributes_path: str | InputName
    attribute: str
    cut_path: str | InputName
    """The output of `find_cut`."""

    label: str | None = None


@dataclass(frozen=True)
class RemoveSpans:
    """Removes spans (`[start, end, score]`) from the text, after all other filters have seen it whole."""

    attributes_path: str | InputName
    attribute: str
    lower: float = 0.5
    """Spans with a lower score stay."""


@dataclass(frozen=True)
class Condition:
    """Keeps documents that satisfy an expression, such as `len(text) > 200 and source != "mail"`."""

    expression: str


type MissingAttributes = Literal["fail", "drop", "keep"]
type Filter = Threshold | AnyOf | KeepFraction | RemoveSpans | Condition


@dataclass(frozen=True)
class ConsolidateConfig:
    """Documents below `input_path` that pass all filters."""

    input_path: str | InputName
    filters: Sequence[Filter] = ()
    """In this order: a document that several would drop is counted for the first of them."""

    missing_attributes: MissingAttributes = "fail"
    """What to do about a document without the attribute of a filter."""

    damaged_shards: DamagedShards = "fail"
    output_format: str = ".jsonl.zst"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class FindCutConfig:
    """The score that divides the best documents of a corpus from the others."""

    attributes_path: str | InputName
    attribute: str
    fraction: float
    """Of documents that are kept, from 0 to 1; of equal scores those that the hash of their ids chooses."""

    label: str | None = None
    output_path: str = THIS_OUTPUT_PATH


def consolidate(config: ConsolidateConfig) -> dict[str, Any]:
    """Write a shard of documents for each shard; it may be empty."""
    judges = [_judge_of(one) for one in config.filters]
    folders = sorted({str(one.attributes_path) for one in config.filters if not isinstance(one, Condition)})

    def transform(shard: Shard, account: Account) -> Iterator[Record | bytes]:
        files = {folder: AttributeFile(folder, shard) for folder in folders}
        for row in shard.rows(account):
            id = row.record["id"]
            attributes = {folder: file.of(id) or {} for folder, file in files.items()}
            spans: list[tuple[int, int]] = []
            reason = None
            try:
                for judge in judges:
                    try:
                        reason = judge(row.record, attributes, spans)
                    except _Missing as missing:
                        if config.missing_attributes == "fail":
                            raise DataError(f"{shard.path}: document {id!r} has {missing}. {_ADVICE}") from None
                        reason = str(missing) if config.missing_attributes == "drop" else None
                    if reason:
                        break
            except ConditionFailed as error:
                account.reject(row.number, "a condition failed", id=id, detail=str(error))
                continue
            if reason:
                account.drop(reason, id)
                continue
            yield from _without_spans(row, spans, account)
        for file in files.values():
            file.close()

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format=config.output_format,
        settings=config.shards,
        damaged_shards=config.damaged_shards,
    )


def find_cut(config: FindCutConfig) -> dict[str, Any]:
    """Write `cut.json`. Takes about 30 bytes of memory a document."""
    import numpy

    if not 0 <= config.fraction <= 1:
        raise DataError(f"a fraction of {config.fraction} cannot be kept: give one from 0 to 1")
    folder = str(config.attributes_path)
    shards = list_shards(folder)
    scores, marks = [], []
    account = Account(folder, lambda row: None)
    for shard in shards:
        for row in shard.rows(account, attributes_fault):
            try:
                scores.append(_score(config, {folder: row.record["attributes"]}))
            except _Missing as missing:
                raise DataError(f"{shard.path}: document {row.record['id']!r} has {missing}") from None
            marks.append(_mark(row.record["id"]))
    if not scores or account.rejected:
        raise DataError(f"no cut below {folder}: {len(scores)} good records, bad ones: {dict(account.rejected)}")
    order = numpy.lexsort((numpy.array(marks, numpy.uint64), numpy.array(scores)))
    kept = round(config.fraction * len(scores))
    last = order[len(order) - kept] if kept else None
    cut = None if last is None else [scores[last], marks[last]]
    # An id can be there in several shards: with the same score, all or none of these documents are kept.
    kept = 0 if cut is None else sum([score, mark] >= cut for score, mark in zip(scores, marks, strict=True))
    found = {"cut": cut, "kept": kept, "documents": len(scores)}
    write_json(join(config.output_path, "cut.json"), found)
    return found


# --- one document

_ADVICE = "Make these attributes from the same documents, or set missing_attributes to 'drop' or 'keep'"


class _Missing(Exception):
    """A document does not have an attribute; says which."""


type _Attributes = dict[str, dict[str, Any]]
"""Folder -> the attributes there of one document."""

type _Judge = Callable[[Record, _Attributes, list[tuple[int, int]]], str | None]
"""Says why a document is dropped, if it is; adds spans to remove."""


def _judge_of(one: Filter) -> _Judge:
    match one:
        case Condition():
            return _condition(one)
        case Threshold():
            return _threshold(one)
        case AnyOf():
            return _any_of(one)
        case KeepFraction():
            return _cut(one)
        case RemoveSpans():
            return _spans(one)


def _condition(one: Condition) -> _Judge:
    holds, reason = compile_condition(one.expression), f"not: {one.expression}"
    return lambda record, attributes, spans: None if holds(record) else reason


def _threshold(one: Threshold) -> _Judge:
    lower, upper = one.lower, one.upper

    def judge(record: Record, attributes: _Attributes, spans: list[tuple[int, int]]) -> str | None:
        score = _score(one, attributes)
        if lower is not None and not score >= lower:
            return f"{_name(one)} below {lower:g}"
        return f"{_name(one)} above {upper:g}" if upper is not None and not score <= upper else None

    return judge


def _any_of(one: AnyOf) -> _Judge:
    reason = f"{one.attribute}: none of {', '.join(one.labels)}"

    def judge(record: Record, attributes: _Attributes, spans: list[tuple[int, int]]) -> str | None:
        scores = attributes[str(one.attributes_path)].get(one.attribute)
        if not isinstance(scores, dict):
            raise _Missing(f"no {one.attribute} by label in {one.attributes_path}")
        return None if any(scores.get(label, 0.0) >= one.lower for label in one.labels) else reason

    return judge


def _cut(one: KeepFraction) -> _Judge:
    found = read_json(join(str(one.cut_path), "cut.json"))
    if not isinstance(found, dict):
        raise DataError(f"there is no cut.json below {one.cut_path}: is it the output of find_cut?")
    cut = None if found["cut"] is None else tuple(found["cut"])

    def judge(record: Record, attributes: _Attributes, spans: list[tuple[int, int]]) -> str | None:
        is_kept = (_score(one, attributes), _mark(record["id"])) >= cut if cut is not None else False
        return None if is_kept else f"{_name(one)} not among the best"

    return judge


def _spans(one: RemoveSpans) -> _Judge:
    def judge(record: Record, attributes: _Attributes, spans: list[tuple[int, int]]) -> str | None:
        value = attributes[str(one.attributes_path)].get(one.attribute)
        if value is None:
            raise _Missing(f"no {one.attribute} in {one.attributes_path}")
        spans.extend((start, end) for start, end, score in value if score >= one.lower)
        return None

    return judge


def _name(one: Threshold | KeepFraction | FindCutConfig) -> str:
    return one.attribute if one.label is None else f"{one.attribute}.{one.label}"


def _score(one: Threshold | KeepFraction | FindCutConfig, attributes: _Attributes) -> float:
    value = attributes[str(one.attributes_path)].get(one.attribute)
    if one.label is not None:
        value = value.get(one.label) if isinstance(value, dict) else None
    if not isinstance(value, (int, float)):
        raise _Missing(f"no {_name(one)} in {one.attributes_path}")
    return value


def _mark(id: str) -> int:
    return int.from_bytes(digest(id)[:8], "big")


def _without_spans(row: Row, spans: list[tuple[int, int]], account: Account) -> Iterator[Record | bytes]:
    if not spans:
        yield row.line or row.record
        return
    text = row.record["text"]
    pieces, end = [], 0
    for start, stop in sorted(spans):
        pieces.append(text[end : max(start, end)])
        end = max(end, stop)
    left = "".join(pieces) + text[end:]
    account.tallies["characters removed"] += len(text) - len(left)
    if left.strip():
        yield {**row.record, "text": left}
    else:
        account.drop("nothing left of the text", row.record["id"])
