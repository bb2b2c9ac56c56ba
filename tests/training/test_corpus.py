"""From raw pages to tokens by the tutorial's own stages, over a slice of real text, with its planted faults.

Killed at random moments it comes to the same bytes as an unbroken run with another number of tasks.
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.corpus_slice import files_below, results_below, write_slice
from support.lab import Lab, Running

pytestmark = pytest.mark.processes

LONGEST = 400.0
"""Seconds of a run, with the environments there."""


@pytest.fixture
def slice_lab(training_lab: Lab, fasttext_python: Path, training_python: Path) -> Lab:
    training_lab.environment["MARIN_LEASE_LIFETIME_SECONDS"] = "8"
    return training_lab


def start(lab: Lab, file: Path, prefix: str, tasks: int) -> Running:
    return lab.start_snakemake(experiment=file, prefix=lab.folder / prefix, env={"TASKS": str(tasks)})


def killed_now_and_then(lab: Lab, file: Path, prefix: str, tasks: int, kills: int, files: int) -> None:
    """Run until it comes to its end, killed so many times on the way, each time at random among so many files."""
    chance = random.Random(kills)
    for number in range(kills):
        enough = int(files * (number + chance.random()) / (kills + 1))
        run = start(lab, file, prefix, tasks)
        run.wait_for(lambda enough=enough: len(files_below(lab.folder / prefix)) >= enough, f"{enough} files", LONGEST)
        run.kill_everything()
    last = start(lab, file, prefix, tasks).wait(LONGEST)
    assert last.code == 0, last.output


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.faults)])
def test_the_corpus_is_the_same_however_it_came_about(kills: int, slice_lab: Lab) -> None:
    file = write_slice(slice_lab)
    whole = start(slice_lab, file, "whole", tasks=1).wait(LONGEST)
    assert whole.code == 0, whole.output
    files = len(files_below(slice_lab.folder / "whole"))
    killed_now_and_then(slice_lab, file, "killed", 2, kills, files)
    expected, there = results_below(slice_lab.folder / "whole"), results_below(slice_lab.folder / "killed")
    assert there.keys() == expected.keys()
    assert [name for name in expected if there[name] != expected[name]] == []
    check_funnel(slice_lab.folder / "whole")
    check_planted(slice_lab.folder / "whole")


def check_funnel(prefix: Path) -> None:
    """The picture and table of the funnel, against the shards themselves."""
    (folder,) = prefix.glob("slice/funnel-*")
    rows = {row["stage"]: row for row in json.loads((folder / "funnel.json").read_text())}
    assert list(rows) == [
        *("files", "pages", "documents", "in English", "well written", "clean", "shuffled", "tokenized"),
    ]
    assert rows["in English"]["left_out"].keys() == {"language: none of en"}
    for name in ("in English", "well written", "clean"):
        row = rows[name]
        assert row["documents_in"] - sum(row["left_out"].values()) == row["documents_out"]
        assert row["tokens_in"] - sum(row["tokens_left_out"].values()) == row["tokens_out"]
    picture = (folder / "report" / "funnel.svg").read_text()
    assert f"{rows['clean']['documents_out']:,} of {rows['clean']['documents_in']:,}" in picture
    (tokens,) = prefix.glob("tokenized/slice-*")
    told = json.loads((tokens / "tokens.json").read_text())["splits"]["train"]
    assert (told["documents"], told["tokens"]) == (rows["tokenized"]["documents_out"], rows["tokenized"]["tokens_out"])


def check_planted(prefix: Path) -> None:
    (folder,) = prefix.glob("slice/planted-*")
    table: dict[str, Any] = {row["kind"]: row for row in csv.DictReader((folder / "report" / "planted.csv").open())}
    for kind in ("contaminated", "exact_copy", "near_copy", "other_language"):
        assert float(table[kind]["share"]) == 1.0, table
