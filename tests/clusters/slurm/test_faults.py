"""What goes wrong on a cluster, for real: each test breaks something while a step runs, and looks at what comes of it.

The step of all these tests counts its attempts in a checkpoint. It ends at the attempt that it was told to, and before
that waits for ever: so a test knows that it runs, and an attempt that comes to the end has found the checkpoint.
"""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab import Lab, Result, Running
from support.slurm.cluster import SlurmCluster

COUNTING = """
    import os, signal
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        last_attempt: int
        output_path: str = THIS_OUTPUT_PATH

    def count(config):
        path = os.path.join(config.output_path, "checkpoint")
        attempt = 1
        if os.path.exists(path):
            with open(path) as file:
                attempt += int(file.read())
        with open(path + ".new", "w") as file:
            file.write(str(attempt))
        os.replace(path + ".new", path)
        while attempt < config.last_attempt:
            signal.pause()
        print("came to the end at attempt", attempt)

    resources = ResourceConfig(ram="300m", **{options})
    steps = [ExecutorStep(name, remote(count, resources=resources), Config(versioned({attempts}))) for name in {names}]
    if __name__ == "__main__":
        executor_main(steps=steps)
    """


@pytest.fixture
def counting(lab: Lab) -> Callable[..., Path]:
    """`counting(attempts)` writes the experiment; `names` are those of its steps, the rest goes to their resources."""

    def write(attempts: int, names: tuple[str, ...] = ("patient",), **options: Any) -> Path:
        source = COUNTING.replace("{options}", repr(options))
        return lab.experiment(source.replace("{attempts}", str(attempts)).replace("{names}", repr(names)))

    return write


@pytest.fixture
def wait_for_attempt(lab: Lab) -> Callable[..., None]:
    """`wait_for_attempt(run, 1)` waits until that attempt of the step has left its checkpoint."""

    def wait(run: Running, attempt: int, name: str = "patient") -> None:
        def is_there() -> bool:
            return [path.read_text() for path in lab.prefix.glob(f"{name}-*/checkpoint")] == [str(attempt)]

        run.wait_for(is_there, f"attempt {attempt} of {name}")

    return wait


@pytest.fixture
def wait_until_free(lab: Lab) -> Callable[..., None]:
    """Waits until nobody holds the lease of a step."""

    def wait(name: str = "patient") -> None:
        lease = lab.folder_of(name) / ".executor_status.lock"
        lab.wait_until(lambda: not lease.exists(), f"the lease of {name} to be free")

    return wait


def test_a_job_that_a_person_cancels_is_not_tried_again(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
    lab: Lab,
    wait_until_free: Callable[..., None],
) -> None:
    run = start_on_slurm("--retries", "3", experiment=counting(2))
    wait_for_attempt(run, 1)
    (job,) = slurm.jobs()
    slurm.run("scancel", job.id)
    result = run.wait()
    assert result.code != 0
    assert re.search(rf"stopped patient after .*: slurm job {job.id} was cancelled on {job.nodes}", result.output)
    assert len(slurm.calls("sbatch")) == 1
    assert lab.status_of("patient") == "CANCELLED"
    wait_until_free()


@pytest.mark.parametrize("how", ["requeued by hand", "preempted", "node set down"])
def test_a_job_that_slurm_starts_again_goes_on_from_its_checkpoint(
    how: str,
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
    lab: Lab,
) -> None:
    run = start_on_slurm("--retries", "0", "--set-resources", "count:slurm_partition=spare", experiment=counting(2))
    wait_for_attempt(run, 1)
    (job,) = slurm.jobs()
    run.wait_for(lambda: f"start  patient on {job.nodes}" in run.output, "a word about its start")
    if how == "requeued by hand":
        slurm.run("scontrol", "requeue", job.id)
    elif how == "preempted":
        slurm.submit("exec true", "--partition=urgent", f"--nodelist={job.nodes}", "--exclusive", "--mem=3900")
    else:
        slurm.set_down(job.nodes)
    result = run.wait(120)
    assert result.code == 0, result.output
    assert lab.status_of("patient") == "SUCCESS"
    assert len(slurm.calls("sbatch")) == 1
    assert lab.info_of("patient")["run"]["attempt"] == 2
    assert lab.info_of("patient")["run"]["slurm"]["restarts"] == 1
    told = f"again  patient: taken off {job.nodes}, queued again by Slurm (1 of at most 20)"
    assert told in result.output, result.output


def test_a_job_that_is_preempted_for_good_is_submitted_again(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
    lab: Lab,
) -> None:
    run = start_on_slurm("--retries", "0", "--set-resources", "count:slurm_partition=scavenge", experiment=counting(2))
    wait_for_attempt(run, 1)
    (job,) = slurm.jobs()
    slurm.submit("exec true", "--partition=urgent", f"--nodelist={job.nodes}", "--exclusive", "--mem=3900")
    result = run.wait(120)
    assert result.code == 0, result.output
    assert f"again  patient: slurm job {job.id} was PREEMPTED" in result.output
    assert "1 of at most 20" in result.output
    assert len(slurm.calls("sbatch")) == 2
    assert lab.info_of("patient")["run"]["attempt"] == 2


def test_a_step_may_lose_its_machine_only_so_often(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
) -> None:
    run = start_on_slurm(
        "--retries", "0", "--marin-slurm-max-interruptions", "0",
        "--set-resources", "count:slurm_partition=scavenge", experiment=counting(2),
    )  # fmt: skip
    wait_for_attempt(run, 1)
    (job,) = slurm.jobs()
    slurm.submit("exec true", "--partition=urgent", f"--nodelist={job.nodes}", "--exclusive", "--mem=3900")
    result = run.wait(120)
    assert result.code != 0
    assert f"slurm job {job.id} was PREEMPTED" in result.output
    assert "interruptions so far: 1, allowed: 0" in result.output
    assert len(slurm.calls("sbatch")) == 1


def test_a_node_that_loses_its_power_takes_no_step_with_it(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm_with_hosts: SlurmCluster,
    wait_for_attempt: Callable[..., None],
    lab: Lab,
) -> None:
    """Nobody gives the lease back: the next attempt, on another node, takes it over when it has expired."""
    run = start_on_slurm("--retries", "0", experiment=counting(2))
    wait_for_attempt(run, 1)
    (job,) = slurm_with_hosts.jobs()
    slurm_with_hosts.kill_node(job.nodes)
    result = run.wait(180)
    assert result.code == 0, result.output
    assert lab.info_of("patient")["run"]["attempt"] == 2
    assert lab.info_of("patient")["run"]["slurm"]["nodes"] != job.nodes
    slurm_with_hosts.start_node(job.nodes)


def test_a_time_limit_is_survived_by_a_step_that_makes_progress(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
    lab: Lab,
) -> None:
    run = start_on_slurm("--retries", "0", "--set-resources", "count:runtime=5", experiment=counting(2))
    wait_for_attempt(run, 1)
    (job,) = slurm.jobs()
    slurm.run_out_of_time(job.id)
    result = run.wait(120)
    assert result.code == 0, result.output
    assert f"again  patient: slurm job {job.id} was TIMEOUT" in result.output
    assert lab.info_of("patient")["run"]["attempt"] == 2


def test_a_time_limit_is_a_failure_of_a_step_that_wrote_nothing(
    lab: Lab, start_on_slurm: Callable[..., Running], slurm: SlurmCluster, tmp_path: Path
) -> None:
    file = lab.experiment(
        """
        import os, signal
        from marin_rules import *

        def wait(config):
            os.mkdir("begun")
            signal.pause()

        step = ExecutorStep("idle", remote(wait, resources=ResourceConfig(ram="300m")), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    run = start_on_slurm("--retries", "0", "--set-resources", "wait:runtime=5", experiment=file)
    run.wait_for((tmp_path / "begun").exists, "the step to begin")
    (job,) = slurm.jobs()
    slurm.run_out_of_time(job.id)
    result = run.wait(120)
    assert result.code != 0
    assert f"slurm job {job.id} reached its time limit" in result.output
    assert len(slurm.calls("sbatch")) == 1


def test_a_step_that_needs_too_much_memory_is_tried_again_with_more(
    lab: Lab, run_on_slurm: Callable[..., Result], slurm: SlurmCluster
) -> None:
    file = lab.experiment(
        """
        import os, time
        from marin_rules import *

        def fill(config):
            data = bytearray(os.urandom(1 << 20)) * 450
            deadline = time.monotonic() + (30 if int(os.environ["SLURM_MEM_PER_NODE"]) < 500 else 3)
            while time.monotonic() < deadline:  # Slurm looks once a second.
                data[:: 1 << 12] = bytes(len(data[:: 1 << 12]))
            print("had enough")

        step = ExecutorStep("large", remote(fill, resources=ResourceConfig(ram="300m")), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    result = run_on_slurm("--retries", "1", experiment=file)
    assert result.code == 0, result.output
    assert [re.findall(r"--mem=(\d+)", " ".join(call)) for call in slurm.calls("sbatch")] == [["300"], ["600"]]


def test_a_step_that_fails_shows_its_log_and_gets_more_time_and_memory_at_each_retry(
    lab: Lab, run_on_slurm: Callable[..., Result], slurm: SlurmCluster, cluster_file: Callable[[str], str]
) -> None:
    name = cluster_file("slurm: {partition: cpu, runtime: 5m, max_runtime: 8m, max_memory: 700m}")
    file = lab.experiment(
        """
        from marin_rules import *

        def fail(config):
            print("on my way")
            raise ValueError("no luck")

        step = ExecutorStep("unlucky", remote(fail, resources=ResourceConfig(ram="300m", replicas=2)), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    result = run_on_slurm("--retries", "2", experiment=file, config={"cluster": name})
    assert result.code != 0
    calls = [" ".join(call) for call in slurm.calls("sbatch")]
    assert [re.findall(r"--(?:mem|time)=(\d+)", call) for call in calls] == [["300", "5"], ["600", "8"], ["700", "8"]]
    assert result.output.count("FAILED unlucky") == 3
    assert re.search(r"\[unlucky\] \[rank [01]\] on my way", result.output)
    assert re.search(r"\[unlucky\] \[rank [01]\] ValueError: no luck", result.output)
    assert "0 done, 1 failed, 0 not run" in result.output


def test_the_end_of_a_log_larger_than_memory_is_shown_when_its_step_fails(
    lab: Lab, start_on_slurm: Callable[..., Running]
) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import *

        def fail(config):
            os.truncate(os.path.join(config["out"], ".executor_log"), 4 << 30)  # A hole: it takes no room on the disk.
            print("\\n" + "x" * 5000)
            raise ValueError("no luck")

        resources = ResourceConfig(ram="300m")
        step = ExecutorStep("talkative", remote(fail, resources=resources), {"out": this_output_path()})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    run = start_on_slurm("--retries", "0", experiment=file)
    run.wait_for(lambda: "[talkative] ValueError: no luck\n" in run.output, "the end of the log")
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{run.pid}/status").read_text())
    assert peak is not None
    assert int(peak[1]) < 1 << 19, "the driver has read the whole log"
    result = run.wait()
    assert result.code != 0
    assert f"[talkative] {'x' * 1000} ...\n" in result.output


def test_the_controller_may_be_restarted_during_a_run(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
    lab: Lab,
) -> None:
    run = start_on_slurm("--retries", "0", experiment=counting(2, names=("first", "second")))
    wait_for_attempt(run, 1, "first")
    wait_for_attempt(run, 1, "second")
    slurm.restart_controller()
    for job in slurm.jobs():
        slurm.run("scontrol", "requeue", job.id)
    result = run.wait(120)
    assert result.code == 0, result.output
    assert len(slurm.calls("sbatch")) == 2
    assert [path.read_text() for path in lab.prefix.glob("*/checkpoint")] == ["2", "2"]


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_nothing_is_concluded_while_slurm_does_not_answer(
    how: Any,
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
) -> None:
    run = start_on_slurm("--retries", "0", experiment=counting(2))
    wait_for_attempt(run, 1)
    (job,) = slurm.jobs()
    with slurm.broken("squeue", how), slurm.broken("sacct", how):
        asked = len(slurm.calls("squeue"))
        run.wait_for(lambda: len(slurm.calls("squeue")) > asked, "a question to Slurm")
        if how == "fails":
            run.wait_for(lambda: "slurm does not answer" in run.output, "a word about it")
        slurm.run("scontrol", "requeue", job.id)
        wait_for_attempt(run, 2)
        if how == "fails":  # The step's own status tells that it is done.
            assert run.wait(60).code == 0
    result = run.wait(120)
    assert result.code == 0, result.output
    assert len(slurm.calls("sbatch")) == 1


def test_a_submission_that_slurm_has_no_time_for_is_made_later(
    counting: Callable[..., Path], start_on_slurm: Callable[..., Running], slurm: SlurmCluster
) -> None:
    with slurm.broken("sbatch", "fails"):
        run = start_on_slurm("--retries", "0", experiment=counting(1))
        run.wait_for(lambda: len(slurm.calls("sbatch")) > 1, "a second try")
    result = run.wait(120)
    assert result.code == 0, result.output
    assert "will try again" in result.output
    assert len(slurm.jobs()) == 1


def test_a_driver_that_was_killed_is_started_again_and_takes_its_jobs_up(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
    lab: Lab,
) -> None:
    """One of its jobs runs, the other one waits for the node that the first one has."""
    overrides = ["--set-resources", "count:slurm_extra=--exclusive --nodelist=cpu1"]
    file = counting(2, names=("first", "second"))
    run = start_on_slurm(*overrides, experiment=file)
    run.wait_for(lambda: len(slurm.jobs()) == 2, "both jobs in the queue")
    run.wait_for(lambda: {job.state for job in slurm.jobs()} == {"RUNNING", "PENDING"}, "one of them running")
    running = next(job for job in slurm.jobs() if job.state == "RUNNING")
    wait_for_attempt(run, 1, running.name)
    os.kill(run.pid, signal.SIGKILL)
    run.process.wait()

    again = start_on_slurm(*overrides, experiment=file)
    again.wait_for(lambda: again.output.count("found  ") == 2, "both jobs to be found")
    slurm.run("scontrol", "requeue", running.id)  # It goes on from its checkpoint, after the other one.
    waiting = next(job for job in slurm.jobs() if job.id != running.id)
    wait_for_attempt(again, 1, waiting.name)
    slurm.run("scontrol", "requeue", waiting.id)
    result = again.wait(120)
    assert result.code == 0, result.output
    assert len(slurm.calls("sbatch")) == 2
    assert [lab.info_of(name)["run"]["attempt"] for name in ("first", "second")] == [2, 2]


def test_ctrl_c_cancels_what_was_submitted(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    lab: Lab,
    wait_until_free: Callable[..., None],
) -> None:
    foreign = slurm.submit("exec sleep 300", "--partition=gpu")
    run = start_on_slurm(experiment=counting(2, names=("first", "second", "third"), replicas=2, cpu=3))
    run.wait_for(lambda: list(lab.prefix.glob("*/checkpoint")), "a step to begin")
    run.wait_for(lambda: len(slurm.jobs()) == 4, "all jobs in the queue")
    run.interrupt()
    result = run.wait(60)
    assert result.code != 0
    assert "\n0 done, 3 stopped, 0 not run\nRun the same command again to continue" in result.output
    lab.wait_until(
        lambda: {job.state for job in slurm.jobs() if job.id != foreign} == {"CANCELLED"}, "all jobs to be cancelled"
    )
    assert slurm.job(foreign).state == "RUNNING"
    begun = {path.parent.name.split("-")[0] for path in lab.prefix.glob("*/checkpoint")}
    assert len(begun) == 1
    for name in begun:
        assert lab.status_of(name) == "CANCELLED"
        wait_until_free(name)


def test_a_step_that_was_cancelled_with_another_run_goes_on_in_this_one(
    counting: Callable[..., Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[..., None],
) -> None:
    file = counting(2)
    one = start_on_slurm("--retries", "0", experiment=file)
    wait_for_attempt(one, 1)
    two = start_on_slurm("--retries", "0", experiment=file)
    two.wait_for(lambda: "found  patient" in two.output, "the job to be found")
    one.interrupt()
    assert one.wait(60).code != 0
    result = two.wait(120)
    assert result.code == 0, result.output
    assert len(slurm.calls("sbatch")) == 2


def test_all_machines_of_a_step_may_finish_what_they_write_when_they_are_stopped(
    lab: Lab,
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_until_free: Callable[..., None],
    tmp_path: Path,
) -> None:
    file = lab.experiment(
        """
        import os, signal, sys
        from marin_rules import *

        def save(config):
            rank = this_process().rank

            def stop(number, frame):
                lease = os.path.exists(os.path.join(sys.argv[0], ".executor_status.lock"))
                print("saved", "while the lease is held" if lease else "too late")
                sys.exit(1)

            signal.signal(signal.SIGTERM, stop)
            os.mkdir(f"begun-{rank}")
            while True:
                signal.pause()

        step = ExecutorStep("careful", remote(save, resources=ResourceConfig(ram="300m", replicas=2)), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    run = start_on_slurm(experiment=file)
    run.wait_for(lambda: len(list(tmp_path.glob("begun-*"))) == 2, "both machines to begin")
    slurm.run("scancel", slurm.jobs()[0].id)
    assert run.wait(60).code != 0
    assert lab.status_of("careful") == "CANCELLED"
    for rank in (0, 1):
        log = (lab.folder_of("careful") / f".executor_log.rank-{rank}").read_text()
        assert "saved while the lease is held\n" in log
    wait_until_free("careful")
