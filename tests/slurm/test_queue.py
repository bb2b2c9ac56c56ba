"""Tags of jobs, states and what they mean, and the sbatch line."""

import pytest

from marin_rules.slurm.commands import SlurmBusyError, SlurmError, run_command
from marin_rules.slurm.queue import SlurmJob, Tag, live_job_of, our_jobs
from marin_rules.slurm.states import Meaning, meaning_of
from marin_rules.slurm.submission import Submission
from slurm.cluster import SlurmCluster


@pytest.mark.parametrize("run", ["run-20261116-1a2b3c", "a:b c%20", "größe"])
@pytest.mark.parametrize("step", ["train/base-1a2b3c", "a%20b-ffffff"])
def test_a_tag_survives_as_a_comment(run: str, step: str) -> None:
    tag = Tag.of(run, step, "/shared/out/x")
    assert Tag.parse(str(tag)) == tag
    assert " " not in str(tag)


@pytest.mark.parametrize("comment", ["", "(null)", "rule_x_wildcards_y", "marin-rules", "marin-rules:a:b", "x:a:b:c"])
def test_comments_of_others_are_no_tags(comment: str) -> None:
    assert Tag.parse(comment) is None


def test_the_same_step_below_another_prefix_is_another_step() -> None:
    wanted = Tag.of("new", "train-1a2b3c", "/one/train-1a2b3c")
    same, other = (Tag.of("old", "train-1a2b3c", path) for path in ("/one/train-1a2b3c", "/two/train-1a2b3c"))
    jobs = [
        SlurmJob("1", "CANCELLED", tag=same),
        SlurmJob("2", "RUNNING", tag=other),
        SlurmJob("3", "RUNNING"),
        SlurmJob("4", "PENDING", tag=same),
    ]
    found = live_job_of(wanted, jobs)
    assert found is not None
    assert found.id == "4"
    assert live_job_of(wanted, jobs[:3]) is None


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("PENDING", Meaning.LIVE),
        ("COMPLETING", Meaning.LIVE),
        ("REQUEUED", Meaning.LIVE),
        ("SUSPENDED", Meaning.LIVE),
        ("A_STATE_OF_TOMORROW", Meaning.LIVE),
        ("COMPLETED", Meaning.DONE),
        ("FAILED", Meaning.FAILED),
        ("OUT_OF_MEMORY", Meaning.OUT_OF_MEMORY),
        ("TIMEOUT", Meaning.TIMED_OUT),
        ("CANCELLED", Meaning.CANCELLED),
        ("PREEMPTED", Meaning.INTERRUPTED),
        ("NODE_FAIL", Meaning.INTERRUPTED),
        ("BOOT_FAIL", Meaning.INTERRUPTED),
    ],
)
def test_what_states_mean(state: str, meaning: Meaning) -> None:
    assert meaning_of(state) is meaning


def test_only_what_is_asked_for_stands_in_the_command() -> None:
    tag = Tag.of("run", "step-1a2b3c", "/out")
    submission = Submission(
        name="a step; rm -rf /",
        tag=tag,
        command="source run-step",
        log="/logs/%j.log",
        folder="/work dir",
        resources={"mem_mb": 500, "qos": None, "constraint": "", "slurm_extra": "--mail-type=FAIL --nice='5'"},
    )
    words = submission.words()
    assert words[0] == "sbatch"
    assert set(words[1:]) == {
        "--parsable", "--job-name=a step; rm -rf /", f"--comment={tag}", "--output=/logs/%j.log", "--open-mode=append",
        "--chdir=/work dir", "--export=ALL", "--requeue", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1",
        "--mem=500", "--mail-type=FAIL", "--nice=5",
    }  # fmt: skip
    assert submission.script() == "#!/usr/bin/env bash\nsource run-step\n"


def test_jobs_are_found_with_their_tags_and_restarts(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    tag = Tag.of("run", "train/base-1a2b3c", "/out")
    one = slurm.submit("exec sleep 60", f"--comment={tag}")
    two = slurm.submit("exec sleep 60", "--comment=a | b\tc", "--begin=now+1hour")
    slurm.wait_for_state(one, "RUNNING")
    slurm.run("scontrol", "requeue", one)
    slurm.wait_for(lambda: our_jobs()[one].restarts == 1, "the restart to be seen")
    jobs = our_jobs()
    assert jobs[one].tag == tag
    assert (jobs[two].state, jobs[two].reason, jobs[two].tag) == ("PENDING", "BeginTime", None)
    assert jobs[two].partition == "cpu"


def test_trouble_that_passes_is_told_from_trouble_that_stays(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    with slurm.broken("squeue", "fails"), pytest.raises(SlurmBusyError, match="squeue failed"):
        our_jobs()
    with slurm.broken("squeue", "hangs"), pytest.raises(SlurmBusyError, match="no answer for 1 s"):
        run_command("squeue", timeout=1.0)
    with pytest.raises(SlurmError, match=r"sbatch failed: .*invalid partition") as caught:
        run_command("sbatch", "--partition=nowhere", stdin="#!/bin/sh\ntrue\n")
    assert not isinstance(caught.value, SlurmBusyError)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmError, match="squeue is not on this machine"):
        our_jobs()
