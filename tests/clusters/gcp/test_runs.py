"""Runs with `snakemake --profile gcp`: real Snakemake, Google's own clients, and emulators of Batch, Cloud TPU and the
store.

Jobs and hosts are processes in folders of their own. They share this machine's Python with the driver, but run the code
that it has put into the bucket.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
from google.cloud import tpu_v2

from support.cloud import CLOUD_FILE, Cloud
from support.emulators.batch.clients import batch_client
from support.emulators.tpu.clients import tpu_client
from support.lab import REPOSITORY, Lab
from support.skewed_python import skewed_python

TUTORIAL = REPOSITORY / "experiments" / "tutorials" / "cluster.py"

ON_A_SLICE = """
    import os, time
    from dataclasses import dataclass
    import fsspec
    import marin_rules
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, remote, this_process

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH

    @remote(resources=ResourceConfig.with_tpu("v4-8"))
    def train(config):
        store, folder = fsspec.core.url_to_fs(config.output_path)
        store.pipe_file(f"{folder}/began-{time.time_ns()}", marin_rules.__file__.encode())
        while not store.exists("bucket/gate"):
            store.invalidate_cache()
            time.sleep(0.1)
        print("rank", this_process().rank, "of", this_process().count)

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("train", train, Config())])
"""

ON_A_MACHINE = """
    from marin_rules import ExecutorStep, ResourceConfig, executor_main, remote

    @remote(resources=ResourceConfig.with_cpu(cpu=1, ram="500m"))
    def train(config):
        print("never")

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("train", train, {})])
"""


def test_the_tutorial_runs_on_batch_and_tpus_and_survives_a_preemption(cloud: Cloud, lab: Lab) -> None:
    dry = cloud.run("-n", experiment=TUTORIAL)
    assert dry.code == 0, dry.output
    assert "-> gcp: e2-highcpu-2, Spot, us-central1, 500M, 1h" in dry.output
    assert "-> gcp: g2-standard-4, 1 nvidia-l4, Spot, us-central1, 500M, 1h" in dry.output
    assert "-> gcp: 2 x e2-highcpu-2, Spot, us-central1, 500M, 1h" in dry.output
    assert "-> gcp: TPU v4-128, Spot, us-central2-b, 1h, $" in dry.output
    assert cloud.jobs() == []

    run = cloud.start(experiment=TUTORIAL)
    run.wait_for(lambda: cloud.words_of(cloud.slices()), "hosts that are up")
    [first] = cloud.slices()
    cloud.tpu.preempt(first)
    second = run.wait_for(lambda: cloud.slices()[1:], "another slice")[0]
    run.wait_for(lambda: cloud.tpu.processes(), "its hosts")
    cloud.tpu.shut_down(second, 5)  # One host of 16.
    result = run.wait(240)
    assert result.code == 0, result.output
    assert len(cloud.jobs()) == 4  # Losing a slice costs no job.
    assert len(cloud.slices()) == 3

    errors = [json.loads(cloud.file("cluster/survey", f"errors-{rank}.json")) for rank in range(16)]
    slopes = sorted(slope for share in errors for slope, _ in share)
    assert len(slopes) == 64
    best = min((error, slope) for share in errors for slope, error in share)[1]
    assert best == pytest.approx(3, abs=0.1)
    log = cloud.file("cluster/survey", ".executor_log")
    assert all(f"[rank {rank}] host {rank + 1} of 16: 4 lines" in log for rank in range(16))
    assert f"TPU slice {first} in us-central2-b was lost: SUSPENDED" in log
    assert f"TPU slice {second} in us-central2-b was lost: a node is REPAIRING" in log
    ran = cloud.info("cluster/survey")["run"]["gcp"]
    assert (ran["tpu"], ran["zone"], ran["hosts"], ran["losses"]) == ("v4-128", "us-central2-b", 16, 2)
    assert ran["slice"] == cloud.slices()[2]

    summary = json.loads(cloud.file("cluster/summary", ".artifact.json"))
    assert summary["points"] == 1000
    assert "[rank 1] machine 2 of 2: 500 points" in cloud.file("cluster/distances", ".executor_log")
    assert cloud.is_empty()
    assert set(cloud.commits().values()) == {1}

    again = cloud.run(experiment=TUTORIAL)
    assert "5 steps: 5 cached" in again.output
    report = lab.folder / "report.html"
    assert cloud.run("--report", str(report), experiment=TUTORIAL).code == 0
    overview = (lab.folder / ".snakemake" / "marin-rules" / "report" / "overview.html").read_text()
    assert f"TPU v4-128 (lost and replaced twice) in us-central2-b (gcp job {ran['job_id']})" in overview
    assert re.search(r"about \$\d", overview)
    line = cloud.info("cluster/line")["run"]["gcp"]
    assert re.search(rf" in us-central1-\w \(gcp job {line['job_id']}\)", overview)
    pages = (lab.folder / ".snakemake" / "marin-rules" / "report").glob("step-*.html")
    [page] = [text for path in pages if ran["job_id"] in (text := path.read_text())]
    assert re.search(r"<th>attempt</th><td>1</td>", page)


def test_a_worker_that_is_lost_leaves_its_slice_to_the_next_and_a_host_that_reboots_is_replaced(
    cloud: Cloud, lab: Lab
) -> None:
    # The clocks of hosts are an hour behind that of the worker: nobody compares them.
    cloud.write_file(python=skewed_python(lab.folder / "python", -3600, unless="MARIN_RULES_JOB_SLICES"))
    run = cloud.start(experiment=lab.experiment(ON_A_SLICE))
    run.wait_for(cloud.began, "the step on its host")
    [job] = cloud.jobs()
    cloud.batch.lose_machine(job, code=50002)
    run.wait_for(lambda: len(cloud.began()) == 2, "the step once more")
    [slice_id] = cloud.slices()
    cloud.tpu.reboot(slice_id, 0)
    run.wait_for(lambda: len(cloud.began()) == 3, "the step on another slice")
    cloud.open_gate()
    result = run.wait(120)
    assert result.code == 0, result.output
    assert len(cloud.jobs()) == 2
    assert len(cloud.slices()) == 2
    log = cloud.file("train", ".executor_log")
    assert f"TPU slice {slice_id} in us-central2-b exists already and is used again" in log
    assert "rank 0 on 127.1." in log
    assert "failed first, with exit code 1: its machine rebooted" in log
    written = int(cloud.began()[0].rpartition("-")[2]) / 1e9
    assert written < time.time() - 3000, "the host's clock was right"
    code = cloud.gcs.get("bucket", cloud.began()[0])
    assert code is not None
    assert str(REPOSITORY) not in code.decode()
    assert "/code-" in code.decode()
    assert cloud.is_empty()
    assert cloud.commits() == {"train": 1}


def test_a_slice_that_is_waited_for_is_told_of_and_ctrl_c_leaves_nothing_that_runs_or_is_billed(
    cloud: Cloud, lab: Lab
) -> None:
    cloud.tpu.hold("WAITING_FOR_RESOURCES")
    run = cloud.start(experiment=lab.experiment(ON_A_SLICE))
    why = "has no TPU slice (v4-8, Spot, in us-central2-b: WAITING_FOR_RESOURCES): if that lasts, name more zones"
    run.wait_for(lambda: why in run.output, "why it waits")
    cloud.tpu.hold()
    run.wait_for(cloud.began, "the step on its host")
    run.interrupt()
    result = run.wait(120)
    assert result.code != 0
    lab.wait_until(cloud.is_empty, "the end of everything")
    assert cloud.file("train", ".executor_status") == "CANCELLED"


def test_a_slice_that_somebody_deletes_is_replaced_and_a_job_that_somebody_cancels_takes_its_slice_along(
    cloud: Cloud, lab: Lab
) -> None:
    run = cloud.start("--retries", "0", experiment=lab.experiment(ON_A_SLICE))
    run.wait_for(cloud.began, "the step on its host")
    [first] = cloud.slices()
    place = "projects/emulated/locations/us-central2-b/queuedResources"
    request = tpu_v2.DeleteQueuedResourceRequest(name=f"{place}/{first}", force=True)
    tpu_client(cloud.tpu).delete_queued_resource(request)
    run.wait_for(lambda: len(cloud.began()) == 2, "the step on another slice")
    [job] = cloud.jobs()
    batch_client(cloud.batch).cancel_job(name=f"projects/emulated/locations/us-central1/jobs/{job}")
    result = run.wait(120)
    assert result.code == 1
    assert "0 done, 1 stopped, 0 not run" in result.output
    assert cloud.file("train", ".executor_status") == "CANCELLED"
    assert (len(cloud.jobs()), len(cloud.slices())) == (1, 2)
    assert f"TPU slice {first} in us-central2-b was lost: " in cloud.file("train", ".executor_log")
    assert cloud.is_empty()
    assert cloud.commits() == {"train": 0}


def test_a_driver_that_was_killed_costs_nothing_and_the_next_one_goes_on(cloud: Cloud, lab: Lab) -> None:
    experiment = lab.experiment(ON_A_SLICE)
    first = cloud.start(experiment=experiment)
    first.wait_for(cloud.began, "the step on its host")
    first.kill_everything()
    second = cloud.start(experiment=experiment)
    second.wait_for(lambda: re.search(r"found +train: gcp job", second.output), "the job that is there")
    cloud.open_gate()
    result = second.wait(120)
    assert result.code == 0, result.output
    assert (len(cloud.jobs()), len(cloud.slices()), len(cloud.began())) == (1, 1, 1)
    assert cloud.is_empty()
    assert cloud.commits() == {"train": 1}


def test_a_slice_whose_worker_never_comes_back_deletes_itself(cloud: Cloud, lab: Lab) -> None:
    cloud.environment["MARIN_HOSTS_PACE"] = "0.005"
    run = cloud.start("--retries", "0", "--marin-gcp-max-interruptions", "0", experiment=lab.experiment(ON_A_SLICE))
    run.wait_for(cloud.began, "the step on its host")
    [job] = cloud.jobs()
    cloud.batch.lose_machine(job, code=50002)
    assert run.wait(120).code != 0
    lab.wait_until(cloud.is_empty, "the end of the slice")


def test_a_job_that_never_came_to_its_worker_is_told_with_its_last_lines(cloud: Cloud, lab: Lab) -> None:
    cloud.write_file(python="/nowhere/python")
    result = cloud.run("--retries", "0", experiment=lab.experiment(ON_A_MACHINE))
    assert result.code == 1
    [job] = cloud.jobs()
    why = "its node does not have the Python that the cluster's file names, or uv"
    place = f"https://console.cloud.google.com/batch/jobsDetail/regions/us-central1/jobs/{job}/logs?project=emulated"
    assert f": {why}; what it printed is at {place}, at last: " in result.output
    assert "/nowhere/python: No such file or directory" in result.output


def test_a_dry_run_needs_no_credentials(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "clusters"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(CLOUD_FILE.format(python=sys.executable, scratch=tmp_path))
    nowhere = {
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
        "GOOGLE_APPLICATION_CREDENTIALS": "",
        "NO_GCE_CHECK": "true",
    }
    result = lab.snakemake(
        "-n",
        "--profile",
        REPOSITORY / "profiles" / "gcp",
        experiment=TUTORIAL,
        prefix="gs://bucket/out",  # type: ignore[arg-type]
        config={"cluster": "site"},
        env={**nowhere, "CLOUDSDK_CONFIG": "/nonexistent", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
    )
    assert result.code == 0, result.output
    assert "What is already done is therefore unknown" in result.output
    assert "-> gcp: TPU v4-128, Spot, us-central2-b" in result.output


TASKS = """
    import time
    from dataclasses import dataclass
    import fsspec
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, remote, this_process

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH

    @remote(tasks=3, resources=ResourceConfig(ram="500m"))
    def count(config):
        task = this_process().task
        store, folder = fsspec.core.url_to_fs(config.output_path)
        store.pipe_file(f"{folder}/began-{task}-{time.time_ns()}", b"")
        while task == 1 and not store.exists("bucket/gate"):
            store.invalidate_cache()
            time.sleep(0.1)
        store.pipe_file(f"{folder}/task-{task}", b"")

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("train", count, Config())])
"""


def test_of_an_array_step_only_the_task_that_lost_its_machine_runs_again(cloud: Cloud, lab: Lab) -> None:
    run = cloud.start(experiment=lab.experiment(TASKS))
    run.wait_for(lambda: len(cloud.began()) == 3, "all tasks")
    [job] = cloud.jobs()
    run.wait_for(
        lambda: len([name for name in cloud.gcs.names("bucket", "out/train-") if "/task-" in name]) == 2, "two"
    )
    cloud.batch.preempt(job, task=1)
    cloud.open_gate()
    result = run.wait(120)
    assert result.code == 0, result.output
    assert len(cloud.jobs()) == 2
    tasks = sorted(name.rpartition("/began-")[2].partition("-")[0] for name in cloud.began())
    assert tasks == ["0", "1", "1", "2"]
    assert cloud.is_empty()
    assert cloud.commits() == {"train": 1}
