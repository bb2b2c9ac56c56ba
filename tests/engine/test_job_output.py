"""What is said of the output of a job that left no word: where it is, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_rules.clusters.policy import Absence
from marin_rules.clusters.protocol import BusyError, ClusterJob, JobState
from marin_rules.driver.launch import Launcher
from marin_rules.engine.job_output import JobOutput
from marin_rules.settings.job_settings import JobSettings
from marin_rules.software.bootstrap import EXIT_UNREACHABLE
from support.fake_queue import FakeQueue
from support.small_plans import plan_of, step

PAGE = "https://cloud/{job}"
WHY = ": its node could not fetch the code from the prefix; "


def output(queue: FakeQueue, *, shared: bool = False) -> JobOutput:
    return JobOutput(queue, Launcher(plan_of(Path("/work"), step("a")), JobSettings(shared=shared, scratch="/local")))


def job(id: str = "7", exit_code: int | None = EXIT_UNREACHABLE, element: int | None = None) -> ClusterJob:
    return ClusterJob("fake", id, JobState.FAILED, "FAILED", exit_code=exit_code, element=element)


@pytest.fixture
def cloud() -> FakeQueue:
    """A cluster that keeps what its jobs print."""
    queue = FakeQueue()
    queue.page = PAGE
    return queue


def test_a_file_that_can_be_read_here_is_read(tmp_path: Path) -> None:
    log = tmp_path / "7.log"
    log.write_text("starting\nbus error\n\n")
    told = output(FakeQueue(), shared=True).explain(job(), str(log))
    assert told == f"; what the job itself printed is in {log}, at last: bus error"


@pytest.mark.parametrize(("exit_code", "why"), [(EXIT_UNREACHABLE, WHY), (1, "; "), (None, "; ")])
@pytest.mark.parametrize("log", [None, "/local/marin-rules-7.log"])
def test_a_file_on_the_job_s_node_is_named(exit_code: int | None, why: str, log: str | None) -> None:
    told = output(FakeQueue()).explain(job(exit_code=exit_code), log)
    assert told == f"{why}what it printed is in /local/marin-rules-7.log on its node"


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        ([], ""),
        (["", " "], ""),
        (["cannot read it ", ""], ", at last: cannot read it"),
        (["trying", "  in vain"], ", at last:\n    trying\n      in vain"),
        ([str(number) for number in range(12)], ", at last:" + "".join(f"\n    {number}" for number in range(2, 12))),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_what_the_cluster_keeps_is_told_with_its_end(
    cloud: FakeQueue, lines: list[str], ending: str, shared: bool
) -> None:
    cloud.printed["7"] = lines
    told = output(cloud, shared=shared).explain(job(), None)
    assert told == f"{'; ' if shared else WHY}what it printed is at https://cloud/7{ending}"


def test_of_an_array_the_first_element_stands_for_all(cloud: FakeQueue) -> None:
    cloud.printed = {"7_0": ["one", "two"], "7_1": ["three"], "8_1": ["four"]}
    said = output(cloud)
    endings = [said.explain(job(f"{array}_{index}", None, index), None) for array, index in ((7, 0), (7, 1), (8, 1))]
    assert [text.rpartition("https://cloud/")[2] for text in endings] == [
        "7_0, at last: two",
        "7_1",
        "8_1, at last: four",
    ]


def test_an_output_that_cannot_be_read_is_no_trouble(cloud: FakeQueue) -> None:
    cloud.error = BusyError("come back later")
    assert output(cloud).explain(job(), None) == f"{WHY}what it printed is at https://cloud/7"


def test_of_a_job_that_nobody_knows_nothing_is_said(cloud: FakeQueue) -> None:
    assert output(cloud).explain(Absence.MISSING, None) == ""
