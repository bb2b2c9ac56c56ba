"""The profile `slurm-drmaa`: what it asks of slurm-drmaa, and a run through it where there is a libdrmaa for Slurm."""

import importlib.util
import json
import os
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin_rules.errors import SettingsError
from marin_rules.slurm.native_options import native_options
from runs.fixtures import REPOSITORY, Result

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
    cpu = step("cpu", ResourceConfig.with_cpu(cpu=2, ram="300m"))
    gpu = step("gpu", ResourceConfig.with_gpu("A100", count=2, ram="300m"))
    pair = step("pair", ResourceConfig.with_cpu(cpu=1, ram="300m", replicas=2))

    if __name__ == "__main__":
        executor_main(steps=[cpu, gpu, pair])
    """

has_plugin = importlib.util.find_spec("snakemake_executor_plugin_drmaa") is not None
has_library = bool(os.environ.get("DRMAA_LIBRARY_PATH") or find_library("drmaa"))


@pytest.fixture
def run_with_drmaa(
    snakemake: Callable[..., Result], experiment: Callable[..., Path], cluster_file: Callable[[str], str]
) -> Callable[..., Result]:
    """`run_with_drmaa(*arguments, env=)` runs the experiment with the profile, on the cluster of the file."""

    def run(*arguments: str, **options: Any) -> Result:
        config = {"cluster": cluster_file(CLUSTER)}
        path = experiment(EXPERIMENT)
        return snakemake("--profile", str(PROFILE), *arguments, experiment=path, config=config, **options)

    return run


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
    assert "-> slurm: partition cpu, 2 CPUs, 300M, 9m\n" in ran.output
    assert "-> slurm: partition gpu, gpu:a100:2, 1 CPU, 300M, 9m\n" in ran.output
    assert "-> slurm: partition cpu, 2 nodes, 1 CPU, 300M, 9m\n" in ran.output


@pytest.mark.skipif(has_plugin and has_library, reason="here both the plug-in and a libdrmaa are installed")
def test_a_run_without_the_plugin_or_the_library_says_which_is_missing(run_with_drmaa: Callable[..., Result]) -> None:
    ran = run_with_drmaa()
    assert ran.code != 0
    assert ("DRMAA_LIBRARY_PATH" if has_plugin else "pip install 'marin-rules[slurm-drmaa]'") in ran.output


@pytest.mark.skipif(not has_plugin, reason="needs snakemake-executor-plugin-drmaa (the extra slurm-drmaa)")
@pytest.mark.skipif(not has_library, reason="needs slurm-drmaa's libdrmaa.so: set DRMAA_LIBRARY_PATH")
def test_steps_run_as_jobs_through_the_library(
    run_with_drmaa: Callable[..., Result], on_slurm: dict[str, str], folder_of: Callable[[str], Path]
) -> None:
    ran = run_with_drmaa("--seconds-between-status-checks", "1", env=on_slurm, timeout=240.0)
    assert ran.code == 0, ran.output

    def seen(step: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((folder_of(step) / ".artifact.json").read_text())
        return found

    assert seen("cpu")["SLURM_JOB_PARTITION"] == "cpu"
    assert seen("cpu")["SLURM_CPUS_PER_TASK"] == "2"
    assert seen("gpu")["SLURM_JOB_PARTITION"] == "gpu"
    assert seen("gpu")["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert seen("pair")["SLURM_NTASKS"] == "2"
    assert (folder_of("pair") / ".executor_log.rank-1").read_text() == "rank 1\n"
