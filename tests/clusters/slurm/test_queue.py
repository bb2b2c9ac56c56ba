"""Tags of jobs, states and what they mean, and the sbatch line."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.clusters.patience import pause_seconds
from marin_rules.clusters.protocol import (
    JOB,
    ArrayTasks,
    BusyError,
    ClusterError,
    ClusterJob,
    JobRequest,
    JobState,
    JobTag,
    live_jobs_of,
)
from marin_rules.clusters.slurm.commands import run_command
from marin_rules.clusters.slurm.job_queue import SlurmQueue
from marin_rules.clusters.slurm.reasons import advice_about
from marin_rules.clusters.slurm.refusals import Refusal, kind_of
from marin_rules.clusters.slurm.states import state_of
from marin_rules.clusters.slurm.submission import batch_script, sbatch_environment, sbatch_words
from support.slurm.cluster import SlurmCluster


@pytest.mark.parametrize("run", ["run-20261116-1a2b3c", "a:b c%20", "größe"])
@pytest.mark.parametrize("step", ["train/base-1a2b3c", "a%20b-ffffff"])
@pytest.mark.parametrize("tasks", [None, ArrayTasks(round=2, first=1000)])
def test_a_tag_survives_as_a_comment(run: str, step: str, tasks: ArrayTasks | None) -> None:
    tag = JobTag.of(run, step, "/shared/out/x", tasks)
    assert JobTag.parse(str(tag)) == tag
    assert " " not in str(tag)


def test_the_tag_of_a_job_that_is_no_array_is_what_it_was_before_there_were_any() -> None:
    tag = JobTag("run-1", "train-1a2b3c", "0123456789ab")
    assert str(tag) == "marin-rules:run-1:train-1a2b3c:0123456789ab"
    assert str(replace(tag, tasks=ArrayTasks(2, 64))) == f"{tag}:2:64"


def test_an_element_knows_its_task_and_its_array() -> None:
    tag = JobTag("run-1", "train-1a2b3c", "0123456789ab", ArrayTasks(1, 64))
    element = ClusterJob("slurm", "7_17", JobState.RUNNING, "RUNNING", tag=tag, element=17)
    assert (element.task, element.array) == (81, "7")
    assert replace(element, tag=None).task is None
    whole = replace(element, id="7", element=None)
    assert (whole.task, whole.array) == (None, None)


@pytest.mark.parametrize(
    "comment",
    [
        "", "(null)", "rule_x_wildcards_y", "marin-rules", "marin-rules:a:b", "x:a:b:c", "marin-rules:a:b:c:1",
        "marin-rules:a:b:c:1:x", "marin-rules:a:b:c:-1:0", "x:a:b:c:1:0", "marin-rules:a:b:c:1:0:2",
    ],
)  # fmt: skip
def test_comments_of_others_are_no_tags(comment: str) -> None:
    assert JobTag.parse(comment) is None


def job(number: str, word: str, tag: JobTag | None = None) -> ClusterJob:
    return ClusterJob("slurm", number, state_of(word), word, tag=tag)


def test_the_same_step_below_another_prefix_is_another_step() -> None:
    wanted = JobTag.of("new", "train-1a2b3c", "/one/train-1a2b3c")
    same, other = (JobTag.of("old", "train-1a2b3c", path) for path in ("/one/train-1a2b3c", "/two/train-1a2b3c"))
    jobs = [
        job("1", "CANCELLED", tag=same),
        job("2", "RUNNING", tag=other),
        job("3", "RUNNING"),
        job("4", "PENDING", tag=same),
    ]
    assert [job.id for job in live_jobs_of(wanted, jobs)] == ["4"]
    assert live_jobs_of(wanted, jobs[:3]) == []


def test_only_what_is_asked_for_stands_in_the_command() -> None:
    tag = JobTag.of("run", "step-1a2b3c", "/out")
    request = JobRequest(
        name="a step; rm -rf /",
        tag=tag,
        script="source run-step",
        variables={},
        log=f"/logs/100%/{JOB}.log",
        folder="/work dir",
        resources={"mem_mb": 500, "qos": None, "constraint": "", "slurm_extra": "--mail-type=FAIL --nice='5'"},
    )
    words = sbatch_words(request)
    assert words[0] == "sbatch"
    assert set(words[1:]) == {
        "--parsable", "--job-name=a step; rm -rf /", f"--comment={tag}", "--output=/logs/100%%/%j.log",
        "--open-mode=append", "--chdir=/work dir", "--export=ALL", "--requeue", "--nodes=1", "--ntasks=1",
        "--ntasks-per-node=1", "--mem=500", "--mail-type=FAIL", "--nice=5",
    }  # fmt: skip
    assert batch_script(request) == "#!/usr/bin/env bash\nsource run-step\n"


def test_a_job_that_is_given_no_path_has_the_usual_one() -> None:
    ours = {"SLURM_CONF": "/etc/slurm.conf", "PATH": "/home/ann/bin"}
    assert sbatch_environment({"LANG": "C"}, ours) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "LANG": "C",
    }
    assert sbatch_environment({"PATH": "/opt/bin"}, {}) == {"PATH": "/opt/bin"}


@pytest.mark.parametrize(
    ("elements", "at_once", "word"),
    [
        ([*range(64), 70], 8, "--array=0-63,70%8"),
        ([0], None, "--array=0"),
        ([0, 1, 5, 6, 7], 1, "--array=0-1,5-7%1"),
    ],
)
def test_an_array_is_one_command_with_a_log_for_each_element(
    elements: list[int], at_once: int | None, word: str
) -> None:
    words = sbatch_words(
        JobRequest("a", "true", {}, "/", f"/logs/100%/{JOB}.log", {}, elements=elements, at_once=at_once)
    )
    assert [each for each in words if each.startswith("--array")] == [word]
    assert "--output=/logs/100%%/%A_%a.log" in words


@pytest.mark.parametrize("extra", ["--comment=lab --nice", "--comment x --nice --comment lab"])
def test_a_comment_of_the_users_own_comes_after_the_tag(extra: str) -> None:
    tag = JobTag("run-1", "train-1a2b3c", "0123456789ab")
    for given, comment in ((tag, f"{tag} lab"), (None, "lab")):
        words = sbatch_words(JobRequest("a", "true", {}, "/", "/logs", {"slurm_extra": extra}, tag=given))
        assert [word for word in words if "lab" in word] == [f"--comment={comment}"]
        assert words[-1] == "--nice"


def test_jobs_are_found_with_their_tags_and_restarts(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    tag = JobTag.of("run", "train/base-1a2b3c", "/out")
    one = slurm.submit("exec sleep 60", f"--comment={tag}")
    two = slurm.submit("exec sleep 60", "--comment=a | b\tc", "--begin=now+1hour")
    slurm.wait_for_state(one, "RUNNING")
    slurm.run("scontrol", "requeue", one)
    slurm.wait_for(lambda: SlurmQueue().jobs()[one].restarts == 1, "the restart to be seen")
    jobs = SlurmQueue().jobs()
    assert jobs[one].tag == tag
    assert (jobs[two].word, jobs[two].reason, jobs[two].tag) == ("PENDING", "BeginTime", None)
    assert jobs[two].state is JobState.WAITING


FOREIGN_COMMENTS = [
    os.fsdecode(b"pr\xfcfung"),  # Latin-1
    "\N{SNOWMAN}" * 334,
    "marin-rules:a:b",
]


def test_jobs_of_others_with_whatever_comments_are_no_trouble(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    tag = JobTag.of("run", "train/base-1a2b3c", "/out")
    foreign = [slurm.submit("exec true", "--hold", f"--comment={comment}") for comment in FOREIGN_COMMENTS]
    own = slurm.submit("exec true", "--hold", f"--comment={tag}")
    jobs = SlurmQueue().jobs()
    assert {number: jobs[number].tag for number in [*foreign, own]} == {**dict.fromkeys(foreign), own: tag}
    assert {jobs[number].state for number in foreign} == {JobState.WAITING}


@pytest.mark.processes
def test_a_comment_with_our_separators_is_taken_for_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    said.write_text(
        "7\x1fN/A\x1fRUNNING\x1f\x1fcpu1\x1f1:00\x1f0\x1f0\x1fx\x1fy\x1ez\x1fa\x1fb\x1fc\x1fd\x1fe\x1ff\x1fg\x1fh\x1e"
        "\n8\x1f\x1e"
    )
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\nexec cat {said}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert {job.id: (job.word, job.nodes, job.tag) for job in SlurmQueue().jobs().values()} == {
        "7": ("RUNNING", "cpu1", None)
    }


@pytest.mark.processes
@pytest.mark.parametrize("extra", [b"", b"\xff\xfe", "\N{SNOWMAN}".encode()[:2]])
def test_what_slurm_prints_need_not_be_text(extra: bytes, tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.write_bytes(b"one " + extra)
    assert run_command("cat", str(said)).startswith("one ")
    with pytest.raises(ClusterError, match="sh failed: one"):
        run_command("sh", "-c", f"cat {said} >&2; exit 1")
    assert run_command("cat", stdin=os.fsdecode(b"in a \xff folder")) == "in a \N{REPLACEMENT CHARACTER} folder"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", Refusal.PASSING),
        ("Batch job submission failed: Socket timed out on send/recv operation", Refusal.PASSING),
        ("Batch job submission failed: Slurm temporarily unable to accept job, sleeping and retrying", Refusal.PASSING),
        (
            "AssocMaxSubmitJobLimit; Batch job submission failed: Job violates accounting/QOS policy"
            " (job submit limit, user's size and/or time limits)",
            Refusal.FULL,
        ),
        (
            "QOSMaxCpuPerJobLimit; Batch job submission failed: Job violates accounting/QOS policy"
            " (job submit limit, user's size and/or time limits)",
            Refusal.LASTING,
        ),
        ("invalid partition specified: nowhere", Refusal.LASTING),
        ("Batch job submission failed: Invalid account or account/partition combination specified", Refusal.LASTING),
        ("Batch job submission failed: Invalid qos specification", Refusal.LASTING),
        ("Batch job submission failed: Requested node configuration is not available", Refusal.LASTING),
        ("Batch job submission failed: Invalid generic resource (gres) specification", Refusal.LASTING),
        ("Batch job submission failed: Invalid feature specification", Refusal.LASTING),
        ("CPU count per node can not be satisfied", Refusal.LASTING),
        ("Memory specification can not be satisfied", Refusal.LASTING),
        ("unrecognized option '--nonsense'", Refusal.LASTING),
        ("Batch job submission failed: Protocol authentication error", Refusal.UNKNOWN),
        ("Batch job submission failed: I/O error writing script/environment to file", Refusal.UNKNOWN),
        ("Batch job submission failed: Unspecified error", Refusal.UNKNOWN),
        ("Access/permission denied", Refusal.UNKNOWN),  # So it is said, too, while users are read anew.
        ("", Refusal.UNKNOWN),
    ],
)
def test_what_a_refusal_says_about_another_try(message: str, kind: Refusal) -> None:
    assert kind_of(message) is kind


def test_pauses_grow_up_to_a_bound() -> None:
    assert [pause_seconds(tries) for tries in (1, 2, 3, 5, 6, 7, 10_000)] == [1, 2, 4, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("", None),
        ("None", None),
        ("Priority", None),
        ("Resources", None),
        ("BeginTime", None),
        ("Dependency", None),
        ("AReasonOfTomorrow", None),
        ("JobHeldUser", "`scontrol release 7` releases it"),
        ("JobHeldAdmin", "ask an administrator"),
        ("launch failed requeued held", "`scontrol release 7`"),
        ("job_requeued_in_held_state", "`scontrol release 7`"),
        ("DependencyNeverSatisfied", "`scancel 7`"),
        ("PartitionTimeLimit", "more time than the partition gives"),
        ("PartitionNodeLimit", "machines than the partition has"),
        ("PartitionDown", "takes no jobs now"),
        ("BadConstraints", "no machine has what it asks for"),
        ("ReqNodeNotAvail, UnavailableNodes:cpu[1-2]", "down, drained or reserved"),
        ("(ReqNodeNotAvail, May be reserved for other job)", "down, drained or reserved"),
        ("QOSNotAllowed", "may not use the partition"),
        ("AssocMaxCpuPerJobLimit", "a limit lets no job have"),
        ("QOSMaxWallDurationPerJobLimit", "a limit lets no job have"),
        ("AssocGrpCpuLimit", "a limit of your account or QOS"),
        ("QOSMaxCpuPerUserLimit", "a limit of your account or QOS"),
        ("QOSMaxJobsPerUserLimit", "a limit of your account or QOS"),
    ],
)
def test_reasons_to_wait_that_somebody_has_to_hear_of(reason: str, advice: str | None) -> None:
    told = advice_about(reason, "7")
    assert (told is None) == (advice is None)
    assert advice is None or (told is not None and advice in told)


def test_trouble_that_passes_is_told_from_trouble_that_stays(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    with slurm.broken("squeue", "fails"), pytest.raises(BusyError, match="squeue failed"):
        SlurmQueue().jobs()
    with slurm.broken("squeue", "hangs"), pytest.raises(BusyError, match="no answer for 1 s"):
        run_command("squeue", timeout=1.0)
    with pytest.raises(ClusterError, match=r"sbatch failed: .*invalid partition") as caught:
        run_command("sbatch", "--partition=nowhere", stdin="#!/bin/sh\ntrue\n")
    assert not isinstance(caught.value, BusyError)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="squeue is not on this machine"):
        SlurmQueue().jobs()
