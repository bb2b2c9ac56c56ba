"""The profile `slurm-drmaa`: what it asks of slurm-drmaa, and a run through it where there is a libdrmaa for Slurm."""

import asyncio
import importlib.util
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin_rules.clusters.slurm.native_options import native_options
from marin_rules.engine.cluster_executor import ClusterExecutor
from marin_rules.errors import SettingsError
from support.lab import REPOSITORY, Lab, Result, Running
from support.slurm.cluster import SlurmCluster

PROFILE = REPOSITORY / "profiles" / "slurm-drmaa"

CLUSTER = """
    slurm:
      partition: cpu
      runtime: 9m
      gpus:
        A100: {partition: gpu, gres: a100, count: 2}
    """

EXPERIMENT = """
    import os
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        source: object = None
        output_path: str = THIS_OUTPUT_PATH

    def prepare(config):
        pass

    def look(config):
        print("rank", os.environ["SLURM_PROCID"])
        return dict(os.environ)

    def step(name, resources):
        return ExecutorStep(name, remote(look, resources=resources), Config(output_path_of(data)))

    data = ExecutorStep("data", prepare, Config())
    cpu = step("cpu", ResourceConfig.with_cpu(cpu=2, ram="200m"))
    gpu = step("gpu", ResourceConfig.with_gpu("A100", count=2, ram="300m"))
    pair = step("pair", ResourceConfig.with_cpu(cpu=1, ram="300m", replicas=2))

    if __name__ == "__main__":
        executor_main(steps=[cpu, gpu, pair])
    """

STAND_IN = Path(__file__).resolve().parents[2] / "support" / "slurm" / "drmaa_stand_in"
"""In front of the Python package; the tests that run steps take it unless there is a real library."""

has_package = importlib.util.find_spec("drmaa") is not None
has_library = has_package and bool(os.environ.get("DRMAA_LIBRARY_PATH") or find_library("drmaa"))


@pytest.fixture
def with_library(on_slurm: dict[str, str]) -> dict[str, str]:
    """The environment of a driver that reaches the test cluster through a library."""
    if has_library:
        return on_slurm
    return {**on_slurm, "PYTHONPATH": str(STAND_IN), "DRMAA_LIBRARY_PATH": str(STAND_IN)}


@pytest.fixture
def start_with_library(
    lab: Lab, with_library: dict[str, str], cluster_file: Callable[[str], str]
) -> Callable[..., Running]:
    """`start_with_library(*arguments, experiment=)` starts a run with the profile on the test cluster."""

    def launch(*arguments: str, **options: Any) -> Running:
        env = {**with_library, **options.pop("env", {})}
        config = {"cluster": cluster_file(CLUSTER)}
        return lab.start_snakemake("--profile", str(PROFILE), *arguments, config=config, env=env, **options)

    return launch


@pytest.fixture
def run_with_drmaa(lab: Lab, cluster_file: Callable[[str], str]) -> Callable[..., Result]:
    """`run_with_drmaa(*arguments, env=)` runs the experiment with the profile, on the cluster of the file."""

    def run(*arguments: str, **options: Any) -> Result:
        config = {"cluster": cluster_file(CLUSTER)}
        path = lab.experiment(EXPERIMENT)
        return lab.snakemake("--profile", str(PROFILE), *arguments, experiment=path, config=config, **options)

    return run


ARRAYS = """
from marin_rules.clusters.open import open_cluster
from marin_rules.clusters.protocol import RefusedError

queue = open_cluster("slurm-drmaa").open_queue(None)
try:
    queue.deal([0, 1])
except RefusedError as error:
    print(queue.most_elements, error)
"""


def test_arrays_are_refused_with_the_profile_that_has_them(with_library: dict[str, str], lab: Lab) -> None:
    result = lab.start([sys.executable, "-c", ARRAYS], env=with_library).wait()
    assert result.output == "0 slurm-drmaa submits no arrays of jobs: use `--profile slurm` for steps with tasks\n"


@pytest.mark.processes  # The plug-in for Slurm looks for sacct when it is imported.
def test_snakemake_knows_every_key_of_the_profile() -> None:
    from snakemake.cli import get_argument_parser

    keys = yaml.safe_load((PROFILE / "config.yaml").read_text())
    known = {option for action in get_argument_parser()._actions for option in action.option_strings}
    assert keys["executor"] == "marin-drmaa"
    assert {f"--{key}" for key in keys} <= known
    assert "--marin-drmaa-args" in known  # The profile shows it in a comment.


def test_a_job_asks_for_what_it_has_and_for_nothing_else() -> None:
    bare = native_options({}, threads=3, log="job-%j.log")
    assert bare == (
        "--nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=3 --requeue --output=job-%j.log"
    )  # An option without a value would be refused.


def test_all_that_a_cluster_file_can_say_reaches_the_job() -> None:
    resources = {
        "slurm_partition": "long",
        "slurm_account": "lab",
        "qos": "high",
        "constraint": "a100&ib",
        "mem_mb": 64000,
        "cpus_per_task": 8,
        "nodes": 2,
        "slurm_extra": "--exclusive --exclude=node[07-09]",
    }
    words = native_options(resources, threads=1, log="job-%j.log").split()
    assert {
        "--partition=long",
        "--account=lab",
        "--qos=high",
        "--constraint=a100&ib",
        "--mem=64000",
        "--cpus-per-task=8",
        "--nodes=2",
        "--ntasks=2",
        "--exclusive",
        "--exclude=node[07-09]",
    } <= set(words)


@pytest.mark.parametrize(
    ("resources", "option"),
    [
        ({"runtime": 2880}, "--time=0:2880"),  # hours:minutes; bare minutes are refused, seconds are ignored
        ({"gres": "gpu:a100:2"}, "--gres=gres:gpu:a100:2"),  # Slurm refuses it without the kind of resource
        ({"gres": "gpu:2,shard:1"}, "--gres=gres:gpu:2,gres:shard:1"),
    ],
)
def test_time_and_gpus_are_said_as_the_library_hears_them(resources: dict[str, Any], option: str) -> None:
    assert option in native_options(resources, threads=1, log="log").split()


@pytest.mark.parametrize("value", ["a b", "a=b"])
def test_a_value_that_the_library_would_cut_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="--constraint="):
        native_options({"constraint": value}, threads=1, log="log")


def test_a_dry_run_says_where_steps_would_go_without_plugin_library_or_slurm(
    run_with_drmaa: Callable[..., Result],
) -> None:
    ran = run_with_drmaa("-n")
    assert ran.code == 0, ran.output
    assert "-> slurm: partition cpu, 2 CPUs, 200M, 9m\n" in ran.output
    assert "-> slurm: partition gpu, gpu:a100:2, 1 CPU, 300M, 9m\n" in ran.output
    assert "-> slurm: partition cpu, 2 nodes, 1 CPU, 300M, 9m\n" in ran.output


@pytest.mark.skipif(has_library, reason="here both the package and a libdrmaa are installed")
def test_a_run_without_the_package_or_the_library_says_which_is_missing(run_with_drmaa: Callable[..., Result]) -> None:
    ran = run_with_drmaa()
    assert ran.code != 0
    assert ("DRMAA_LIBRARY_PATH" if has_package else "pip install 'marin-rules[slurm-drmaa]'") in ran.output
    assert "Traceback" not in ran.output


def test_a_library_that_is_not_there_is_named(run_with_drmaa: Callable[..., Result]) -> None:
    path = [] if has_package else [("PYTHONPATH", str(STAND_IN))]
    ran = run_with_drmaa(env={"DRMAA_LIBRARY_PATH": "/nowhere/libdrmaa.so", **dict(path)})
    assert ran.code != 0
    assert "DRMAA_LIBRARY_PATH=/nowhere/libdrmaa.so cannot be loaded" in ran.output
    assert "Traceback" not in ran.output


@pytest.mark.parametrize(
    ("extra", "kept", "gone"),
    [
        ("--mem=100", "--mem=100", "--mem=64000"),
        ("--mem-per-cpu=100", "--mem-per-cpu=100", "--mem=64000"),
        ("-p short", "-p", "--partition=long"),
        ("--no-requeue", "--no-requeue", "--requeue"),
        ("--exclude=node1", "--exclude=node1", "--exclude=node2"),
    ],
)
def test_options_for_all_jobs_replace_those_from_resources(extra: str, kept: str, gone: str) -> None:
    resources = {"mem_mb": 64000, "slurm_partition": "long", "slurm_extra": "--exclude=node2"}
    words = native_options(resources, threads=1, log="log", extra=extra).split()
    assert gone in native_options(resources, threads=1, log="log").split()
    assert kept in words
    assert gone not in words
    assert "--ntasks=1" in words


def test_steps_run_as_jobs_through_the_library(
    run_with_drmaa: Callable[..., Result], with_library: dict[str, str], lab: Lab, tmp_path: Path
) -> None:
    """From a folder with a space and a quote in its name, with one core for the driver and little memory for steps."""
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "config").symlink_to(tmp_path / "config")
    ran = run_with_drmaa("--cores", "1", env=with_library, cwd=folder, timeout=240.0)
    assert ran.code == 0, ran.output

    def seen(step: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((lab.folder_of(step) / ".artifact.json").read_text())
        return found

    assert seen("cpu")["SLURM_JOB_PARTITION"] == "cpu"
    assert seen("cpu")["SLURM_CPUS_PER_TASK"] == "2"
    assert seen("cpu")["OMP_NUM_THREADS"] == "2"
    assert seen("cpu")["SLURM_MEM_PER_NODE"] == "200"
    assert seen("gpu")["SLURM_JOB_PARTITION"] == "gpu"
    assert seen("gpu")["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert seen("pair")["SLURM_NTASKS"] == "2"
    assert (lab.folder_of("pair") / ".executor_log.rank-1").read_text() == "rank 1\n"


TROUBLE = """
    import os, signal, sys
    from marin_rules import *

    def work(config):
        print("worked")

    def lost(config):
        pass

    def die(config):
        os.kill(os.getppid(), signal.SIGKILL)  # Its worker: nobody writes a status.
        signal.pause()

    def save(config):
        def stop(number, frame):
            print("saved")
            sys.exit(1)

        signal.signal(signal.SIGTERM, stop)
        open("begun", "w").close()
        while True:
            signal.pause()

    resources = ResourceConfig(ram="300m")
    steps = [ExecutorStep(name, remote(function, resources=resources), {}) for name, function in {steps}]
    if __name__ == "__main__":
        executor_main(steps=steps)
    """


def test_refusals_and_failures_outside_steps_are_told_and_leave_other_jobs_alone(
    start_with_library: Callable[..., Running],
    lab: Lab,
    slurm: SlurmCluster,
    in_front_of: Callable[[str, str], dict[str, str]],
    tmp_path: Path,
) -> None:
    """One job is refused for its partition, one twice for reasons unknown, and one dies without a word."""
    refuse = 'echo "sbatch: error: Batch job submission failed: Protocol authentication error" >&2; exit 1'
    count = f"echo >> {tmp_path}/tries; [ $(wc -l < {tmp_path}/tries) -gt 2 ] || {{ {refuse}; }}"
    env = {} if has_library else in_front_of("sbatch", f'case "$*" in *job-name=fickle*) {count} ;; esac')
    steps = "[('fickle', work), ('astray', lost), ('doomed', die)]"
    run = start_with_library(
        "--retries", "0", "--set-resources", "lost:slurm_partition=nowhere",
        experiment=lab.experiment(TROUBLE.replace("{steps}", steps)), env=env,
    )  # fmt: skip
    result = run.wait(180)
    assert result.code != 0
    assert "Traceback" not in result.output
    assert lab.status_of("fickle") == "SUCCESS"
    assert re.search(r"FAILED astray after .*: could not be submitted: .*[Ii]nvalid partition", result.output)
    doomed = re.search(r"FAILED doomed after .*: slurm job (\d+) failed; .* is in (\S+log)", result.output)
    assert doomed is not None, result.output
    assert (tmp_path / doomed[2]).is_file()
    assert "FAILED fickle" not in result.output
    if not has_library:
        assert "wait   fickle: " in result.output
        assert len((tmp_path / "tries").read_text().splitlines()) == 3


def test_a_job_that_is_stopped_has_time_to_save(
    start_with_library: Callable[..., Running], lab: Lab, slurm: SlurmCluster, tmp_path: Path
) -> None:
    file = lab.experiment(TROUBLE.replace("{steps}", "[('careful', save)]"))
    run = start_with_library("--retries", "0", experiment=file)
    run.wait_for((tmp_path / "begun").exists, "the step to begin")
    (job,) = slurm.jobs()
    slurm.run("scancel", job.id)
    result = run.wait(90)
    assert result.code != 0
    assert lab.status_of("careful") == "CANCELLED"
    assert "saved\n" in (lab.folder_of("careful") / ".executor_log").read_text()


def test_a_hand_written_rule_has_the_cores_and_the_partition_of_its_job(
    start_with_library: Callable[..., Running], lab: Lab, slurm: SlurmCluster
) -> None:
    lab.experiment(
        """
        rule count:
            input:
                marin.inputs,
            output:
                marin.target("count"),
            log:
                marin.log,
            threads: 3
            resources:
                mem_mb=600,
            shell:
                marin.leased("echo {threads} threads, $OMP_NUM_THREADS for libraries")
        """,
        "experiment.smk",
    )
    file = lab.experiment(
        """
        from marin_rules import *

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep(name="counted", fn=SnakemakeRule("count"), config={})])
        """
    )
    result = start_with_library("--retries", "0", "--cores", "8", experiment=file).wait(180)
    assert result.code == 0, result.output
    assert "3 threads, 3 for libraries\n" in (lab.folder_of("counted") / ".executor_log").read_text()
    (job,) = slurm.jobs()
    assert job.partition == "cpu"


def test_the_end_of_a_run_waits_for_no_question_to_slurm() -> None:
    executor: Any = object.__new__(ClusterExecutor)
    executor.wait = True
    executor._next_seconds_between_status_checks = 3600.0
    threading.Timer(0.1, setattr, (executor, "wait", False)).start()
    asyncio.run(asyncio.wait_for(executor.sleep(), 60.0))
