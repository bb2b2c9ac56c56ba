"""Records that agree with their files, those that do not, and the page that shows them."""

from __future__ import annotations

import hashlib
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.speedrun import LeaderboardConfig, SpeedrunConfig, leaderboard, record_speedrun


class Runs:
    """Trainings and evaluations as they are on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, name: str, *, bits: float = 1.5, document: str = "d", **record: str) -> SpeedrunConfig:
        training, evaluation = self.folder / name / "training", self.folder / name / "evaluation"
        training.mkdir(parents=True)
        (evaluation / "samples").mkdir(parents=True)
        sizes = {"0": 100, "1": 50}
        samples = [
            {"id": id, "bytes": size, "log_probability": -bits * size * math.log(2), "sha256": document}
            for id, size in sizes.items()
        ]
        (evaluation / "samples" / "held_out-news.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
        items = hashlib.sha256("".join(f"{id}\0{document}\n" for id in sizes).encode()).hexdigest()
        facts = {
            "steps": 4,
            "parameters": 1000,
            "tokens": 4096,
            "flops": 6.0 * 1000 * 4096 * 1.2,
            "seconds": 2.0,
            "device": {"kind": "cpu", "count": 1, "processes": 1},
            "model": {"hidden": 8},
            "data": {"path": "tokens", "sha256": "d" * 64},
        }
        (training / "training.json").write_text(json.dumps(facts))
        lines = [
            {"step": step, "train/loss": 3.0, "tokens": 1024 * (step + 1), "flops": facts["flops"] * (step + 1) / 4}
            for step in range(4)
        ]
        lines = [{**line, "seconds": 0.5} if line["step"] else line for line in lines]
        (training / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        results = {
            "model": {"path": f"{training}/hf/step-3", "parameters": 1000},
            "settings": {"max_documents": None},
            "held_out": {
                "news": {
                    "bits_per_byte": {"value": bits, "standard_error": 0.01},
                    "chance": {"bits_per_byte": {"value": 2.5, "standard_error": 0.125}},
                    "items_sha256": items,
                }
            },
        }
        (evaluation / "results.json").write_text(json.dumps(results))
        output = str(self.folder / name / "record")
        return SpeedrunConfig(name, str(training), str(evaluation), "news", output_path=output, **record)

    def change(self, name: str, file: str, *keys: str, value: Any) -> None:
        """Set a number in a file to another."""
        path = self.folder / name / file
        contents = whole = json.loads(path.read_text())
        for key in keys[:-1]:
            contents = contents[key]
        contents[keys[-1]] = value
        path.write_text(json.dumps(whole))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_record_says_what_the_files_say(runs: Runs) -> None:
    record = record_speedrun(runs.make("one", author="Ada"))
    assert record["flops"] == 6.0 * 1000 * 4096 * 1.2
    assert (record["bits_per_byte"], record["standard_error"], record["device"]) == (1.5, 0.01, "1 x cpu")
    assert record["data_sha256"] == "d" * 64
    assert len(record["recipe_sha256"]) == 64
    assert json.loads(Path(runs.folder, "one", "record", "record.json").read_text()) == record


TRAINING, RESULTS = "training/training.json", "evaluation/results.json"
SCORE = ["held_out", "news", "bits_per_byte"]


@pytest.mark.parametrize(
    ("file", "keys", "value", "message"),
    [
        (
            TRAINING,
            ["began_with"],
            "big/hf/step-9",
            "began with the weights of big/hf/step-9, whose cost is not counted",
        ),
        (TRAINING, ["tokens"], 8192, "8192 tokens, but its last step in metrics.jsonl 4096"),
        (TRAINING, ["flops"], 1e6, r"1e\+06 flops, but its last step"),
        (TRAINING, ["parameters"], 1_000_000, "cannot be right for 1,000,000 parameters"),
        (TRAINING, ["parameters"], 1200, "was evaluated has 1,000 parameters, the one that was trained 1,200"),
        (TRAINING, ["steps"], 5, "5 steps, but metrics.jsonl has 4"),
        (TRAINING, ["seconds"], 1.0, "1.0 seconds, but its steps took 1.5"),
        (RESULTS, ["model", "path"], "/elsewhere/hf/step-3", "evaluation is of /elsewhere/hf/step-3"),
        (RESULTS, ["settings", "max_documents"], 5, "saw a part of the set only"),
        (RESULTS, ["held_out", "news", "changed_documents"], 2, "tokenizer loses something of 2 documents of 'news'"),
        (RESULTS, ["settings", "overlap"], 5, "gave each window more context than others do .overlap 5"),
        (
            RESULTS,
            ["held_out", "news", "bits_per_byte", "value"],
            0.5,
            "0.5 bits per byte of 'news', but its samples 1.5",
        ),
        (RESULTS, [*SCORE, "value"], "<b>", "'<b>' bits per byte of 'news', but its"),
        (RESULTS, ["held_out", "news", "items_sha256"], "others", "samples of 'news' are of different documents"),
        (RESULTS, ["held_out"], {}, "no results for the held-out set 'news'"),
    ],
)
def test_numbers_that_disagree_are_refused(file: str, keys: list[str], value: Any, message: str, runs: Runs) -> None:
    config = runs.make("one")
    runs.change("one", file, *keys, value=value)
    with pytest.raises(DataError, match=message):
        record_speedrun(config)


def board(runs: Runs, *configs: SpeedrunConfig) -> tuple[dict[str, Any], str]:
    for config in configs:
        if not Path(config.output_path).exists():
            record_speedrun(config)
    out = runs.folder / "board"
    paths = {config.name: config.output_path for config in configs}
    answer = leaderboard(LeaderboardConfig(paths, title="Runs & <b>", output_path=str(out)))
    return answer, (out / "index.html").read_text()


class Page(HTMLParser):
    """Cells of the table, tags, and addresses of anything."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str | None] = []
        self._is_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        self._is_cell = tag in ("td", "code")
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = False


def test_the_page_ranks_escapes_and_loads_nothing(runs: Runs) -> None:
    evil = "<script>alert(1)</script>"
    worse = runs.make("worse", bits=1.7, author=evil, description='"><img src=x>')
    answer, text = board(runs, worse, runs.make("better", bits=1.4))
    assert answer == {"records": 2, "first": "better"}
    page = Page(text)
    assert page.cells[0] == "1"
    assert page.cells[1] == "better"
    assert evil in page.cells, "shown as text"
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert page.addresses == []
    assert "http" not in text
    assert "Runs &amp; &lt;b&gt;" in text
    assert "gets 2.500 ± 0.125." in text, "chance is told"


def test_the_log_has_the_ranks_and_the_place_of_the_page(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    board(runs, runs.make("worse", bits=1.7), runs.make("better", bits=1.4))
    assert capsys.readouterr().out.splitlines() == [
        "1. better: 1.4000 ± 0.0100 bits per byte (chance 2.5000 ± 0.1250), 2.95e+07 FLOPs, 2 s on 1 x cpu",
        "2. worse: 1.7000 ± 0.0100 bits per byte (chance 2.5000 ± 0.1250), 2.95e+07 FLOPs, 2 s on 1 x cpu",
        f"the page: {runs.folder / 'board' / 'index.html'}",
    ]


def test_a_record_that_was_polished_is_refused(runs: Runs) -> None:
    config = runs.make("one")
    record_speedrun(config)
    runs.change("one", "record/record.json", "bits_per_byte", value=0.9)
    with pytest.raises(DataError, match=r"record 'one': it says bits_per_byte 0.9, but .* 1.5"):
        board(runs, config)


def test_a_record_that_lacks_a_number_has_that_of_its_files(runs: Runs) -> None:
    """As one that an earlier version has made."""
    config = runs.make("one")
    record_speedrun(config)
    path = Path(config.output_path, "record.json")
    record = json.loads(path.read_text())
    del record["chance_standard_error"]
    path.write_text(json.dumps(record))
    board(runs, config)
    assert json.loads((runs.folder / "board" / "records.json").read_text())[0]["chance_standard_error"] == 0.125


def test_a_record_does_not_say_its_own_rank(runs: Runs) -> None:
    good, forged = runs.make("good", bits=1.2), runs.make("forged", bits=1.9)
    record_speedrun(forged)
    runs.change("forged", "record/record.json", "rank", value=1)
    _, text = board(runs, good, forged)
    cells = Page(text).cells
    assert [cells[cells.index(name) - 1] for name in ("good", "forged")] == ["1", "2"]


@pytest.mark.parametrize("key", ["name", "evaluation_path", "set"])
def test_a_record_that_lacks_something_is_refused_by_name(key: str, runs: Runs) -> None:
    config = runs.make("one")
    record_speedrun(config)
    runs.change("one", "record/record.json", key, value=None)
    with pytest.raises(DataError, match=rf"record 'one': .*record.json has no {key}: make the record again"):
        board(runs, config)


def test_chance_is_that_of_every_tokenizer(runs: Runs) -> None:
    one, other = runs.make("one", bits=1.2), runs.make("other", bits=1.9)
    runs.change("other", RESULTS, "held_out", "news", "chance", "bits_per_byte", "value", value=3.25)
    _, text = board(runs, one, other)
    assert "gets 2.500 ± 0.125 to 3.250 ± 0.125, by tokenizer" in text


def test_records_of_different_documents_are_not_ranked(runs: Runs) -> None:
    one, other = runs.make("one"), runs.make("other", document="another")
    with pytest.raises(DataError, match="of different documents"):
        board(runs, one, other)
