"""How jobs come into Slurm's queue: once, though several drivers want them, and in spite of refusals that pass; what is
said while they wait there; and whose they are."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.clusters.patience import Refusals
from marin_rules.engine.cluster_tracking import is_ours_to_cancel
from support.lab import Lab, Running
from support.slurm.cluster import SlurmCluster

STEPS = """
    import os, signal
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH

    def quick(config):
        print("done")

    def slow(config):
        path = os.path.join(config.output_path, "begun")
        if not os.path.exists(path):
            open(path, "w").close()
            signal.pause()

    def lost(config):
        pass

    resources = ResourceConfig(ram="300m")
    steps = [ExecutorStep(name, remote({function}, resources=resources), Config()) for name, {function} in {steps}]
    if __name__ == "__main__":
        executor_main(steps=steps)
    """


@pytest.fixture
def steps(lab: Lab) -> Callable[..., Path]:
    """`steps(a="quick", b="slow")` writes an experiment with steps of these names and functions."""

    def write(**functions: str) -> Path:
        pairs = ", ".join(f"({name!r}, {function})" for name, function in functions.items())
        return lab.experiment(STEPS.replace("{function}", "function").replace("{steps}", f"[{pairs}]"))

    return write


def test_two_drivers_that_start_together_submit_each_job_once(
    steps: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    in_front_of: Callable[[str, str], dict[str, str]],
    lab: Lab,
) -> None:
    file = steps(a="quick", b="quick", c="quick", d="quick")
    env = in_front_of("sbatch", "sleep 2")
    runs = [start_on_slurm("--retries", "0", experiment=file, env=env) for _ in range(2)]
    for run in runs:
        result = run.wait(180)
        assert result.code == 0, result.output
        assert "FAILED" not in result.output
    assert sorted(job.name for job in slurm.jobs()) == ["a", "b", "c", "d"]
    assert list(lab.prefix.rglob("*.lock")) == []


def test_a_driver_that_was_killed_while_it_submitted_holds_up_nobody(
    steps: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster, lab: Lab
) -> None:
    file = steps(a="quick")
    with slurm.broken("sbatch", "hangs"):
        killed = start_on_slurm(experiment=file)
        killed.wait_for(lambda: slurm.calls("sbatch"), "a submission")
        assert len(list(lab.prefix.rglob(".executor_submission.lock"))) == 1
        waiting = start_on_slurm("--retries", "0", experiment=file)
        waiting.wait_for(lambda: "1 step: 1 to run" in waiting.output, "the second driver")
        killed.kill_everything()
    result = waiting.wait(120)
    assert result.code == 0, result.output
    assert len(slurm.jobs()) == 1
    assert list(lab.prefix.rglob("*.lock")) == []


def test_refusals_that_may_pass_are_tried_again_for_a_while_and_those_that_stay_fail_at_once(
    steps: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    in_front_of: Callable[[str, str], dict[str, str]],
    tmp_path: Path,
) -> None:
    """Three steps: one is refused twice, one again and again, one for ever."""
    refuse = 'echo "sbatch: error: Batch job submission failed: Protocol authentication error" >&2; exit 1'
    env = in_front_of(
        "sbatch",
        f"""case "$*" in
        *job-name=fickle*) echo >> {tmp_path}/fickle; [ $(wc -l < {tmp_path}/fickle) -gt 2 ] || {{ {refuse}; }} ;;
        *job-name=stubborn*) echo >> {tmp_path}/stubborn; {refuse} ;;
        esac""",
    )
    run = start_on_slurm(
        "--retries", "2", "--marin-slurm-refusal-patience", "6",
        "--set-resources", "lost:slurm_partition=nowhere",
        experiment=steps(fickle="quick", stubborn="quick", astray="lost"), env=env,
    )  # fmt: skip
    result = run.wait(120)
    assert result.code != 0
    told = re.findall(r"(FAILED|done  |wait  ) (\S+?)(?::| | after.*)(.*)", result.output)
    assert [name for what, name, _ in told if what == "done  "] == ["fickle"]
    assert sorted(name for what, name, _ in told if what == "FAILED") == ["astray", "stubborn"]
    assert sorted(name for what, name, _ in told if what == "wait  ") == ["fickle", "stubborn"]
    assert "could not be submitted: sbatch failed: sbatch: error: invalid partition specified: nowhere" in result.output
    assert "Protocol authentication error; tried again for 6 s" in result.output
    assert len((tmp_path / "fickle").read_text().splitlines()) == 3
    assert len((tmp_path / "stubborn").read_text().splitlines()) >= 3  # After 0, 1 and 3 s, if the machine is quick.
    assert [job.name for job in slurm.jobs()] == ["fickle"]
    assert len([call for call in slurm.calls("sbatch") if "--job-name=astray" in call]) == 1


def test_steps_that_slurm_has_no_room_for_hold_up_no_others(
    lab: Lab,
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    in_front_of: Callable[[str, str], dict[str, str]],
    tmp_path: Path,
) -> None:
    """As many arrays as there are threads that submit are larger than what Slurm takes from a user."""
    refuse = 'echo "sbatch: error: AssocMaxSubmitJobLimit" >&2; exit 1'
    env = in_front_of("sbatch", f'case "$*" in *job-name=large*) [ -e {tmp_path}/room ] || {{ {refuse}; }} ;; esac')
    file = lab.experiment(
        """
        from marin_rules import *

        def quick(config):
            pass

        resources = ResourceConfig(ram="300m")
        large = [ExecutorStep(f"large{i}", remote(quick, tasks=2, resources=resources), {}) for i in range(2)]
        first = ExecutorStep("first", remote(quick, resources=resources), {})
        then = ExecutorStep("then", remote(quick, resources=resources), {"first": first})
        if __name__ == "__main__":
            executor_main(steps=[*large, then])
        """
    )
    run = start_on_slurm("--retries", "0", experiment=file, env=env)
    run.wait_for(lambda: "done   then" in run.output, "the end of the last step that there is room for")
    assert {job.name for job in slurm.jobs()} == {"first", "then"}
    (tmp_path / "room").touch()
    result = run.wait(120)
    assert result.code == 0, result.output
    assert result.output.count("wait   large0: sbatch failed: sbatch: error: AssocMaxSubmitJobLimit") == 1
    assert len(slurm.jobs()) == 6


def test_patience_with_refusals_ends() -> None:
    refusals = Refusals.after(None, 100.0, 300.0)
    assert refusals == Refusals(100.0, 1, 101.0)
    tries = 1
    while (following := Refusals.after(refusals, refusals.not_before, 300.0)) is not None:
        assert following.not_before - refusals.not_before <= 30.0
        refusals, tries = following, tries + 1
        assert refusals.not_before <= 400.0
    assert tries == 13
    assert Refusals.after(None, 0.0, 0.0) is None


@pytest.mark.parametrize(
    ("job_run", "driver_is_gone", "ours"),
    [
        ("own", None, True),
        ("own", False, True),
        ("other", True, True),
        ("other", False, False),
        ("other", None, False),  # Its state folder is not ours: it may well have its driver.
    ],
)
def test_which_jobs_end_with_a_run(job_run: str, driver_is_gone: bool | None, ours: bool) -> None:
    assert is_ours_to_cancel(job_run, "own", driver_is_gone) is ours


def test_ctrl_c_leaves_a_job_alone_whose_run_is_not_known(
    steps: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster, lab: Lab, tmp_path: Path
) -> None:
    file = steps(patient="slow")
    one = start_on_slurm("--retries", "0", experiment=file)
    one.wait_for(lambda: list((tmp_path / "out").glob("patient-*/begun")), "the step to begin")
    (job,) = slurm.jobs()
    two = start_on_slurm("--retries", "0", experiment=file, env={"XDG_STATE_HOME": str(tmp_path / "elsewhere")})
    two.wait_for(lambda: "found  patient" in two.output, "the job to be found")
    two.interrupt()
    result = two.wait(60)
    assert result.code != 0
    assert f"left   patient: slurm job {job.id} belongs to run experiment-" in result.output
    assert slurm.calls("scancel") == []
    assert slurm.job(job.id).state == "RUNNING"
    slurm.run("scontrol", "requeue", job.id)
    result = one.wait(120)
    assert result.code == 0, result.output
    assert len(slurm.jobs()) == 1


def test_a_job_that_cannot_start_is_told_with_slurms_reason_once(
    steps: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster
) -> None:
    run = start_on_slurm(
        "--set-resources", "quick:slurm_extra=--hold", "lost:runtime=600",
        experiment=steps(held="quick", also="quick", long="lost"),
    )  # fmt: skip
    run.wait_for(lambda: run.output.count("waits  ") == 3, "a word about each job")
    asked = len(slurm.calls("squeue"))
    run.wait_for(lambda: len(slurm.calls("squeue")) > asked + 2, "further looks at the queue")
    numbers = {job.name: job.id for job in slurm.jobs()}
    told = dict(re.findall(r"waits  (\S+): slurm job (.*)", run.output))
    first, second = sorted(("held", "also"), key=lambda name: ":" not in told[name])
    assert told == {
        first: f"{numbers[first]} has JobHeldUser: it is held; `scontrol release {numbers[first]}` releases it",
        second: f"{numbers[second]} has JobHeldUser",
        "long": f"{numbers['long']} has PartitionTimeLimit: it asks for more time than the partition gives; ask for"
        " less, or name another partition",
    }
    run.interrupt()
    assert run.wait(60).code != 0


def test_jobs_of_others_with_odd_comments_hold_up_neither_submission_nor_watch(
    steps: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster, tmp_path: Path
) -> None:
    latin = "--comment=" + os.fsdecode(b"pr\xfcfung")
    slurm.submit("exec true", "--hold", latin)
    run = start_on_slurm("--retries", "0", experiment=steps(patient="slow"))
    run.wait_for(lambda: list((tmp_path / "out").glob("patient-*/begun")), "the step to begin")
    slurm.submit("exec true", "--hold", latin)
    slurm.submit("exec true", "--hold", "--comment=" + "\N{SNOWMAN}" * 334)
    asked = len(slurm.calls("squeue"))
    run.wait_for(lambda: len(slurm.calls("squeue")) > asked + 1, "a look at the queue")
    job = next(job for job in slurm.jobs() if job.name == "patient")
    slurm.run("scontrol", "requeue", job.id)
    result = run.wait(120)
    assert result.code == 0, result.output
    assert "slurm does not answer" not in result.output


def test_a_job_with_a_comment_of_the_users_own_is_found_again(
    steps: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster
) -> None:
    file = steps(a="slow")
    own = ["--set-resources", "slow:slurm_extra='--hold --comment \"of the lab\" --nice=5'"]
    killed = start_on_slurm(*own, experiment=file)
    killed.wait_for(lambda: "waits  a: " in killed.output, "the job in the queue")
    os.kill(killed.pid, signal.SIGKILL)
    killed.process.wait()
    run = start_on_slurm(*own, experiment=file)
    run.wait_for(lambda: "  a: slurm job " in run.output, "what the second driver does about the step")
    (job,) = slurm.jobs()
    assert f"found  a: slurm job {job.id} of " in run.output
    assert re.fullmatch(r"marin-rules:\S+ of the lab", job.comment)


def test_variables_that_narrow_down_what_slurms_commands_see_hide_no_jobs(
    steps: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster, lab: Lab
) -> None:
    """People set them for their own lists, and forget them. The job is in the partition `cpu`."""
    env = {"SQUEUE_PARTITION": "gpu", "SQUEUE_NAMES": "mine", "SCANCEL_PARTITION": "gpu", "SINFO_PARTITION": "spare"}
    file = steps(a="slow")
    killed = start_on_slurm("--retries", "0", experiment=file, env=env)
    killed.wait_for(lambda: list(lab.prefix.glob("a-*/begun")), "the step to begin")
    os.kill(killed.pid, signal.SIGKILL)
    killed.process.wait()
    (job,) = slurm.jobs()
    assert job.partition == "cpu"
    run = start_on_slurm("--retries", "0", experiment=file, env=env)
    run.wait_for(lambda: "  a: " in run.output, "what the second driver does about the step")
    assert f"found  a: slurm job {job.id} of " in run.output
    run.interrupt()
    assert f"cancelled slurm jobs {job.id}" in run.wait().output
    slurm.wait_for_state(job.id, "CANCELLED", "FAILED")


def test_settings_of_sbatch_make_neither_several_jobs_of_one_nor_another_log(
    steps: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster, tmp_path: Path
) -> None:
    errors = tmp_path / "errors"
    env = {"SBATCH_ARRAY_INX": "0-1", "SBATCH_ERROR": str(errors), "SBATCH_WAIT": "1", "SBATCH_PARTITION": "spare"}
    run = start_on_slurm(
        "--retries", "0", "--set-resources", "quick:slurm_partition=", experiment=steps(a="quick"), env=env
    )
    result = run.wait(120)
    assert result.code == 0, result.output
    (job,) = slurm.jobs()
    assert (job.id.isdecimal(), job.partition) == (True, "spare")
    assert not errors.exists()
