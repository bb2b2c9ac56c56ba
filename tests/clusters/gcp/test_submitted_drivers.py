"""`marin-rules submit` with `--profile gcp`: the driver is a job of Batch, and this machine reads of it in the bucket.

The experiment has a step that runs as a Batch job and waits at a gate, and one that runs beside the driver after it.
"""

from __future__ import annotations

import re

import pytest

from support.cloud import Cloud
from support.lab import REPOSITORY, Lab
from support.submitted_drivers import Drivers

WAITING = """
    import os, time
    from dataclasses import dataclass
    import fsspec
    import marin_rules
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH
        after: str | None = None

    def far(config):
        store, folder = fsspec.core.url_to_fs(config.output_path)
        store.pipe_file(f"{folder}/began", b"")
        while not store.exists("bucket/gate"):
            store.invalidate_cache()
            time.sleep(0.1)
        print("came through the gate:", os.environ["MODE"], os.environ["GIVEN"])

    def near(config):
        print("came to the end:", marin_rules.__file__, os.environ["GIVEN"])

    resources = ResourceConfig.with_cpu(cpu=1, ram="500m")
    first = ExecutorStep("far", remote(far, resources=resources, env_vars={"MODE": "slow"}), Config())
    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("near", near, Config(after=first / "x"))])
    """


@pytest.fixture
def drivers(cloud: Cloud) -> Drivers:
    variables = {
        **cloud.environment,
        "PATH": cloud.lab.path_without_clusters(),
        "MARIN_JOB_VARIABLES": "TPU_EMULATOR_HOST,BATCH_EMULATOR_HOST,LOGGING_EMULATOR_HOST",
        "MARIN_CLUSTER": "site",
    }
    profile = ("--profile", str(REPOSITORY / "profiles" / "gcp"))
    return Drivers(cloud.lab, variables, options=profile, config=("prefix=gs://bucket/out", "cluster=site"))


def has_begun(cloud: Cloud) -> bool:
    """Whether the step waits at the gate."""
    return any(name.endswith("/began") for name in cloud.gcs.names("bucket", "out/far-"))


def test_a_run_whose_driver_is_a_job_of_batch(cloud: Cloud, drivers: Drivers, lab: Lab) -> None:
    experiment = lab.experiment(WAITING)
    words = drivers.snakemake(experiment)
    following = drivers.start("submit", "--name", "mine", "-e", "GIVEN=word", "--", *words)
    following.wait_for(lambda: has_begun(cloud), "the step")
    experiment.unlink()
    driver, step = cloud.jobs()
    listing = drivers.listing()
    assert re.search(rf"^experiment-\S+ +mine +gcp {driver} +RUNNING ", listing, re.MULTILINE), listing
    assert re.search(rf"^far +gcp {step} +RUNNING ", listing, re.MULTILINE), listing
    assert re.search(r"^experiment-\S+ \(experiment.py, driver pid \d+ on \S+\): 0 steps done, 2 left", listing, re.M)
    following.wait_for(lambda: re.search(r"start +far", following.output), "the log")
    cloud.open_gate()
    ended = following.wait(60)
    assert ended.code == 0, ended.output
    assert "came through the gate: slow word" in cloud.file("far", ".executor_log")
    said = re.search(r"\[near\] came to the end: (\S+) word", ended.output)
    assert said is not None, ended.output
    assert "/code-" in said[1]
    assert "all done, the results are in:" in ended.output
    assert drivers.wait("mine").code == 0
    assert driver not in drivers.listing()
    assert len(cloud.jobs()) == 2
    assert cloud.is_empty()


@pytest.mark.parametrize("machine", ["there", "lost"])
def test_a_driver_is_stopped_with_all_of_its_run(machine: str, cloud: Cloud, drivers: Drivers, lab: Lab) -> None:
    words = drivers.snakemake(lab.experiment(WAITING))
    drivers.submit(*words, options=("--name", "mine", "-e", "GIVEN=word"))
    lab.wait_until(lambda: has_begun(cloud), "the step")
    driver, step = cloud.jobs()
    if machine == "lost":
        cloud.batch.lose_machine(driver)
        lab.wait_until(lambda: " GONE (killed before " in drivers.listing(), "the loss")
        listing = drivers.listing()
        assert re.search(rf"^far +gcp {step} +RUNNING \(driver gone\)", listing, re.MULTILINE), listing
    stopped = drivers.run("jobs", "stop", "mine")
    assert stopped.code == 0, stopped.output
    assert cloud.is_empty()
    assert cloud.file("far", ".executor_status") == "CANCELLED"
    assert drivers.wait("mine").output.endswith(": stopped\n")
