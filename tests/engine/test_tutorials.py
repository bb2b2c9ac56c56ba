"""The tutorials, run as a reader would run them, down to the files that Marin's own would leave."""

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from marin_rules.storage.leases.record import LeaseRecord
from support.lab import Lab, Running

MARIN_STEP_FIELDS = {
    "name",
    "fn_name",
    "config",
    "description",
    "override_output_path",
    "version",
    "dependencies",
    "output_path",
}
MARIN_EXPERIMENT_FIELDS = {
    "worker_id",
    "git_commit",
    "caller_path",
    "created_date",
    "user",
    "prefix",
    "description",
    "steps",
}
HELLO_WORLD_STEPS = {
    "hello_world/data": "out/hello_world/data-d50b06",
    "hello_world/stats": "out/hello_world/stats-b5daf3",
}


@pytest.fixture
def tutorials(lab: Lab) -> Path:
    return lab.repository / "experiments" / "tutorials"


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_hello_world_is_the_same_through_both_doors(tutorials: Path, tmp_path: Path, lab: Lab) -> None:
    file = tutorials / "hello_world.py"

    def by_snakemake() -> Any:
        return lab.snakemake(experiment=file, prefix="out")

    def by_python() -> Any:
        return lab.python(file, "--prefix", "out")

    names = set()
    for run in (by_snakemake, by_python):
        shutil.rmtree(tmp_path / "out" / "hello_world", ignore_errors=True)
        result = run()
        assert result.code == 0, result.output
        assert result.started == sorted(HELLO_WORLD_STEPS)
        assert "[hello_world/data] writing 100 numbers\n" in result.output
        assert result.output.endswith("".join(f"  {name}  {path}\n" for name, path in HELLO_WORLD_STEPS.items()))
        check_hello_world_files(tmp_path)
        names |= {path.name for path in (tmp_path / "out" / "experiments").iterdir() if path.is_file()}

    provenance = (tmp_path / "out/hello_world/data-d50b06/.executor_info").read_bytes()
    for run in (by_snakemake, by_python):
        result = run()
        assert result.code == 0, result.output
        assert result.started == []
        assert result.cached == sorted(HELLO_WORLD_STEPS)
        assert "2 steps: 2 cached" in result.output
        names |= {path.name for path in (tmp_path / "out" / "experiments").iterdir() if path.is_file()}

    assert len(names) == 1
    assert re.fullmatch(r"hello_world-[0-9a-f]{6}\.json", names.pop())
    assert (tmp_path / "out/hello_world/data-d50b06/.executor_info").read_bytes() == provenance
    assert list((tmp_path / "tmp").iterdir()) == []


def check_hello_world_files(folder: Path) -> None:
    """Every file that Marin writes, with what it writes there."""
    data, stats = (folder / path for path in HELLO_WORLD_STEPS.values())
    assert read_json(data / "numbers.json") == list(range(100))
    expected = {"sum": 4950, "min": 0, "max": 99, "mean": 49.5}
    assert read_json(stats / "stats.json") == expected
    assert read_json(stats / ".artifact.json") == expected
    for step in (data, stats):
        assert (step / ".executor_status").read_bytes() == b"SUCCESS"
        assert not (step / ".executor_status.lock").exists()

    info = read_json(stats / ".executor_info")
    assert info.keys() >= MARIN_STEP_FIELDS
    data_version = {"name": "hello_world/data", "config": {}, "dependencies": []}
    assert info["version"] == {
        "name": "hello_world/stats",
        "config": {"input_path": "DEP[0]"},
        "dependencies": [data_version],
    }
    assert info["name"] == "hello_world/stats"
    assert info["fn_name"].endswith("compute_stats")
    assert info["config"] == {
        "input_path": HELLO_WORLD_STEPS["hello_world/data"],
        "output_path": HELLO_WORLD_STEPS["hello_world/stats"],
    }
    assert info["description"] == "Sum, minimum, maximum and mean of the numbers."
    assert info["dependencies"] == [HELLO_WORLD_STEPS["hello_world/data"]]
    assert info["output_path"] == HELLO_WORLD_STEPS["hello_world/stats"]
    assert info["override_output_path"] is None

    (file,) = (path for path in (folder / "out" / "experiments").iterdir() if path.is_file())
    experiment = read_json(file)
    assert experiment.keys() >= MARIN_EXPERIMENT_FIELDS
    assert experiment["caller_path"].endswith("experiments/tutorials/hello_world.py")
    assert experiment["prefix"] == "out"
    assert experiment["description"] == "Numbers and their statistics."
    assert [step["name"] for step in experiment["steps"]] == list(HELLO_WORLD_STEPS)
    for step in experiment["steps"]:
        assert step.keys() >= MARIN_STEP_FIELDS
        own = read_json(folder / step["output_path"] / ".executor_info")
        assert {key: own[key] for key in MARIN_STEP_FIELDS} == {key: step[key] for key in MARIN_STEP_FIELDS}


def test_a_new_learning_rate_runs_only_the_new_fits_and_the_summary(tutorials: Path, lab: Lab) -> None:
    result = lab.snakemake(experiment=tutorials / "sweep.py")
    assert result.code == 0, result.output
    assert len(result.started) == 14
    assert len(list(lab.prefix.glob("sweep/fit/*/result.json"))) == 12
    (summary,) = lab.prefix.glob("sweep/summary-*")
    losses = {float(line.split(",")[2]) for line in (summary / "results.csv").read_text().split()[1:]}
    assert len(losses) == 12
    assert read_json(summary / ".artifact.json")["loss"] == min(losses)
    assert "<svg" in (summary / "losses.svg").read_text()

    source = (tutorials / "sweep.py").read_text()
    grown = source.replace("LEARNING_RATES = (0.01, 0.03,", "LEARNING_RATES = (0.01, 0.02, 0.03,")
    assert grown != source
    result = lab.snakemake(experiment=lab.experiment(grown, "sweep_more.py"))
    assert result.code == 0, result.output
    assert result.started == sorted([*(f"sweep/fit/lr=0.02-bs={size}" for size in (1, 8, 64)), "sweep/summary"])
    assert len(result.cached) == 13
    assert len(list(lab.prefix.glob("sweep/fit/*/result.json"))) == 15
    assert len(list(lab.prefix.glob("sweep/summary-*/results.csv"))) == 2


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_a_shell_rule_runs_between_python_steps_under_a_lease(
    door: str, tutorials: Path, tmp_path: Path, lab: Lab
) -> None:
    # The rule sorts with the `sort` on the path: this one first looks at the lease of the step it works for.
    sort = tmp_path / "bin" / "sort"
    sort.parent.mkdir()
    sort.write_text(f'#!/bin/sh\ncp out/mixed/counts-*/.executor_status.lock seen\nexec {shutil.which("sort")} "$@"\n')
    sort.chmod(0o755)
    path = {"PATH": f"{sort.parent}:{os.environ['PATH']}"}

    file = tutorials / "mixed.py"
    if door == "snakemake":
        result = lab.snakemake(experiment=file, prefix="out", env=path)
    else:
        result = lab.python(file, "--prefix", "out", env=path)
    assert result.code == 0, result.output
    assert result.started == ["mixed/counts", "mixed/text", "mixed/top"]
    counts = (lab.folder_of("mixed/counts") / "counts.txt").read_text()
    found = {word: int(count) for count, word in (line.split() for line in counts.splitlines())}
    assert found == Counter((lab.folder_of("mixed/text") / "text.txt").read_text().split())
    assert found["the"] == 3
    assert read_json(lab.folder_of("mixed/top") / "top.json") == {"the": 3}
    assert "[mixed/top] most frequent: 'the', 3 times\n" in result.output

    lease = LeaseRecord.parse((tmp_path / "seen").read_bytes(), "seen")
    info = read_json(lab.folder_of("mixed/counts") / ".executor_info")
    assert lease.worker_id == info["run"]["worker_id"]
    assert info["config"]["at_least"] == 1
    assert (lab.folder_of("mixed/counts") / ".executor_status").read_text() == "SUCCESS"
    assert not (lab.folder_of("mixed/counts") / ".executor_status.lock").exists()

    if door == "snakemake":
        result = lab.snakemake(experiment=file, prefix="out")
        assert result.code == 0, result.output
        assert result.started == []
        assert result.cached == ["mixed/counts", "mixed/text", "mixed/top"]


def killed_on_the_way(running: Running, records: Path, enough: int) -> int:
    """Kill all of a run once so many tasks have left a record; returns how many are done by then."""
    running.wait_for(lambda: len(done_tasks(records)) >= enough, f"{enough} tasks are done")
    running.kill_everything()
    return len(done_tasks(records))


def done_tasks(records: Path) -> list[int]:
    return [int(path.stem) for path in records.glob("*.json") if json.loads(path.read_text())["status"] == "SUCCESS"]


def test_words_are_counted_by_sixteen_tasks_though_the_run_is_killed_twice(tutorials: Path, lab: Lab) -> None:
    file = tutorials / "word_count.py"
    folder = lab.prefix / "word_count" / "counts-2f5818"
    records = folder / ".executor_tasks" / "round-1"
    first = killed_on_the_way(lab.start_snakemake("--cores", "1", experiment=file), records, 2)
    begun = {path.stem: path.stat().st_mtime_ns for path in records.glob("*.json")}
    second = killed_on_the_way(lab.start_snakemake("--cores", "1", experiment=file), records, first + 2)
    assert first < second < 16
    result = lab.snakemake(experiment=file)
    assert result.code == 0, result.output
    assert f"{second} of 16 tasks are done" in result.output

    names = sorted(path.name for path in folder.glob("*.txt.json"))
    assert names == [f"{number:03}.txt.json" for number in range(200)]
    returned = read_json(folder / ".artifact.json")
    assert [task["files"] for task in returned] == [13] * 8 + [12] * 8
    text = "".join(path.read_text() + " " for path in (lab.folder_of("word_count/text")).glob("*.txt"))
    assert read_json(lab.folder_of("word_count/total") / "total.json") == Counter(text.split())
    same = {name: stamp for name, stamp in begun.items() if (records / f"{name}.json").stat().st_mtime_ns == stamp}
    assert len(same) >= first, "what was done was not done again"
