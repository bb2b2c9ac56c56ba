"""How much of what `plant_junk` planted the filters found, and how many good documents they cost.

    planted.json         by kind of document: how many, how many were left out, by which filter
    report/planted.csv   the same as a table

Of a document and its copy at most one may remain; which one does not matter. A good document is kept if it or a copy
of it is. Documents that the classifier was trained on are not counted: it knows the answers. The step fails if a share
is below its required minimum.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.tutorials.junk import COPIES, GOOD
from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, write_json
from marin_rules.pipeline.core.left_out import dropped_below
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import list_shards

KEPT = "kept"


@dataclass(frozen=True)
class PlantedConfig:
    """The outcome of the documents below `documents_path`, whose `metadata` has the truth."""

    documents_path: str | InputName
    filtered_paths: Sequence[str | InputName]
    """The outputs of `consolidate`, one after the other; the last is the corpus."""

    trained_on_path: str | InputName
    """Documents that the classifier has seen with their labels."""

    at_least: Mapping[str, float]
    """Kind -> the share that must be found; for `good`, the share that must be kept."""

    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class Found:
    """The outcome of one kind of document."""

    planted: int
    found: int
    """Of `good`: kept."""

    fates: Mapping[str, int]
    """`kept`, or the reason for which they were left out -> documents."""

    @property
    def share(self) -> float:
        return self.found / self.planted


def count_planted(config: PlantedConfig) -> dict[str, float]:
    """Write what was found; returns the shares."""
    fates = _fates(config)
    trained_on = {document["id"] for document in _documents(str(config.trained_on_path))}
    documents = list(_documents(str(config.documents_path)))
    table = found_by_kind(documents, fates, trained_on)
    if missing := config.at_least.keys() - table.keys():
        raise DataError(f"no documents are {' or '.join(sorted(missing))}, only {', '.join(sorted(table))}")
    told = {
        kind: {
            "planted": one.planted,
            "found": one.found,
            "share": round(one.share, 4),
            "at_least": config.at_least.get(kind),
            "fates": dict(sorted(one.fates.items())),
        }
        for kind, one in sorted(table.items())
    }
    write_json(join(config.output_path, "planted.json"), told)
    with into_place(join(config.output_path, "report", "planted.csv")) as file:
        file.write(_as_csv(table, config.at_least).encode())
    if missed := {kind: one for kind, one in table.items() if one.share < config.at_least.get(kind, 0)}:
        raise DataError(
            "; ".join(f"{kind}: {one.found} of {one.planted} found" for kind, one in sorted(missed.items()))
            + f". That is less than it should be: see {join(config.output_path, 'planted.json')}"
        )
    return {kind: round(one.share, 4) for kind, one in table.items()}


def found_by_kind(documents: Sequence[Record], fates: Mapping[str, str], trained_on: set[str]) -> dict[str, Found]:
    """By kind; `fates` are those of all documents that are not kept."""
    kinds = {document["id"]: document["metadata"]["truth"] for document in documents}
    made_of = {document["id"]: document["metadata"].get("made_of") for document in documents}
    copies_of: dict[str, list[str]] = {}
    for id, original in made_of.items():
        if kinds[id] in COPIES and original is not None:
            copies_of.setdefault(original, []).append(id)

    def is_found(id: str) -> bool:
        if kinds[id] == GOOD:
            return any(one not in fates for one in (id, *copies_of.get(id, ())))
        return id in fates or (kinds[id] in COPIES and made_of[id] in fates)

    by_kind: dict[str, list[str]] = {}
    for id in kinds.keys() - trained_on:
        by_kind.setdefault(kinds[id], []).append(id)
    return {
        kind: Found(len(ids), sum(map(is_found, ids)), Counter(fates.get(id, KEPT) for id in ids))
        for kind, ids in by_kind.items()
    }


def _fates(config: PlantedConfig) -> dict[str, str]:
    """Why documents were left out. Together with the corpus they must be all documents."""
    fates: dict[str, str] = {}
    for path in map(str, config.filtered_paths):
        fates |= dropped_below(path)
    kept = {document["id"] for document in _documents(str(config.filtered_paths[-1]))}
    all_ids = {document["id"] for document in _documents(str(config.documents_path))}
    if kept | fates.keys() != all_ids or kept & fates.keys():
        raise DataError(
            f"{len(all_ids)} documents, of which {len(kept)} were kept and {len(fates)} left out: these are not the"
            " filters of one corpus, in their order"
        )
    return fates


def _documents(folder: str) -> Iterator[Record]:
    for shard in list_shards(folder):
        for row in shard.rows(Account(shard.name, lambda row: None)):
            yield row.record


def _as_csv(table: Mapping[str, Found], at_least: Mapping[str, float]) -> str:
    fates = sorted({fate for one in table.values() for fate in one.fates} - {KEPT})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["kind", "documents", "found", "share", "at least", KEPT, *fates])
    for kind, one in sorted(table.items()):
        counts: list[Any] = [one.fates.get(fate, 0) for fate in (KEPT, *fates)]
        found = "kept" if kind == GOOD else "found"
        writer.writerow([kind, one.planted, f"{one.found} {found}", f"{one.share:.3f}", at_least.get(kind), *counts])
    return text.getvalue()
