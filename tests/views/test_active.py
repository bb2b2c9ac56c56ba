"""The table and the JSON of what is active."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from marin_rules.active.active_step import ActiveStep, StepAddress
from marin_rules.active.survey import ActiveRun, Survey
from marin_rules.clusters.protocol import ClusterJob, JobState
from marin_rules.state.run_registry import RegisteredRun
from marin_rules.state.task_records import TaskCounts
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import UNREADABLE, LeaseRecord
from marin_rules.views import active as view
from marin_rules.views.active import jobs_json, jobs_table, state_of
from support.lease_models.clock import elsewhere

NOW = 1_700_000_000.0
STEP = StepAddress("parts/a", "parts%2Fa-123456", "/p/parts/a-123456", ("x-1",), "0123456789ab")
LEASE = LeaseRecord.first(elsewhere("node7"), epoch=1, now=NOW - 30)
LOCAL = ActiveStep(STEP, "x-1", NOW, lease=LEASE, attempt=1)
RUNNING = ClusterJob("cloud", "7", JobState.RUNNING, "STARTED", nodes="m[1-2]", seconds=3600.0, reason="None of it")
QUEUED = ClusterJob("cloud", "8", JobState.WAITING, "PENDING", reason="Resources")
RUN = RegisteredRun("x-1", "/e/x.py", "/p", "/p/plan", "/e", "2026-11-18T00:00:00+00:00", elsewhere("login7"), NOW)


def survey(*steps: ActiveStep, runs: tuple[ActiveRun, ...] = ()) -> Survey:
    return Survey(runs, steps, NOW)


def test_nothing() -> None:
    assert jobs_table(survey()) == "nothing is running or queued"
    assert json.loads(jobs_json(survey())) == {"drivers": [], "steps": [], "runs": [], "silent_clusters": {}}


def test_nothing_is_not_claimed_of_a_silent_cluster() -> None:
    found = replace(survey(), silent_clusters={"grid": "no answer"})
    assert jobs_table(found) == "found nothing that is running or queued"
    assert json.loads(jobs_json(found)) == {
        "drivers": [],
        "steps": [],
        "runs": [],
        "silent_clusters": {"grid": "no answer"},
    }


def test_a_row_for_each_step_and_a_line_for_each_run() -> None:
    steps = [
        LOCAL,
        replace(LOCAL, job=RUNNING),
        replace(LOCAL, job=replace(RUNNING, nodes="", seconds=None)),  # A cluster that does not tell; its worker does.
        ActiveStep(replace(STEP, name="b"), "x-1", NOW, job=QUEUED, driver_is_gone=True),
    ]
    runs = (ActiveRun(RUN, done=1, left=3), ActiveRun(replace(RUN, id="y-2"), trouble="the plan is gone"))
    assert jobs_table(survey(*steps, runs=runs)).splitlines() == [
        "step     job      state                             node    elapsed  attempt  run",
        "parts/a  pid 7    RUNNING                           node7   30.0s    1        x-1",
        "parts/a  cloud 7  STARTED                           m[1-2]  1h00m    1        x-1",
        "parts/a  cloud 7  STARTED                           node7   30.0s    1        x-1",
        "b        cloud 8  PENDING (Resources, driver gone)  -       -        -        x-1",
        "",
        "x-1 (x.py, driver pid 7 on login7): 1 step done, 3 left",
        "y-2 (x.py, driver pid 7 on login7): the plan is gone",
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (LOCAL, "RUNNING"),
        (replace(LOCAL, tasks=TaskCounts(64, 41, 20, 3)), "41/64, 20 running, 3 failed"),
        (replace(LOCAL, job=RUNNING, tasks=TaskCounts(64), driver_is_gone=True), "0/64 (driver gone)"),
        (replace(LOCAL, job=RUNNING), "STARTED"),
        (replace(LOCAL, job=QUEUED, lease=None), "PENDING (Resources)"),
        (replace(LOCAL, job=replace(QUEUED, reason="")), "PENDING"),
        (replace(LOCAL, driver_is_gone=True), "RUNNING (driver gone)"),
        (replace(LOCAL, seen_at=NOW + 170), "RUNNING (no heartbeat for 3m20s)"),
        (replace(LOCAL, seen_at=NOW + 170, driver_is_gone=True), "RUNNING (no heartbeat for 3m20s, driver gone)"),
    ],
)
def test_what_a_step_is_at(found: ActiveStep, said: str) -> None:
    assert state_of(found) == said


ELEMENTS = [
    ClusterJob("cloud", f"7_{element}", state, word, reason="Priority", element=element)
    for element, (state, word) in enumerate([(JobState.WAITING, "PENDING")] * 3 + [(JobState.RUNNING, "STARTED")] * 2)
]


def test_a_row_for_an_array_says_how_many_elements_are_at_what() -> None:
    running = ActiveStep(STEP, "x-1", NOW, job=RUNNING, elements=ELEMENTS, attempt=1)
    waiting = ActiveStep(STEP, "x-1", NOW, job=QUEUED, elements=ELEMENTS[:3], driver_is_gone=True)
    assert jobs_table(survey(running, waiting)).splitlines() == [
        "step     job      state                               node    elapsed  attempt  run",
        "parts/a  cloud 7  2 STARTED, 3 PENDING                m[1-2]  1h00m    1        x-1",
        "parts/a  cloud 8  3 PENDING (Resources, driver gone)  -       -        -        x-1",
    ]
    first, second = json.loads(jobs_json(survey(running, replace(waiting, elements=()))))["steps"]
    assert (first["state"], first["elements"]) == ("STARTED", {"STARTED": 2, "PENDING": 3})
    assert (second["state"], second["elements"]) == ("PENDING", None)


def test_a_driver_that_is_gone_or_from_before_a_restart() -> None:
    here = Owner.current()
    assert here.start_ticks is not None
    gone = replace(RUN, driver=replace(here, start_ticks=here.start_ticks + 1))
    restarted = replace(RUN, driver=replace(here, boot_id="another"))
    lines = jobs_table(survey(runs=(ActiveRun(gone), ActiveRun(restarted)))).splitlines()
    assert lines[0].endswith(f"on {here.host}, gone): 0 steps done, 0 left")
    assert lines[1].endswith(f"on {here.host}, from before a restart): 0 steps done, 0 left")


def test_a_lease_that_cannot_be_read() -> None:
    found = replace(LOCAL, lease=UNREADABLE)
    assert "parts/a  -    RUNNING (no heartbeat for " in jobs_table(survey(found)).splitlines()[1]


def test_programs_find_each_job_under_the_name_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "CLUSTER_NAMES", ("cloud", "grid"))
    steps = [LOCAL, replace(LOCAL, job=RUNNING), ActiveStep(STEP, "x-1", NOW, job=QUEUED)]
    local, running, queued = json.loads(jobs_json(survey(*steps)))["steps"]
    assert [(one["cloud_job"], one["grid_job"]) for one in (local, running, queued)] == [
        (None, None), ("7", None), ("8", None),
    ]  # fmt: skip
    assert (local["pid"], local["state"], local["reason"], local["seconds"]) == (7, "RUNNING", "", 30.0)
    assert (running["state"], running["reason"], running["node"]) == ("STARTED", "", "m[1-2]")
    assert (queued["state"], queued["reason"], queued["seconds"], queued["pid"]) == ("PENDING", "Resources", None, None)


def test_programs_find_the_runs() -> None:
    (run,) = json.loads(jobs_json(survey(runs=(ActiveRun(RUN, done=1, left=3),))))["runs"]
    assert run == {
        "id": "x-1",
        "experiment": "/e/x.py",
        "prefix": "/p",
        "started": "2026-11-18T00:00:00+00:00",
        "driver": {"pid": 7, "host": "login7", "gone": False},
        "done": 1,
        "left": 3,
        "trouble": None,
    }


def test_what_others_have_written_commands_no_terminal() -> None:
    """A colleague's lease, or the info file beside it, may hold what a terminal obeys."""
    evil = replace(elsewhere("node7"), host="node7\x1b[2J\x1b]0;owned\x07")
    found = replace(LOCAL, lease=replace(LEASE, owner=evil), run="x\r\x1b[1A")
    table = jobs_table(survey(found))
    assert "node7?[2J?]0;owned?" in table
    assert all(character.isprintable() or character == "\n" for character in table)
