"""The account of a corpus from stage to stage, and its picture."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.funnel import FunnelConfig, FunnelStage, funnel


def stage(folder: Path, name: str, read: int, written: int, **more: Any) -> str:
    summary = {"read": read, "written": written, "rejected": {}, "dropped": {}, "tallies": {}} | more
    (folder / name).mkdir()
    (folder / name / "summary.json").write_text(json.dumps(summary))
    return str(folder / name)


def test_every_document_is_in_the_table_and_in_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merged = {"documents": 120, "tokens": 20000, "bytes": 99000}
    merged |= {"documents left out: <junk>": 50, "tokens left out: <junk>": 6000}
    merged |= {"documents left out: duplicate": 7, "tokens left out: duplicate": 1655}
    kept = {"documents": 60, "tokens": 12345, "bytes": 70000}
    made = {"documents": 60, "tokens": 12465}
    tallies = enumerate((merged, kept, made))
    counted = [stage(tmp_path, f"counted-{number}", 1, 1, tallies=one) for number, one in tallies]
    stages = [
        FunnelStage("extract", stage(tmp_path, "a", 100, 90, rejected={"a page without text": 10})),
        FunnelStage("merge", stage(tmp_path, "b", 120, 120), counted[0], joins=True),
        FunnelStage(
            "filter",
            stage(tmp_path, "c", 120, 60, dropped={"<junk>": 50, "duplicate": 7}, rejected={"duplicate": 3}),
            counted[1],
        ),
        FunnelStage("tokenize", stage(tmp_path, "d", 60, 60, tallies={"documents": 60, "tokens": 12465}), counted[2]),
    ]
    returned = funnel(FunnelConfig(stages, output_path=str(tmp_path / "out")))
    assert returned == {"documents_in": 130, "documents_out": 60, "tokens_out": 12465}
    assert "merge: 120 in (30 of them from other sources), 120 out with 20,000 tokens" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "out" / "report" / "funnel.csv").read_text().splitlines()))
    assert [(row["stage"], row["what"], row["documents"], row["tokens"]) for row in rows] == [
        ("extract", "in", "100", ""),
        ("extract", "left out: a page without text", "10", ""),
        ("extract", "out", "90", ""),
        ("merge", "in", "120", ""),
        ("merge", "of them from other sources", "30", ""),
        ("merge", "out", "120", "20000"),
        ("filter", "in", "120", "20000"),
        ("filter", "left out: <junk>", "50", "6000"),
        ("filter", "left out: duplicate", "10", "1655"),
        ("filter", "out", "60", "12345"),
        ("tokenize", "in", "60", "12345"),
        ("tokenize", "out", "60", "12465"),
    ]
    picture = (tmp_path / "out" / "report" / "funnel.svg").read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    for words in (
        "120 of 120 (30 joined)",
        "12,465 (12,345 and 120 added)",
        "90 of 100",
        "10 a page without text",
        "not counted",
        "60 of 120",
        "12,345 of 20,000",
    ):
        assert words in texts
    assert {"50 &lt;junk&gt; (6,000 tokens)", "10 duplicate (1,655 tokens)"} <= {*texts}
    funnel(FunnelConfig(stages, output_path=str(tmp_path / "again")))
    assert (tmp_path / "again" / "report" / "funnel.svg").read_text() == picture


def test_a_picture_without_tokens_and_with_many_reasons(tmp_path: Path) -> None:
    reasons = {f"reason {number}": 10 - number for number in range(9)}
    path = stage(tmp_path, "a", 100, 100 - sum(reasons.values()), dropped=reasons)
    funnel(FunnelConfig([FunnelStage("filter", path)], output_path=str(tmp_path / "out")))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "out" / "report" / "funnel.svg").read_text())
    assert {"10 reason 0", "5 reason 5", "9 for 3 other reasons"} <= {*texts}
    assert not {"tokens", "not counted"} & {*texts}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"read": 80, "written": 80}, "'b' begins with 80 documents, but 'a' before it passed on 90"),
        ({"read": 95, "written": 95}, "If it takes in other sources, say joins=True"),
        ({"read": 90, "written": 80}, "stage 'b': 90 documents in, 80 out, 0 left out"),
        ({"read": 90, "written": 90, "counted": 89}, "stage 'b': 90 documents out, but 89 were counted"),
        ({"read": 90, "written": 90, "left_out": 3}, "'b' dropped {}, but the count of the stage before it says"),
    ],
)
def test_documents_that_are_missing_somewhere_fail_the_funnel(
    second: dict[str, int], message: str, tmp_path: Path
) -> None:
    number, left_out = second.pop("counted", None), second.pop("left_out", 0)
    count = None if number is None else stage(tmp_path, "count", number, number, tallies={"documents": number})
    tallies = {"documents": 90} | ({"documents left out: x": left_out} if left_out else {})
    stages = [
        FunnelStage("a", stage(tmp_path, "a", 90, 90), stage(tmp_path, "count-a", 90, 90, tallies=tallies)),
        FunnelStage("b", stage(tmp_path, "b", **second), count),
    ]
    with pytest.raises(DataError, match=message):
        funnel(FunnelConfig(stages, output_path=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_stage_that_was_not_run_to_its_end_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}/summary.json does not exist")):
        funnel(FunnelConfig([FunnelStage("a", str(tmp_path))], output_path=str(tmp_path / "out")))
