"""Duplicates among all documents of a corpus, as attributes: the same id, the same text, nearly the same text, and
repeated paragraphs.

Three steps, because only the middle one has to see everything at once:

1. `fingerprint` (over tasks): digests and signatures of each shard's documents.
2. `find_duplicates` (one process; about 100 bytes of memory a document, and 512 of temporary files): who is whose
   duplicate.
3. `mark_duplicates` (over tasks): the attributes of each shard's documents.

The attribute `duplicate` has a score of 1 or 0 for each of the labels `id`, `text` and `near`; `duplicate_paragraphs`
has the spans of paragraphs that are repeated. `consolidate` removes them. What is marked does not depend on how the
documents are divided into shards or tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import batched, pairwise
from typing import TYPE_CHECKING, Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.duplicates import KEPT, NEAR, SAME_ID, SAME_TEXT, decide, decide_near, ranks, repeated
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, write_json
from marin_rules.pipeline.core.fingerprints import (
    DocumentsDigest,
    Shingler,
    ShingleSettings,
    as_digests,
    digest,
    paragraphs_of,
    read_arrays,
    write_arrays,
)
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, list_shards, map_shards
from marin_rules.pipeline.core.signature_bands import SignatureBands

if TYPE_CHECKING:
    import numpy

_ARRAYS = ".npz"
_BATCH = 256
_LABELS = {"id": SAME_ID, "text": SAME_TEXT, "near": NEAR}


@dataclass(frozen=True)
class FingerprintConfig:
    """Fingerprints of the documents below `input_path`."""

    input_path: str | InputName
    shingles: ShingleSettings | None = field(default_factory=ShingleSettings)
    """None: do not look for near-duplicates."""

    shortest_paragraph: int | None = None
    """Characters of a line that counts as a paragraph; None if repeated paragraphs are not looked for."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class FindDuplicatesConfig:
    """The duplicates among documents whose fingerprints are below `fingerprints_path`."""

    fingerprints_path: str | InputName
    input_path: str | InputName
    """The documents: says which shards there are."""

    threshold: float = 0.8
    """Estimated similarity of near-duplicates, from 0 to 1."""

    bands: int = 16
    """Of a signature; a divisor of its length. More find more of the less similar pairs, and take longer. With 16 of
    128 numbers a pair of similarity 0.8 is compared with probability 0.95, one of 0.9 practically always."""

    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class MarkDuplicatesConfig:
    """Attributes of the documents below `input_path`."""

    input_path: str | InputName
    duplicates_path: str | InputName
    shortest_paragraph: int | None = None
    """As it was when fingerprints were made."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def fingerprint(config: FingerprintConfig) -> dict[str, Any]:
    """Write `<shard>.npz` for each shard."""
    shingler = None if config.shingles is None else Shingler(config.shingles)

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        import numpy

        ids: list[bytes] = []
        texts: list[bytes] = []
        paragraphs: list[bytes] = []
        signatures = []
        owners: list[tuple[int, int]] = []
        documents = DocumentsDigest()
        for rows in batched(shard.rows(account), _BATCH):
            for row in rows:
                text = row.record["text"]
                if config.shortest_paragraph is not None:
                    for place, (start, end) in enumerate(paragraphs_of(text, config.shortest_paragraph)):
                        paragraphs.append(digest(text[start:end].strip()))
                        owners.append((len(ids), place))
                ids.append(digest(row.record["id"]))
                texts.append(digest(text.strip()))
                documents.add(row.record["id"], text)
                yield row.record
            if shingler is not None:
                signatures.append(shingler.signatures([row.record["text"] for row in rows]))
        arrays = {"ids": as_digests(ids), "texts": as_digests(texts), "documents": documents.as_array()}
        if config.shingles is not None:
            empty = numpy.zeros((0, config.shingles.permutations), numpy.uint32)
            arrays["signatures"] = numpy.concatenate([empty, *signatures])
        if config.shortest_paragraph is not None:
            arrays["paragraphs"] = as_digests(paragraphs)
            arrays["owners"] = numpy.array(owners, numpy.int64).reshape(-1, 2)
            arrays["shortest_paragraph"] = numpy.array(config.shortest_paragraph)
        write_arrays(join(config.output_path, f"{shard.name}{_ARRAYS}"), arrays)

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format="",
        settings=config.shards,
        beside=(_ARRAYS,),
    )


def find_duplicates(config: FindDuplicatesConfig) -> dict[str, int]:
    """Write the verdicts about each shard's documents, and `report.json`."""
    import numpy

    names = [shard.name for shard in list_shards(str(config.input_path))]
    if not names:
        raise DataError(f"no shards below {config.input_path}")
    if config.bands < 1:
        raise DataError(f"bands is {config.bands}: there is at least one")
    arrays = []
    with SignatureBands(config.bands) as signatures:
        for name in names:
            one = read_arrays(join(str(config.fingerprints_path), f"{name}{_ARRAYS}"))
            if "signatures" in one:
                signatures.add(one.pop("signatures"))
            arrays.append(one)

        def whole(name: str) -> numpy.ndarray[Any, Any]:
            return numpy.concatenate([one.pop(name) for one in arrays])

        starts = numpy.cumsum([0, *(len(one["ids"]) for one in arrays)])
        ids, texts = whole("ids"), whole("texts")
        rank = ranks(ids, texts)
        verdicts = decide(ids, texts, rank)
        del ids, texts
        if signatures.permutations:
            decide_near(verdicts, signatures, rank, config.threshold)
    report = {label: int((verdicts == code).sum()) for label, code in _LABELS.items()}
    report |= {"documents": len(verdicts), "kept": int((verdicts == KEPT).sum())}

    again = numpy.zeros((0, 2), numpy.int64)
    if "paragraphs" in arrays[0]:
        for one, start in zip(arrays, starts[:-1], strict=True):
            one["owners"][:, 0] += start
        again, total = _repeated_paragraphs(whole("paragraphs"), whole("owners"), rank, verdicts)
        report |= {"paragraphs": total, "repeated_paragraphs": len(again)}

    for name, one, (start, end) in zip(names, arrays, pairwise(starts), strict=True):
        low, high = numpy.searchsorted(again[:, 0], (start, end))
        found = {"verdicts": verdicts[start:end], "repeated": again[low:high] - (start, 0)}
        found |= {key: one[key] for key in ("documents", "shortest_paragraph") if key in one}
        write_arrays(join(config.output_path, f"{name}{_ARRAYS}"), found)
    write_json(join(config.output_path, "report.json"), report)
    return report


def _repeated_paragraphs(
    paragraphs: numpy.ndarray[Any, Any],
    owners: numpy.ndarray[Any, Any],
    rank: numpy.ndarray[Any, Any],
    verdicts: numpy.ndarray[Any, Any],
) -> tuple[numpy.ndarray[Any, Any], int]:
    """Document and place of paragraphs of kept documents that also occur in one of lower rank, or earlier in the same;
    and how many paragraphs kept documents have."""
    import numpy

    kept = verdicts[owners[:, 0]] == KEPT
    paragraphs, owners = paragraphs[kept], owners[kept]
    order = numpy.lexsort((owners[:, 1], rank[owners[:, 0]]))
    place = numpy.empty(len(order), numpy.int64)
    place[order] = numpy.arange(len(order))
    again = owners[repeated(paragraphs, place)]
    return again[numpy.lexsort((again[:, 1], again[:, 0]))], len(paragraphs)


def mark_duplicates(config: MarkDuplicatesConfig) -> dict[str, Any]:
    """Write a shard of attributes for each shard of documents."""

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        import numpy

        found = read_arrays(join(str(config.duplicates_path), f"{shard.name}{_ARRAYS}"))
        if config.shortest_paragraph is not None and found.get("shortest_paragraph") != config.shortest_paragraph:
            raise DataError(
                f"shortest_paragraph is {config.shortest_paragraph}, but {found.get('shortest_paragraph')} in the"
                " fingerprints: give both the same"
            )
        verdicts = found["verdicts"].tolist()
        repeated_places: dict[int, list[int]] = {}
        for number, place in found["repeated"].tolist():
            repeated_places.setdefault(number, []).append(place)
        count = 0
        documents = DocumentsDigest()
        for row in shard.rows(account):
            if count == len(verdicts):
                break
            documents.add(row.record["id"], row.record["text"])
            verdict = verdicts[count]
            attributes: dict[str, Any] = {"duplicate": {label: int(verdict == code) for label, code in _LABELS.items()}}
            if config.shortest_paragraph is not None:
                paragraphs = paragraphs_of(row.record["text"], config.shortest_paragraph)
                places = repeated_places.get(count, [])
                if places and places[-1] >= len(paragraphs):
                    break
                attributes["duplicate_paragraphs"] = [[*paragraphs[place], 1.0] for place in places]
                account.tallies["repeated paragraphs"] += len(places)
            for label in (label for label, score in attributes["duplicate"].items() if score):
                account.tallies[f"duplicate {label}"] += 1
            yield {"id": row.record["id"], "source": row.record.get("source", ""), "attributes": attributes}
            count += 1
        is_all = count == len(verdicts) and account.read == account.rejected.total() + count
        if not is_all or not numpy.array_equal(documents.as_array(), found["documents"]):
            raise DataError(f"{shard.path} has changed since its fingerprints were made: run these steps again")

    return map_shards(transform, str(config.input_path), config.output_path, settings=config.shards)
