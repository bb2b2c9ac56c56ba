"""The test cluster is a Slurm cluster: jobs, GPUs, preemption and hosts are as on a real one, and it breaks as told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.slurm.cluster import SlurmCluster
from support.slurm.configuration import CPU_NODES, GPU_NODES, NODES
from support.slurm.daemons import Daemon, DaemonError
from support.slurm.requirements import SlurmUnavailableError

# Writes its process number and its run, and a word when it is told to end.
POLITE = f"""
exec {sys.executable} -c '
import os, signal, sys, time

def end(number, frame):
    print("told to end", flush=True)
    sys.exit(1)

signal.signal(signal.SIGTERM, end)
print("process", os.getpid(), "run", os.environ.get("SLURM_RESTART_COUNT", "0"), flush=True)
time.sleep(60)
'
"""


def call(cluster: SlurmCluster, *command: str) -> subprocess.CompletedProcess[str]:
    """Call a command as the code under test does."""
    return subprocess.run(command, env={**os.environ, **cluster.environment}, capture_output=True, text=True)


def start(cluster: SlurmCluster, script: str, *options: str) -> tuple[str, int]:
    """Submit a script that writes `process <number>` first; the job and the number."""
    job = cluster.submit(script, *options)
    line = cluster.wait_for(lambda: cluster.output(job).partition("\n")[1] and cluster.output(job), f"a word of {job}")
    return job, int(line.split()[1])


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_each_partition_runs_jobs_on_its_own_nodes(slurm: SlurmCluster) -> None:
    partitions = {"cpu": CPU_NODES, "gpu": GPU_NODES, "spare": NODES, "scavenge": NODES, "urgent": NODES}
    partitions |= {"graceful": NODES, "gracious": NODES}
    submitted = {
        name: slurm.submit("echo on $SLURMD_NODENAME", f"--partition={name}", f"--comment=for {name}\né|")
        for name in partitions
    }
    for name, id in submitted.items():
        job = slurm.wait_for_state(id, "COMPLETED")
        assert (job.partition, job.comment, job.restarts) == (name, f"for {name}\né|", 0)
        assert job.nodes in partitions[name]
        assert slurm.output(id) == f"on {job.nodes}\n"
    assert [job.id for job in slurm.jobs()] == list(submitted.values())


def test_a_job_sees_the_gpus_that_it_asked_for(slurm: SlurmCluster) -> None:
    script = "echo ${CUDA_VISIBLE_DEVICES:-none}"
    asked = ("--partition=gpu", "--nodelist=gpu1")
    one, two = (slurm.submit(script, *asked, f"--gres=gpu:a100:{count}") for count in (1, 2))
    without = slurm.submit(script, *asked)
    for job in (one, two, without):
        slurm.wait_for_state(job, "COMPLETED")
    assert [slurm.output(job) for job in (one, two, without)] == ["0\n", "0,1\n", "none\n"]


def test_a_spare_job_is_requeued_for_an_urgent_one(slurm: SlurmCluster) -> None:
    job, _ = start(slurm, POLITE, "--partition=spare", "--nodelist=cpu1", "--exclusive", "--requeue")
    slurm.wait_for_state(slurm.submit("true", "--partition=urgent", "--nodelist=cpu1", "--exclusive"), "COMPLETED")
    slurm.wait_for(lambda: "run 1" in slurm.output(job), "the second run")
    assert "told to end" in slurm.output(job)
    assert slurm.job(job).restarts == 1


def test_a_scavenging_job_is_ended_for_an_urgent_one(slurm: SlurmCluster) -> None:
    job = slurm.submit("exec sleep 60", "--partition=scavenge", "--nodelist=cpu1", "--exclusive", "--requeue")
    slurm.wait_for_state(job, "RUNNING")
    slurm.submit("true", "--partition=urgent", "--nodelist=cpu1", "--exclusive")
    assert slurm.wait_for_state(job, "PREEMPTED").restarts == 0


def test_nodes_have_names_of_their_own(slurm_with_hosts: SlurmCluster) -> None:
    slurm = slurm_with_hosts
    job = slurm.submit("srun sh -c 'echo $(hostname) $(getent ahostsv4 cpu2 | head -n 1)'", "--nodes=2")
    slurm.wait_for_state(job, "COMPLETED")
    lines = sorted(line.split() for line in slurm.output(job).splitlines())
    assert [(words[0], words[1]) for words in lines] == [("cpu1", "127.0.0.1"), ("cpu2", "127.0.0.1")]


def test_no_process_outlives_its_job(slurm: SlurmCluster) -> None:
    stubborn = "(trap '' TERM; sh -c 'echo process $$; exec sleep 60') & wait"
    job, pid = start(slurm, stubborn)
    assert is_alive(pid)
    slurm.run("scancel", job)
    slurm.wait_for_state(job, "CANCELLED")
    assert not is_alive(pid)


def test_a_power_cut_ends_a_node_unheard_and_its_job_runs_elsewhere(slurm_with_hosts: SlurmCluster) -> None:
    slurm = slurm_with_hosts
    job, pid = start(slurm, POLITE, "--requeue")
    node = slurm.job(job).nodes
    slurm.kill_node(node)
    assert not is_alive(pid)
    assert slurm.job(job).state == "RUNNING"
    slurm.set_down(node)
    assert slurm.wait_for_state(job, "PENDING").restarts == 1
    assert slurm.wait_for_state(job, "RUNNING").nodes not in ("", node)
    assert "told to end" not in slurm.output(job)
    slurm.start_node(node)
    assert slurm.nodes()[node] == "down"
    slurm.resume(node)
    assert slurm.nodes()[node] == "idle"


def test_jobs_outlive_a_restart_of_the_controller(slurm: SlurmCluster) -> None:
    job, pid = start(slurm, POLITE)
    waiting = slurm.submit("true", f"--dependency=afterany:{job}")
    slurm.restart_controller()
    assert is_alive(pid)
    assert [(each.id, each.state) for each in slurm.jobs()] == [(job, "RUNNING"), (waiting, "PENDING")]


def test_a_broken_command_fails_or_hangs_until_it_is_mended(slurm: SlurmCluster) -> None:
    with slurm.broken("squeue", "fails"):
        failed = call(slurm, "squeue")
        assert (failed.returncode, failed.stdout) == (1, "")
        assert "Unable to contact slurm controller" in failed.stderr
        assert call(slurm, "sinfo").returncode == 0
    with slurm.broken("squeue", "hangs"):
        hanging = subprocess.Popen(
            ["squeue", "--noheader"], env={**os.environ, **slurm.environment}, stdout=subprocess.PIPE, text=True
        )
        with pytest.raises(subprocess.TimeoutExpired):
            hanging.wait(0.5)
    output, _ = hanging.communicate(timeout=30)
    assert (output, hanging.returncode) == ("", 0)


def test_calls_are_counted_with_their_arguments(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = ["--parsable", "--comment=two words\nand a line", f"--output={tmp_path}/out", "--wrap=squeue --noheader"]
    job = call(slurm, "sbatch", *words).stdout.strip()
    slurm.wait_for_state(job, "COMPLETED")
    assert slurm.calls("sbatch") == [words]
    assert slurm.calls("squeue") == [["--noheader"]]
    assert slurm.calls("scancel") == []


def test_a_reset_cluster_is_as_good_as_new(slurm: SlurmCluster) -> None:
    call(slurm, "squeue")
    slurm.submit("exec sleep 60")
    slurm.set_down("gpu1")
    slurm.stop_controller()
    slurm.reset()
    assert (slurm.jobs(), slurm.calls("squeue"), set(slurm.nodes().values())) == ([], [], {"idle"})
    assert slurm.run("squeue", "--noheader") == ""


def test_clusters_do_not_see_each_other(slurm: SlurmCluster, second_cluster: SlurmCluster) -> None:
    job = slurm.submit("exec sleep 60", "--job-name=first")
    other = second_cluster.submit("exec sleep 60", "--job-name=second")
    second_cluster.wait_for_state(other, "RUNNING")
    second_cluster.cancel_all()
    slurm.wait_for_state(job, "RUNNING")
    assert [job.name for job in slurm.jobs()] == ["first"]
    assert [job.name for job in second_cluster.jobs()] == ["second"]


@pytest.fixture
def second_cluster(slurm_cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path)
    yield cluster
    cluster.stop()


def test_the_database_knows_how_a_job_ended(accounting_cluster: SlurmCluster) -> None:
    job = accounting_cluster.submit("exit 3", "--comment=a word")

    def record() -> str:
        columns = "--format=State,ExitCode,Comment"
        return accounting_cluster.run("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", columns)

    accounting_cluster.wait_for(lambda: "FAILED" in record(), "the end of the job in the database")
    assert record() == "FAILED|3:0|a word\n"


@pytest.mark.processes
def test_a_daemon_that_does_not_come_up_is_quoted(tmp_path: Path) -> None:
    script = "echo no port >&2; echo no state > daemon.log; exit 1"
    failing = Daemon(
        "a daemon", ["sh", "-c", script], folder=tmp_path, log=tmp_path / "daemon.log", environment=os.environ
    )
    failing.start()
    with pytest.raises(DaemonError, match=r"a daemon ended while it was starting:\nno port\nno state"):
        failing.wait_until(lambda: False)


@pytest.mark.processes
def test_a_daemon_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from support.slurm.daemons import Daemon

folder = Path(sys.argv[1])
daemon = Daemon("a daemon", ["sleep", "60"], folder=folder, log=folder / "daemon.log", environment=os.environ)
daemon.start()
# Until then it is setpriv, which has yet to ask for its end.
daemon.wait_until(lambda: Path(f"/proc/{daemon.pid}/comm").read_text() == "sleep\\n")
print(daemon.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.returncode == -signal.SIGKILL
    pid = int(ran.stdout)
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def test_a_machine_that_cannot_have_a_cluster_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SlurmUnavailableError, match="needs root"):
        SlurmCluster(tmp_path)
    assert list(tmp_path.iterdir()) == []
