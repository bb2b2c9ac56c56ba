"""Arrays of jobs on a real Slurm: submitted, looked at, cancelled in part, taken off their machines, forgotten."""

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from marin_rules.clusters.open import open_cluster
from marin_rules.clusters.protocol import JOB, ArrayTasks, ClusterJob, JobQueue, JobRequest, JobState, JobTag
from support.lab import Lab
from support.slurm.cluster import SlurmCluster

TAG = JobTag.of("run", "count/words-1a2b3c", "/out", ArrayTasks(round=2, first=100))
UNTIL_TOLD = 'while [ ! -e "$SLURM_ARRAY_TASK_ID.end" ]; do sleep 0.1; done'
"""Each element ends when there is a file for it."""


def _queue_of(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> JobQueue:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return open_cluster("slurm").open_queue(None)


@pytest.fixture
def queue(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> JobQueue:
    """The queue of the test cluster, as a driver finds it."""
    return _queue_of(slurm, monkeypatch)


def array(folder: Path, script: str, elements: range | list[int], **fields: object) -> JobRequest:
    defaults: Mapping[str, object] = {
        "name": "count words",
        "variables": {"PATH": os.environ["PATH"]},
        "folder": str(folder),
        "log": str(folder / "logs" / f"{JOB}.log"),
        "resources": {"mem_mb": 50},
        "tag": TAG,
    }
    return JobRequest(script=script, elements=elements, **{**defaults, **fields})  # type: ignore[arg-type]


def states(jobs: Mapping[str, ClusterJob], number: str) -> Counter[JobState]:
    """Of the elements of one array: the cluster tells of earlier ones, too."""
    return Counter(job.state for job in jobs.values() if job.array == number)


def element_ids(number: str, elements: range | list[int]) -> list[str]:
    return [f"{number}_{element}" for element in elements]


def wait_until(cluster: SlurmCluster, queue: JobQueue, ids: list[str], *wanted: JobState) -> Mapping[str, ClusterJob]:
    """The jobs, once all of them are in one of these states."""

    def there() -> Mapping[str, ClusterJob] | None:
        found = queue.look(ids)
        return found if all(number in found and found[number].state in wanted for number in ids) else None

    found = cluster.wait_for(there, f"{ids} to be {wanted}")
    assert found is not None
    return found


def test_elements_run_on_their_own_and_end_on_their_own(queue: JobQueue, slurm: SlurmCluster, tmp_path: Path) -> None:
    asked = array(tmp_path, 'echo "element $SLURM_ARRAY_TASK_ID"; exit $((SLURM_ARRAY_TASK_ID * 25))', [0, 3, 4])
    number = queue.submit(asked)
    ids = element_ids(number, [0, 3, 4])
    jobs = wait_until(slurm, queue, ids, JobState.DONE, JobState.FAILED)
    assert [(jobs[id].state, jobs[id].exit_code, jobs[id].task) for id in ids] == [
        (JobState.DONE, 0, 100),
        (JobState.FAILED, 75, 103),
        (JobState.FAILED, 100, 104),
    ]
    assert {jobs[id].tag for id in ids} == {TAG}
    assert [Path(queue.log_of(asked.log, id)).read_text() for id in ids] == [
        "element 0\n",
        "element 3\n",
        "element 4\n",
    ]


def test_elements_that_wait_are_listed_in_full_with_one_question(
    queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    """Also those whose list squeue would cut after 64 characters."""
    scattered = [index for index in range(900) if index % 7 in (0, 1, 3)]
    number = queue.submit(array(tmp_path, UNTIL_TOLD, scattered, at_once=2))
    jobs = wait_until(slurm, queue, element_ids(number, scattered[:2]), JobState.RUNNING)
    assert {job.element for job in jobs.values() if job.array == number} == set(scattered)
    assert states(jobs, number) == {JobState.RUNNING: 2, JobState.WAITING: len(scattered) - 2}
    asked = len(slurm.calls("squeue"))
    queue.look(element_ids(number, scattered))
    assert len(slurm.calls("squeue")) == asked + 1
    assert slurm.calls("sacct") == []


def test_one_element_is_cancelled_while_it_runs_and_another_before_it_began(
    queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    """By a person at another terminal."""
    number = queue.submit(array(tmp_path, f"exec sh -c '{UNTIL_TOLD}'", range(5), at_once=2))
    ids = element_ids(number, range(5))
    wait_until(slurm, queue, ids[:2], JobState.RUNNING)
    slurm.run("scancel", ids[1], ids[3])
    jobs = wait_until(slurm, queue, [ids[1], ids[3]], JobState.CANCELLED)
    assert jobs[ids[3]].tag == TAG
    # Slurm itself says nothing of the one that had not begun.
    assert ids[3] not in [job.id for job in slurm.jobs()]
    wait_until(slurm, queue, [ids[0], ids[2]], JobState.RUNNING)
    assert queue.jobs()[ids[4]].state is JobState.WAITING
    assert queue.jobs()[ids[3]].state is JobState.CANCELLED


@pytest.mark.parametrize("whole", [True, False])
def test_an_array_is_cancelled_as_a_whole_or_element_by_element(
    whole: bool, queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    number = queue.submit(array(tmp_path, f"exec sh -c '{UNTIL_TOLD}'", range(30), at_once=2))
    ids = element_ids(number, range(30))
    wait_until(slurm, queue, ids[:2], JobState.RUNNING)
    asked = [number] if whole else ids
    assert queue.cancel_command(asked) == f"scancel {number if whole else f'{number}_[0-29]'}"
    queue.cancel(asked)
    assert len(slurm.calls("scancel")) == 1
    wait_until(slurm, queue, ids, JobState.CANCELLED)
    queue.cancel(asked)  # It has ended already.


def test_an_element_that_is_requeued_counts_its_restarts_and_the_others_none(
    queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    number = queue.submit(array(tmp_path, UNTIL_TOLD, range(4), at_once=2))
    ids = element_ids(number, range(4))
    wait_until(slurm, queue, ids[:2], JobState.RUNNING)
    slurm.run("scontrol", "requeue", ids[1])
    slurm.wait_for(lambda: queue.jobs()[ids[1]].state is JobState.WAITING, "the element to wait again")
    assert [queue.jobs()[id].restarts for id in ids] == [0, 1, 0, 0]
    for index in range(4):
        (tmp_path / f"{index}.end").touch()
    jobs = wait_until(slurm, queue, ids, JobState.DONE)
    assert [jobs[id].restarts for id in ids] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("partition", "state", "restarts"), [("spare", JobState.WAITING, 1), ("scavenge", JobState.INTERRUPTED, 0)]
)
def test_elements_are_preempted_one_by_one(
    partition: str, state: JobState, restarts: int, queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    resources = {"mem_mb": 50, "slurm_partition": partition, "cpus_per_task": 4}
    number = queue.submit(array(tmp_path, UNTIL_TOLD, range(4), resources=resources))
    ids = element_ids(number, range(4))
    jobs = wait_until(slurm, queue, ids, JobState.RUNNING)
    urgent = slurm.submit("exec sleep 60", "--partition=urgent", "--nodelist=cpu1", "--exclusive")
    slurm.wait_for_state(urgent, "RUNNING")
    (taken,) = [id for id in ids if jobs[id].nodes == "cpu1"]
    after = wait_until(slurm, queue, [taken], state)
    assert after[taken].restarts == restarts
    assert states(after, number) == Counter({JobState.RUNNING: 3, state: 1})


def test_an_element_reaches_its_time_limit_alone(queue: JobQueue, slurm: SlurmCluster, tmp_path: Path) -> None:
    number = queue.submit(array(tmp_path, UNTIL_TOLD, range(2)))
    ids = element_ids(number, range(2))
    wait_until(slurm, queue, ids, JobState.RUNNING)
    slurm.run_out_of_time(ids[1])
    jobs = wait_until(slurm, queue, [ids[1]], JobState.TIMED_OUT)
    assert jobs[ids[0]].state is JobState.RUNNING


def test_a_restart_of_the_controller_changes_nothing(queue: JobQueue, slurm: SlurmCluster, tmp_path: Path) -> None:
    number = queue.submit(array(tmp_path, UNTIL_TOLD, range(40), at_once=3))
    ids = element_ids(number, range(40))
    wait_until(slurm, queue, ids[:3], JobState.RUNNING)
    (tmp_path / "1.end").touch()
    wait_until(slurm, queue, [ids[1]], JobState.DONE)
    wait_until(slurm, queue, [ids[3]], JobState.RUNNING)
    before = queue.jobs()
    slurm.restart_controller()
    after = queue.jobs()
    assert {id: after[id].state for id in ids} == {id: before[id].state for id in ids}
    assert sorted(id for id in after if id.startswith(f"{number}_")) == sorted(ids)
    slurm.run("scancel", ids[20])
    assert wait_until(slurm, queue, [ids[20]], JobState.CANCELLED)[ids[21]].state is JobState.WAITING


def test_tasks_are_dealt_by_what_the_site_allows_and_it_takes_each_array(
    queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    assert queue.most_elements == 1001
    tasks = [task for task in range(2500) if task % 3]  # Pairs make the longest list of indices.
    arrays = queue.deal(tasks)
    assert [task for part in arrays for task in part] == tasks
    numbers = [
        queue.submit(
            array(
                tmp_path,
                "true",
                [task - part[0] for task in part],
                tag=JobTag.of("run", "a-1a2b3c", "/out", ArrayTasks(1, part[0])),
                resources={"slurm_extra": "--hold"},
            )
        )
        for part in arrays
    ]
    assert len(numbers) == 3
    assert sorted(job.task or 0 for job in queue.jobs().values() if job.array in numbers) == tasks
    queue.jobs()
    assert [call for call in slurm.calls("scontrol") if call == ["show", "config"]] == [["show", "config"]]


# -- with an accounting --------------------------------------------------------------------------------------


@pytest.fixture
def accounting(accounting_cluster: SlurmCluster, lab: Lab) -> Iterator[SlurmCluster]:
    """A cluster that is whole and idle, in which sacct answers."""
    accounting_cluster.reset()
    yield accounting_cluster
    accounting_cluster.reset()


@pytest.fixture
def forget(accounting: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """`forget()`: from now on squeue lists nothing here."""

    def act() -> None:
        script = tmp_path / "bin" / "squeue"
        script.parent.mkdir()
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
        assert shutil.which("squeue") == str(script)

    return act


def test_elements_that_squeue_has_forgotten_are_known_to_the_accounting(
    accounting: SlurmCluster, forget: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = _queue_of(accounting, monkeypatch)
    script = f"case $SLURM_ARRAY_TASK_ID in 0) exit 0;; 1) exit 75;; *) exec sh -c {shlex.quote(UNTIL_TOLD)};; esac"
    number = queue.submit(array(tmp_path, script, range(10), at_once=2))
    ids = element_ids(number, range(10))
    wait_until(accounting, queue, ids[:2], JobState.DONE, JobState.FAILED)
    wait_until(accounting, queue, ids[2:4], JobState.RUNNING)
    queue.cancel([ids[2]])
    wait_until(accounting, queue, [ids[2]], JobState.CANCELLED)
    wait_until(accounting, queue, [ids[4]], JobState.RUNNING)
    forget()

    def known() -> dict[str, tuple[JobState, int | None]]:
        return {id: (job.state, job.exit_code) for id, job in queue.look(ids).items()}

    accounting.wait_for(lambda: len(known()) == 3, "the database to know of three ends")
    assert known() == {
        ids[0]: (JobState.DONE, 0),
        ids[1]: (JobState.FAILED, 75),
        ids[2]: (JobState.CANCELLED, known()[ids[2]][1]),
    }
    (question,) = {tuple(call) for call in accounting.calls("sacct")}
    assert f"--jobs={number}" in question
    # The whole array is cancelled while nobody looks: also what had not begun is known to have ended so.
    accounting.run("scancel", number)
    accounting.wait_for(lambda: len(known()) == 10, "the database to know of all ends")
    assert {known()[id][0] for id in ids[3:]} == {JobState.CANCELLED}
