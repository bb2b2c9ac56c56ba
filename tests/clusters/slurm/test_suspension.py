"""Jobs that an administrator, or a gang scheduler, suspends for longer than a lease lives."""

import time
from collections.abc import Callable

from clusters.slurm.conftest import LEASE_SECONDS
from support.lab import Lab, Running
from support.slurm.cluster import SlurmCluster

STEP = """
    import os, time
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH

    def work(config):
        folder = config.output_path
        with open(os.path.join(folder, "attempts"), "a") as file:
            file.write("begun\\n")
        while not os.path.exists(os.path.join(folder, "gate")):
            time.sleep(0.1)
        with open(os.path.join(folder, "data"), "w") as file:
            file.write("whole")

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("step", remote(work, resources=ResourceConfig(ram="300m")), Config())])
    """


def test_a_job_that_is_suspended_for_longer_than_its_lease_lives_goes_on(
    lab: Lab, start_on_slurm: Callable[..., Running], slurm: SlurmCluster
) -> None:
    file = lab.experiment(STEP)
    first = start_on_slurm("--retries", "0", experiment=file)
    first.wait_for(lambda: list(lab.prefix.glob("step-*/attempts")), "the step")
    (job,) = slurm.jobs()
    lease = next(lab.prefix.glob("step-*/.executor_status.lock"))
    slurm.run("scontrol", "suspend", job.id)
    slurm.wait_for_state(job.id, "SUSPENDED")
    second = start_on_slurm("--retries", "0", experiment=file)
    second.wait_for(lambda: f"found  step: slurm job {job.id} of" in second.output, "the other run to find the job")
    lab.wait_until(lambda: time.time() - lease.stat().st_mtime > 1.7 * float(LEASE_SECONDS), "the lease to be stale")
    assert slurm.job(job.id).state == "SUSPENDED"
    slurm.run("scontrol", "resume", job.id)
    next(lab.prefix.glob("step-*")).joinpath("gate").touch()
    for run in (first, second):
        result = run.wait(120)
        assert result.code == 0, result.output
    log = next(lab.prefix.glob("step-*/.executor_log")).read_text()
    assert "nobody took its lease meanwhile, and it continues" in log
    assert lab.status_of("step") == "SUCCESS"
    assert next(lab.prefix.glob("step-*/attempts")).read_text() == "begun\n", "it was not started again"
    assert len(slurm.jobs()) == 1
