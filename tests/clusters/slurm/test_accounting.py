"""A cluster with accounting: what squeue has forgotten, sacct still knows.

Slurm forgets a job some minutes after its end. Here that is up to the test: the driver's squeue forgets on demand.
"""

import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.lab import Lab, Running
from support.slurm.cluster import SlurmCluster

FORGETFUL = """\
#!/bin/sh
[ -e {forgets} ] || exec {squeue} "$@"
"""

GATED = """
    import os, pathlib
    from marin_rules import *

    def wait(config):
        pathlib.Path("worker.new").write_text(str(os.getppid()))
        os.rename("worker.new", "worker")
        open("gate").read()

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("patient", remote(wait, resources=ResourceConfig(ram="300m")), {})])
    """


@pytest.fixture
def slurm(accounting_cluster: SlurmCluster, lab: Lab) -> Iterator[SlurmCluster]:
    """A cluster that is whole and idle, in which sacct answers."""
    accounting_cluster.reset()
    yield accounting_cluster
    lab.kill_everything()  # A driver that is left would submit again.
    accounting_cluster.reset()


@pytest.fixture
def run(slurm: SlurmCluster, lab: Lab, start_on_slurm: Callable[..., Running], tmp_path: Path) -> Running:
    """A run whose only step waits at the gate. Its squeue lists nothing once there is a file `forgets` here."""
    path = slurm.environment["PATH"]
    squeue = shutil.which("squeue", path=path)
    assert squeue is not None
    script = tmp_path / "bin" / "squeue"
    script.parent.mkdir()
    script.write_text(FORGETFUL.format(forgets=shlex.quote(str(tmp_path / "forgets")), squeue=shlex.quote(squeue)))
    script.chmod(0o755)
    variables = {"PATH": f"{script.parent}{os.pathsep}{path}"}
    run = start_on_slurm("--retries", "0", experiment=lab.experiment(GATED), env=variables)
    run.wait_for((tmp_path / "worker").exists, "the step to begin")
    run.wait_for(lambda: "start  patient on " in run.output, "a word about its start")
    return run


@pytest.fixture
def forget(run: Running, slurm: SlurmCluster, tmp_path: Path) -> Callable[[], None]:
    """`forget()`: from now on squeue knows of no job, and the driver has found that out."""

    def act() -> None:
        assert slurm.calls("sacct") == []
        (tmp_path / "forgets").touch()
        run.wait_for(lambda: slurm.calls("sacct"), "a question to sacct")

    return act


def test_a_job_that_squeue_has_forgotten_is_followed_to_its_end_and_nothing_else_is_told(
    run: Running, forget: Callable[[], None], slurm: SlurmCluster, lab: Lab
) -> None:
    forget()
    lab.open_gate()
    result = run.wait()
    assert result.code == 0, result.output
    assert lab.status_of("patient") == "SUCCESS"
    assert len(slurm.calls("sbatch")) == 1
    told = result.output.partition("1 to run\n")[2].partition("all done")[0]
    words = [re.match(r"[\d:]{8} (queue|start|done) +patient\b", line) for line in told.split("\n") if line]
    assert [word and word[1] for word in words] == ["queue", "start", "done"], result.output


def test_a_failure_that_squeue_has_forgotten_is_told(
    run: Running, forget: Callable[[], None], slurm: SlurmCluster, tmp_path: Path
) -> None:
    forget()
    (job,) = slurm.jobs()
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    result = run.wait(40)
    assert result.code != 0
    assert re.search(
        rf"FAILED patient after .*: slurm job {job.id} failed on {job.nodes}; .* is in \S+/{job.id}.log", result.output
    ), result.output
    assert len(slurm.calls("sbatch")) == 1


def test_a_job_that_was_cancelled_and_forgotten_counts_as_cancelled(
    run: Running, forget: Callable[[], None], slurm: SlurmCluster
) -> None:
    forget()
    (job,) = slurm.jobs()
    slurm.run("scancel", job.id)
    result = run.wait(40)
    assert result.code != 0
    assert re.search(rf"stopped patient after .*: slurm job {job.id} was cancelled on {job.nodes}\n", result.output), (
        result.output
    )
