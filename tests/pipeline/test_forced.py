"""Finished data stages that somebody asks for again, because their input or their code is another by now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.file_server import FileServer, file_server
from support.lab import Lab

pytestmark = pytest.mark.processes

EXPERIMENT = """
from marin_rules import ExecutorStep, executor_main, output_path_of, remote
from marin_rules.pipeline.count import CountConfig, count
from marin_rules.pipeline.sample import SampleConfig, sample

pages = ExecutorStep("pages", remote(sample, tasks={tasks}), SampleConfig({given!r}, 1.0))
counts = ExecutorStep("counts", count, CountConfig(output_path_of(pages)))

if __name__ == "__main__":
    executor_main(steps=[counts])
"""

DOWNLOAD = """
from marin_rules import ExecutorStep, executor_main
from marin_rules.pipeline.download import DownloadConfig, UrlSource, download

step = ExecutorStep("list", download, DownloadConfig(UrlSource([{url!r}])))

if __name__ == "__main__":
    executor_main(steps=[step])
"""


@pytest.mark.parametrize("tasks", [None, 2])
def test_a_forced_stage_works_on_its_input_as_it_is_now(tasks: int | None, lab: Lab, corpus: Any) -> None:
    shards = {f"{name}.jsonl": [{"id": name, "text": "two words"}] for name in "abc"}
    given = corpus.write("in", shards)
    file = lab.experiment(EXPERIMENT.format(tasks=tasks, given=given))

    def counted() -> Any:
        return json.loads((lab.folder_of("counts") / "summary.json").read_text())["tallies"]

    first = lab.snakemake(experiment=file)
    assert first.code == 0, first.output
    assert (counted()["documents"], counted()["words"]) == (3, 6)
    corpus.write("in", {"a.jsonl": [{"id": "a", "text": "2 more, t"}]})  # As long as it was.
    Path(given, "c.jsonl").unlink()
    forced = lab.snakemake(experiment=file, config={"force": "^pages$"})
    assert forced.code == 0, forced.output
    assert (counted()["documents"], counted()["words"]) == (2, 5)


def test_a_forced_download_fetches_again(lab: Lab) -> None:
    with file_server() as server:
        run_download(server, lab)


def run_download(server: FileServer, lab: Lab) -> None:
    file = lab.experiment(DOWNLOAD.format(url=server.add("/a", b"old")))
    assert lab.snakemake(experiment=file).code == 0
    server.add("/a", b"new")
    forced = lab.snakemake(experiment=file, config={"force": "^list$"})
    assert forced.code == 0, forced.output
    assert (lab.folder_of("list") / "a").read_bytes() == b"new"
