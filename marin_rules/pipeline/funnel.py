"""How documents pass through the stages of a corpus, as a chart and a table: in, out, and left out for which reason.

    funnel.json           each stage with its counts
    report/funnel.svg     documents and tokens that each stage passed on and left out, by reason
    report/funnel.csv     the same as a table

Each stage has to begin with as many documents as the one before passed on: a difference is an error, because it means
that documents were lost between two stages, or that the stages do not belong to one corpus. Only a stage that `joins`
may begin with more, which come from other sources.

Tokens are known for a stage over whose documents `count` was run with a tokenizer; and for what the next stage left
out, if `count` was also given that stage (`filtered_path`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, read_json, write_json
from marin_rules.pipeline.core.funnel_picture import StageCounts, in_words, picture
from marin_rules.pipeline.count import left_out


@dataclass(frozen=True)
class FunnelStage:
    """A stage of the corpus."""

    name: str
    path: str | InputName
    """Its output, with `summary.json`."""

    counted: str | InputName | None = None
    """The output of `count` over its documents, with the tokens if it was given a tokenizer."""

    joins: bool = False
    """Whether it takes in other documents beside those of the stage before."""


@dataclass(frozen=True)
class FunnelConfig:
    stages: Sequence[FunnelStage]
    """In the order in which documents go through them."""

    title: str = "From pages to a corpus"
    output_path: str = THIS_OUTPUT_PATH


def funnel(config: FunnelConfig) -> dict[str, Any]:
    """Check that every document is accounted for, and draw it."""
    if not config.stages:
        raise DataError("a funnel needs at least one stage")
    summaries = [_summary(str(stage.path), "summary.json") for stage in config.stages]
    counted = [
        None if stage.counted is None else _summary(str(stage.counted), "summary.json") for stage in config.stages
    ]
    rows = account_of(config.stages, summaries, counted)
    table = [_as_json(row) for row in rows]
    write_json(join(config.output_path, "funnel.json"), table)
    with into_place(join(config.output_path, "report", "funnel.csv")) as file:
        file.write(_as_csv(rows).encode())
    with into_place(join(config.output_path, "report", "funnel.svg")) as file:
        file.write(picture(config.title, rows))
    for row in rows:
        print(f"{row.name}: {in_words(row)}", flush=True)
    first, last = rows[0], rows[-1]
    return {
        "documents_in": first.documents_in + sum(row.joined for row in rows[1:]),
        "documents_out": last.documents_out,
        "tokens_out": last.tokens_out,
    }


def account_of(
    stages: Sequence[FunnelStage], summaries: Sequence[dict[str, Any]], counted: Sequence[dict[str, Any] | None]
) -> list[StageCounts]:
    """What each stage did; raises if documents are missing in one, or between two."""
    rows: list[StageCounts] = []
    counted_before: dict[str, int] = {}
    for stage, summary, count in zip(stages, summaries, counted, strict=True):
        reasons = {**summary["rejected"]}
        for reason, number in summary["dropped"].items():
            reasons[reason] = reasons.get(reason, 0) + number
        read, written = summary["read"], summary["written"]
        if read != written + sum(reasons.values()):
            raise DataError(
                f"stage {stage.name!r}: {read} documents in, {written} out, {sum(reasons.values())} left out"
            )
        joined = read - rows[-1].documents_out if rows else 0
        if joined < 0 or (joined and not stage.joins):
            raise DataError(
                f"stage {stage.name!r} begins with {read} documents, but {rows[-1].name!r} before it passed on"
                f" {rows[-1].documents_out}: they are not stages of one corpus, or documents were lost between them"
                + ("" if joined < 0 else ". If it takes in other sources, say joins=True")
            )
        tallies = {} if count is None else count["tallies"]
        if count is not None and tallies.get("documents", 0) != written:
            raise DataError(
                f"stage {stage.name!r}: {written} documents out, but {tallies.get('documents', 0)} were counted below"
                f" {stage.counted}: it is the count of another stage"
            )
        rows.append(
            StageCounts(
                stage.name,
                read,
                written,
                joined,
                dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
                rows[-1].tokens_out if rows and not joined else None,
                tallies.get("tokens"),
                _tokens_left_out(stage.name, summary, counted_before),
                tallies.get("bytes"),
            )
        )
        counted_before = tallies
    return rows


def _tokens_left_out(stage: str, summary: dict[str, Any], counted_before: dict[str, int]) -> dict[str, int]:
    documents = left_out(counted_before, "documents")
    if documents and documents != summary["dropped"]:
        raise DataError(
            f"stage {stage!r} dropped {summary['dropped']}, but the count of the stage before it says {documents}: its"
            " filtered_path is another stage"
        )
    return left_out(counted_before, "tokens")


def _summary(path: str, name: str) -> dict[str, Any]:
    found = read_json(join(path, name))
    if not isinstance(found, dict) or not {"read", "written", "rejected", "dropped"} <= found.keys():
        raise DataError(
            f"{join(path, name)} does not exist, or is not the summary of a stage. Has the stage been run to its end?"
        )
    return found


def _as_json(row: StageCounts) -> dict[str, Any]:
    facts = asdict(row)
    return {"stage": facts.pop("name"), **facts}


def _as_csv(rows: Sequence[StageCounts]) -> str:
    """A line for each stage and reason, so that a spreadsheet can add them up."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["stage", "what", "documents", "tokens", "bytes"])
    for row in rows:
        writer.writerow([row.name, "in", row.documents_in, row.tokens_in, ""])
        if row.joined:
            writer.writerow([row.name, "of them from other sources", row.joined, "", ""])
        for reason, number in row.left_out.items():
            writer.writerow([row.name, f"left out: {reason}", number, row.tokens_left_out.get(reason), ""])
        writer.writerow([row.name, "out", row.documents_out, row.tokens_out, row.bytes_out])
    return text.getvalue()
