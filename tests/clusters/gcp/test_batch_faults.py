"""What happens to jobs of Google Batch while a run goes on: machines that are lost, people who cancel, an API that is
down, code that is gone. Real Snakemake and real workers, whose clocks are an hour ahead.

One run for all of it: each of its steps meets another fault. After that nothing runs, and each step was committed once.
"""

from __future__ import annotations

import re
import time

from support.cloud import Cloud
from support.emulators.batch.clients import batch_client
from support.lab import Lab
from support.skewed_python import skewed_python

STEPS = """
    import time
    from dataclasses import dataclass
    import fsspec
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, remote

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH

    @remote(resources=ResourceConfig.with_cpu(cpu=1, ram="500m"))
    def work(config):
        store, folder = fsspec.core.url_to_fs(config.output_path)
        store.pipe_file(f"{folder}/began-{time.time_ns()}", str(time.time()).encode())
        while not store.exists("bucket/gate"):
            store.invalidate_cache()
            time.sleep(0.1)

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name, work, Config()) for name in ("spot", "silent", "ended", "plain")])
"""


def test_each_step_survives_its_fault_and_is_committed_once(cloud: Cloud, lab: Lab) -> None:
    cloud.write_file(python=skewed_python(lab.folder / "python", 3600))
    run = cloud.start("--retries", "0", experiment=lab.experiment(STEPS))
    names = ("spot", "silent", "ended", "plain")
    run.wait_for(lambda: all(cloud.began(name) for name in names), "all steps")
    cloud.batch.preempt(cloud.job_of("spot"))
    cloud.batch.lose_machine(cloud.job_of("silent"), code=50002)
    [ended] = [call.request for call in cloud.batch.calls("CreateJob") if call.request["jobId"].startswith("ended")]
    batch_client(cloud.batch).cancel_job(name=f"{ended['parent']}/jobs/{ended['jobId']}")
    for code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"):
        cloud.batch.inject(code, times=1)
    run.wait_for(lambda: all(len(cloud.began(name)) == 2 for name in ("spot", "silent")), "what was lost, once more")
    cloud.open_gate()
    result = run.wait(120)
    assert result.code == 1
    assert re.search(r"again +spot: gcp job \S+ was PREEMPTED \(50001\)", result.output)
    assert re.search(r"again +silent: gcp job \S+ was SILENT \(50002\)", result.output)
    assert "was cancelled" in result.output
    assert {name: len(cloud.began(name)) for name in names} == {"spot": 2, "silent": 2, "ended": 1, "plain": 1}
    assert cloud.commits() == {"spot": 1, "silent": 1, "ended": 0, "plain": 1}
    assert len(cloud.jobs()) == 6
    assert cloud.is_empty()
    began = float(cloud.gcs.get("bucket", cloud.began("plain")[0]) or 0)
    assert began > time.time() + 3000, "its machine's clock was right"


def test_code_that_is_gone_is_a_failure_that_is_explained(cloud: Cloud, lab: Lab) -> None:
    cloud.batch.hold("QUEUED")
    run = cloud.start("--retries", "0", experiment=lab.experiment(STEPS), run_only="plain")
    run.wait_for(cloud.jobs, "a job")
    [archive] = cloud.gcs.names("bucket", "out/experiments/.code/")
    cloud.gcs.inject("404", methods=["GET"], path=r"\.code/")
    cloud.batch.hold()
    result = run.wait(120)
    assert result.code == 1
    assert "its node could not fetch the code from the prefix" in result.output
    assert f"cannot fetch gs://bucket/{archive}" in result.output
    assert (cloud.commits(), cloud.began("plain")) == ({}, [])
    assert cloud.is_empty()
