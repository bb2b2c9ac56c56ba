"""Jobs on nodes that do not have the driver's files: neither its project nor its home, and nothing of its environment.

Code and plan reach them through the prefix, in a bucket; variables by an explicit list.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.emulators.gcs.emulator import GcsEmulator
from support.lab import REPOSITORY, Lab, Result
from support.slurm.cluster import SlurmCluster
from support.slurm.seclusion import Seclusion

PREFIX = "gs://bucket/x"

WORDS = """
    def shout(word):
        import endings
        return word.upper() + endings.MARK
    """

EXPERIMENT = """
    import os, sys
    from dataclasses import dataclass
    import fsspec
    import words
    from marin_rules import *

    MACHINE = ResourceConfig.with_cpu(cpu=1, ram="300m")

    @dataclass(frozen=True)
    class Config:
        output_path: str
        hidden: tuple[str, ...] = ()
        source: str = ""

    def write(config):
        with fsspec.open(os.path.join(config.output_path, "word.txt"), "w") as file:
            file.write("hello")

    def meet(config):
        process = this_process()
        with fsspec.open(os.path.join(config.output_path, f"rank-{process.rank}"), "w") as file:
            file.write(f"{process.count} {os.uname().nodename} {words.shout('here')}")

    def read(config):
        with fsspec.open(os.path.join(config.source, "word.txt")) as file:
            word = file.read().decode()
        return {
            "word": words.shout(word),
            "hidden": {folder: os.listdir(folder) if os.path.exists(folder) else None for folder in config.hidden},
            "variables": dict(os.environ),
            "python": sys.executable,
            "marin_rules": sys.modules["marin_rules"].__file__,
            "folder": os.getcwd(),
        }

    if __name__ == "__main__":
        first = ExecutorStep("first", remote(write, resources=MACHINE), Config(this_output_path()))
        second = ExecutorStep(
            "second",
            remote(read, resources=MACHINE, env_vars={"TOKEN": "of-the-step-alone"}),
            Config(this_output_path(), hidden=HIDDEN, source=first),
        )
        both = remote(meet, resources=ResourceConfig.with_cpu(cpu=1, ram="300m", replicas=2))
        third = ExecutorStep("third", both, Config(this_output_path()))
        here = ExecutorStep("here", write, Config(this_output_path(), source=second))
        executor_main(steps=[here, third])
    """


@pytest.fixture
def secluded(secluded_cluster: SlurmCluster, lab: Lab) -> Iterator[SlurmCluster]:
    yield secluded_cluster
    lab.kill_everything()
    secluded_cluster.reset()


@pytest.fixture
def nodes(secluded: SlurmCluster) -> Seclusion:
    assert secluded.seclusion is not None
    return secluded.seclusion


@pytest.fixture
def written(lab: Lab, tmp_path: Path) -> Path:
    lab.experiment(WORDS, "words.py")
    lab.experiment('MARK = "!"\n', "endings.py")
    hidden = (str(tmp_path), str(REPOSITORY), str(Path.home() / ".cache"))
    return lab.experiment(EXPERIMENT.replace("HIDDEN", repr(hidden)))


@pytest.fixture
def run_secluded(
    lab: Lab,
    secluded: SlurmCluster,
    nodes: Seclusion,
    gcs: GcsEmulator,
    cluster_file: Callable[[str], str],
) -> Callable[..., Result]:
    """`run_secluded(experiment, **env)`: on nodes without the driver's files, with the prefix in a bucket."""
    gcs.create_bucket("bucket")

    def run(experiment: Path, python: Path | str = nodes.python, **env: str) -> Result:
        name = cluster_file(
            f"slurm: {{partition: cpu}}\njobs: {{shared: false, python: {python}, scratch: {nodes.scratch}}}\n"
        )
        profile = ("--profile", str(REPOSITORY / "profiles" / "slurm"), "--retries", "0")
        env = {**secluded.environment, **gcs.environment, **env}
        config = {"cluster": name}
        return lab.snakemake(*profile, experiment=experiment, prefix=PREFIX, config=config, env=env, timeout=120.0)

    return run


def object_of(gcs: GcsEmulator, step: str, file: str) -> bytes:
    """A file of the one output path of a step."""
    (name,) = [name for name in gcs.names("bucket") if name.startswith(f"x/{step}-") and name.endswith(f"/{file}")]
    return gcs.get("bucket", name) or b""


def test_a_job_finds_all_it_needs_in_the_bucket_and_nothing_of_the_drivers(
    run_secluded: Callable[..., Result], written: Path, gcs: GcsEmulator, nodes: Seclusion, tmp_path: Path
) -> None:
    ran = run_secluded(written, SECRET_OF_THE_SESSION="hunter2", LAB_NAME="lab", MARIN_JOB_VARIABLES="LAB_*", TZ="UTC")

    assert ran.code == 0, ran.output
    found = json.loads(object_of(gcs, "second", ".artifact.json"))
    assert found["word"] == "HELLO!"
    # Missing, or empty: a checkout below the home is hidden with it.
    assert {path: names or None for path, names in found["hidden"].items()} == dict.fromkeys(
        (str(tmp_path), str(REPOSITORY), str(Path.home() / ".cache"))
    )
    assert found["python"] == str(nodes.python)
    assert found["marin_rules"].startswith(f"{nodes.scratch}/marin-rules-")
    assert found["folder"].startswith(str(nodes.scratch))
    variables: dict[str, Any] = found["variables"]
    assert variables["TOKEN"] == "of-the-step-alone"
    assert variables["LAB_NAME"] == "lab"
    assert variables["TZ"] == "UTC"
    assert variables["STORAGE_EMULATOR_HOST"] == gcs.environment["STORAGE_EMULATOR_HOST"]
    assert variables["OMP_NUM_THREADS"] == "1"
    assert "SECRET_OF_THE_SESSION" not in variables
    assert "VIRTUAL_ENV" not in variables
    assert str(REPOSITORY) not in json.dumps({name: variables[name] for name in variables if "SLURM" not in name})
    assert [object_of(gcs, "third", f"rank-{rank}") for rank in range(2)] == [b"2 cpu1 HERE!", b"2 cpu2 HERE!"]
    assert not [name for name in gcs.names("bucket") if "x/third-" in name and "rank-" in name and "log" in name]
    # The archive is all that stays of the run.
    (archive,) = [name for name in gcs.names("bucket") if "/experiments/." in name]
    assert archive.startswith("x/experiments/.code/")


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("/usr/bin/python3", "the Python of its node cannot run steps of this run"),
        ("/nowhere/python", "its node does not have the Python that the cluster's file names, or uv"),
    ],
)
def test_a_python_that_cannot_run_the_step_is_named_by_the_driver(
    run_secluded: Callable[..., Result], written: Path, nodes: Seclusion, python: str, why: str
) -> None:
    if python == "/usr/bin/python3" and not Path(python).exists():
        pytest.skip("there is no other Python on this machine")
    ran = run_secluded(written, python=python)

    assert ran.code == 1
    assert f": {why}; what it printed is in {nodes.scratch}/marin-rules-" in ran.output
