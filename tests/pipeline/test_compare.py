"""Comparisons from files written by hand, against numbers computed another way."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

from marin_rules.pipeline.compare import CompareConfig, compare
from marin_rules.pipeline.core.errors import DataError

GENERATOR = numpy.random.default_rng(0)
SIZES = GENERATOR.integers(200, 2000, 120)
HARD = GENERATOR.normal(1.5, 0.4, 120)


class Evaluations:
    """Outputs of evaluate steps as they are on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, model: str, bits_per_byte: Any, hits: Any, *, items: str = "same", fewshot: int = 0) -> str:
        path = self.folder / model
        (path / "samples").mkdir(parents=True)
        documents = [
            {"id": str(number), "bytes": int(size), "log_probability": -float(bits) * int(size) * math.log(2)}
            for number, (size, bits) in enumerate(zip(SIZES, bits_per_byte, strict=True))
        ]
        answers = [{"id": number, "filter": "none", "metrics": {"acc": float(hit)}} for number, hit in enumerate(hits)]
        for name, rows in (("held_out-news", documents), ("quiz", answers)):
            (path / "samples" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        chance = {"chance": 0.25, "chance_standard_error": 0.01}
        acc = {"score": float(numpy.mean(hits)), **chance, "is_mean_of_items": True, "higher_is_better": True}
        perplexity = {"score": 9.0, "chance": None, "is_mean_of_items": False}
        of_news = {"bits_per_byte": {"value": 8.0 + len(model), "standard_error": 0.5}}
        results = {
            "held_out": {"news": {"items_sha256": items, "documents": 120, "chance": of_news}},
            "tasks": {
                "quiz": {
                    "items_sha256": items,
                    "items": len(hits),
                    "num_fewshot": fewshot,
                    "metrics": {"acc": acc, "perplexity": perplexity},
                }
            },
        }
        (path / "results.json").write_text(json.dumps(results))
        return str(path)


@pytest.fixture
def evaluations(tmp_path: Path) -> Evaluations:
    return Evaluations(tmp_path)


def rows_of(answer: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["name"], row["model"]): row for row in answer["rows"]}


def test_a_small_difference_on_the_same_documents_is_clear(evaluations: Evaluations, tmp_path: Path) -> None:
    small = HARD - 0.02 + GENERATOR.normal(0, 0.02, 120)
    hits = GENERATOR.random(300) < 0.4
    paths = {
        "base": evaluations.write("base", HARD, hits),
        "better": evaluations.write("better", small, hits),
    }
    found = rows_of(compare(CompareConfig(paths, output_path=str(tmp_path / "out"))))
    base, better = found["news", "base"], found["news", "better"]
    assert base["score"] == pytest.approx((HARD * SIZES).sum() / SIZES.sum())
    assert better["difference"] == pytest.approx(((small - HARD) * SIZES).sum() / SIZES.sum())
    assert better["difference_standard_error"] < base["standard_error"] / 5, "documents are paired"
    assert better["is_clear"] is True
    assert "difference" not in base
    same = found["quiz", "better"]
    assert (same["difference"], same["is_clear"], same["chance"]) == (0.0, False, 0.25)
    assert ("perplexity") not in {row["metric"] for row in found.values()}, "no mean of items cannot be paired"


def test_every_score_stands_beside_its_own_chance(
    evaluations: Evaluations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is another for another tokenizer."""
    paths = {name: evaluations.write(name, HARD, [True, False]) for name in ("one", "other")}
    compare(CompareConfig(paths, output_path=str(tmp_path / "out")))
    rows = csv.DictReader((tmp_path / "out" / "report" / "compare.csv").open())
    found = {(row["name"], row["model"]): (row["chance"], row["chance_standard_error"]) for row in rows}
    assert found["news", "one"] == ("11", "0.5")
    assert found["news", "other"] == ("13", "0.5")
    assert found["quiz", "one"] == found["quiz", "other"] == ("0.25", "0.01")
    said = capsys.readouterr().out
    assert re.search(r"news bits_per_byte: other \S+ ± \S+ \(chance 13.0000 ± 0.5000\), \+0.0000", said)
    assert re.search(r"quiz acc: one 0.5000 ± \S+ \(chance 0.2500 ± 0.0100\)\n", said)


def test_an_average_with_a_set_of_one_document_is_of_unknown_certainty(
    evaluations: Evaluations, tmp_path: Path
) -> None:
    paths = {name: evaluations.write(name, HARD + shift, [True, False]) for name, shift in (("one", 0), ("two", 1))}
    for path in map(Path, paths.values()):
        news = (path / "samples" / "held_out-news.jsonl").read_text()
        (path / "samples" / "held_out-lonely.jsonl").write_text(news.splitlines()[0])
        results = json.loads((path / "results.json").read_text())
        results["held_out"]["lonely"] = {"items_sha256": "lonely", "documents": 1}
        (path / "results.json").write_text(json.dumps(results))
    found = rows_of(compare(CompareConfig(paths, output_path=str(tmp_path / "out"))))
    assert found["news", "two"]["is_clear"] is True
    for name in ("lonely", "macro"):
        row = found[name, "two"]
        assert row["difference"] == pytest.approx(1.0)
        assert (row["standard_error"], row["difference_standard_error"], row["is_clear"]) == (None, None, None)
    assert found["macro", "two"]["items"] == 121


def test_the_error_of_a_paired_difference_is_that_of_the_textbook(evaluations: Evaluations, tmp_path: Path) -> None:
    one, other = (GENERATOR.random(2000) < chance for chance in (0.5, 0.54))
    paths = {"one": evaluations.write("one", HARD, one), "other": evaluations.write("other", HARD, other)}
    row = rows_of(compare(CompareConfig(paths, output_path=str(tmp_path / "out"))))["quiz", "other"]
    difference = other.astype(float) - one.astype(float)
    assert row["difference"] == pytest.approx(difference.mean())
    assert row["difference_standard_error"] == pytest.approx(difference.std(ddof=1) / math.sqrt(2000), rel=0.08)


@pytest.mark.parametrize(("count", "is_clear"), [(2, False), (20, True)])
def test_answers_that_all_agree_are_not_certain(
    count: int, is_clear: bool, evaluations: Evaluations, tmp_path: Path
) -> None:
    hits = {"all": [True] * count, "none": [False] * count, "again": [True] * count}
    paths = {name: evaluations.write(name, HARD, some) for name, some in hits.items()}
    found = rows_of(compare(CompareConfig(paths, output_path=str(tmp_path / "out"))))
    assert found["quiz", "all"]["standard_error"] == found["quiz", "none"]["standard_error"] > 0
    assert found["quiz", "none"]["is_clear"] is is_clear
    same = found["quiz", "again"]
    assert (same["difference"], same["is_clear"]) == (0.0, False)
    assert same["difference_low"] < 0 < same["difference_high"]


def test_a_figure_of_differences_that_are_all_alike_is_drawn(evaluations: Evaluations, tmp_path: Path) -> None:
    """Sums of floating-point numbers put the end of an interval beyond the value, by a last digit."""
    paths = {name: evaluations.write(name, HARD, [value] * 12) for name, value in (("one", 0.7), ("two", 0.3))}
    row = rows_of(compare(CompareConfig(paths, output_path=str(tmp_path / "out"))))["quiz", "two"]
    assert row["difference"] == pytest.approx(-0.4)
    assert (tmp_path / "out" / "report" / "compare.svg").exists()


def test_files_are_the_same_bytes_again_and_tell_the_same(evaluations: Evaluations, tmp_path: Path) -> None:
    hits = [True, False] * 20
    paths = {
        name: evaluations.write(name, HARD + shift, hits) for name, shift in (("a$b", 0.0), ("<c>", 0.1), ("d", 0))
    }
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        compare(CompareConfig(paths, baseline="d", output_path=str(out)))
    for name in ("comparison.json", "report/compare.csv", "report/compare.svg"):
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
    table = list(csv.DictReader((outs[0] / "report" / "compare.csv").open()))
    assert {row["model"] for row in table} == set(paths)
    assert all((row["difference"] == "") == (row["model"] == "d") for row in table)


def test_a_difference_has_a_sign_and_says_which_way_is_better(
    evaluations: Evaluations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few, many = GENERATOR.random(300) < 0.2, GENERATOR.random(300) < 0.8
    paths = {"old": evaluations.write("old", HARD, few), "new": evaluations.write("new", HARD + 0.1, many)}
    compare(CompareConfig(paths, output_path=str(tmp_path / "out")))
    bits, hits = [line for line in capsys.readouterr().out.splitlines() if line.endswith(("better", "worse"))]
    assert re.search(r"news bits_per_byte: new .*, \+0\.1000 ± 0\.0000 from old: worse", bits)
    assert re.search(r"quiz acc: new .*, \+0\.\d+ ± 0\.\d+ from old: better", hits)
    drawn = (tmp_path / "out" / "report" / "compare.svg").read_text()
    for label in ("bits_per_byte (lower is better)", "acc (higher is better)"):
        assert f"<!-- {label} -->" in drawn


def test_long_names_of_models_do_not_cover_the_title(evaluations: Evaluations, tmp_path: Path) -> None:
    names = ["small", "llama-600m-with-a-longer-warmup-and-twice-the-data"]
    paths = {name: evaluations.write(name, HARD, [True, False]) for name in names}
    compare(CompareConfig(paths, output_path=str(tmp_path / "out")))
    drawn = (tmp_path / "out" / "report" / "compare.svg").read_text()
    title = re.search(r"<!-- Differences.*?translate\([\d.]+ ([\d.]+)\)", drawn, re.DOTALL)
    legend = re.search(r'<g id="legend_1">.*?<path d="([^"]*)"', drawn, re.DOTALL)
    assert title is not None
    assert legend is not None
    heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+) *$", legend[1], re.MULTILINE)]
    assert min(heights) > float(title[1]), "heights are counted from the top"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"items": "others"}, "'news': 'one' and 'two' were evaluated on different items"),
        ({"fewshot": 3}, "'quiz': 'one' and 'two' were evaluated on different numbers of examples"),
    ],
)
def test_other_items_are_refused_by_name(
    other: dict[str, Any], message: str, evaluations: Evaluations, tmp_path: Path
) -> None:
    hits = [True, False] * 20
    paths = {"one": evaluations.write("one", HARD, hits), "two": evaluations.write("two", HARD, hits, **other)}
    with pytest.raises(DataError, match=message):
        compare(CompareConfig(paths, output_path=str(tmp_path / "out")))


def alter(path: str, *keys: str, value: Any) -> None:
    """Set something that the results of an evaluation say."""
    file = Path(path, "results.json")
    contents = whole = json.loads(file.read_text())
    for key in keys[:-1]:
        contents = contents.setdefault(key, {})
    contents[keys[-1]] = value
    file.write_text(json.dumps(whole))


def test_the_same_items_in_other_words_are_refused(evaluations: Evaluations, tmp_path: Path) -> None:
    hits, out = [True, False] * 20, str(tmp_path / "out")
    paths = {name: evaluations.write(name, HARD, hits) for name in ("one", "two")}
    samples = Path(paths["two"], "samples", "quiz.jsonl")
    rows = [{**json.loads(line), "prompts": ["Which?"]} for line in samples.read_text().splitlines()]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="'quiz': 'one' and 'two' were asked different questions"):
        compare(CompareConfig(paths, output_path=out))
    alter(paths["two"], "settings", "chat_template", value=True)
    notes = compare(CompareConfig(paths, output_path=out))["notes"]
    assert len(notes) == 1
    assert notes[0].endswith("chat_template (one: None, two: True)")
    alter(paths["two"], "tasks", "quiz", "version", value=2.0)
    with pytest.raises(DataError, match="'quiz': 'one' and 'two' were evaluated on different versions of the task"):
        compare(CompareConfig(paths, output_path=out))


def test_more_context_is_refused(evaluations: Evaluations, tmp_path: Path) -> None:
    paths = {name: evaluations.write(name, HARD, [True, False]) for name in ("one", "two")}
    alter(paths["two"], "settings", "overlap", value=64)
    with pytest.raises(DataError, match=r"different context .overlap one: 0, two: 64."):
        compare(CompareConfig(paths, output_path=str(tmp_path / "out")))


def test_a_tokenizer_that_loses_text_is_noted_beside_another(
    evaluations: Evaluations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {name: evaluations.write(name, HARD, [True, False]) for name in ("one", "two")}
    alter(paths["two"], "held_out", "news", "changed_documents", value=7)
    assert compare(CompareConfig(paths, output_path=str(tmp_path / "out")))["notes"] == [], "the same tokenizer"
    alter(paths["two"], "model", "tokenizer_sha256", value="another")
    compare(CompareConfig(paths, output_path=str(tmp_path / "out")))
    assert "note: news: the tokenizer of two loses something of 7 of 120 documents" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused(evaluations: Evaluations, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    one = evaluations.write("one", HARD, [True, False])
    other = evaluations.write("other", HARD, [True, False])
    results = json.loads(Path(other, "results.json").read_text())
    with pytest.raises(DataError, match="at least two"):
        compare(CompareConfig({"one": one}, output_path=out))
    with pytest.raises(DataError, match="baseline 'tow' is none of the models one, two"):
        compare(CompareConfig({"one": one, "two": other}, baseline="tow", output_path=out))
    with pytest.raises(DataError, match=r"model 'two'.*results.json does not exist"):
        compare(CompareConfig({"one": one, "two": str(tmp_path)}, output_path=out))
    whole = Path(other, "samples", "quiz.jsonl").read_text()
    Path(other, "samples", "quiz.jsonl").write_text(whole.splitlines()[0] + "\n")
    with pytest.raises(DataError, match="model 'two': 'quiz' has samples of 1 items, not 2"):
        compare(CompareConfig({"one": one, "two": other}, output_path=out))
    Path(other, "samples", "quiz.jsonl").write_text('{"id": 1')
    with pytest.raises(DataError, match=r"model 'two'.*quiz.jsonl is missing or damaged"):
        compare(CompareConfig({"one": one, "two": other}, output_path=out))
    Path(other, "results.json").write_text(json.dumps({**results, "tasks": {}}))
    with pytest.raises(DataError, match="quiz: only one of 'one' and 'two' was evaluated on it"):
        compare(CompareConfig({"one": one, "two": other}, output_path=out))
