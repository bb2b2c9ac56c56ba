"""Environments of steps on Slurm: made once, where the run is started, and found by the jobs on their nodes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab import Lab, Result
from support.slurm.cluster import SlurmCluster

PROJECT = """
    [project]
    name = "words"
    version = "1"

    [project.optional-dependencies]
    reading = ["iniconfig==2.0.0"]
    impossible = ["iniconfig==99999"]
    """

LOOKING = """
    import importlib.util, sys
    from marin_rules import *

    def look(config):
        modules = ("iniconfig", "snakemake")
        return {"prefix": sys.prefix, **{name: importlib.util.find_spec(name) is not None for name in modules}}

    mark = remote(look, resources=ResourceConfig(ram="300m"), pip_dependency_groups=["{group}"])
    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name, mark, {}) for name in {names}])
    """


@pytest.fixture
def looking(lab: Lab) -> Callable[..., Path]:
    """`looking(*names, group=)` writes an experiment of such steps, each in the environment of that group."""

    def write(*names: str, group: str = "reading") -> Path:
        lab.experiment(PROJECT, "pyproject.toml")
        return lab.experiment(LOOKING.replace("{group}", group).replace("{names}", repr(names)))

    return write


@pytest.fixture
def result_of(lab: Lab) -> Callable[[str], Any]:
    """`result_of("name")` is what the function of that step returned."""
    return lambda name: json.loads((lab.folder_of(name) / ".artifact.json").read_text())


def builds(result: Result) -> list[str]:
    """The environments that a run says it has built."""
    return re.findall(r"^environment (\S+): building", result.output, re.MULTILINE)


def test_a_step_runs_in_its_own_environment_which_the_next_run_finds(
    looking: Callable[..., Path],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    tmp_path: Path,
    result_of: Callable[[str], Any],
    lab: Lab,
) -> None:
    first = run_on_slurm(experiment=looking("first"))
    assert first.code == 0, first.output
    (name,) = builds(first)
    environment = tmp_path / "environments" / name
    assert re.search(rf"-> slurm: .*, environment {name}\n", first.output)

    second = run_on_slurm(experiment=looking("first", "second"))
    assert second.code == 0, second.output
    assert builds(second) == []
    assert len(slurm.calls("sbatch")) == 2

    for step in ("first", "second"):
        assert result_of(step) == {"prefix": str(environment), "iniconfig": True, "snakemake": False}
        ran = lab.info_of(step)["run"]
        assert ran["slurm"]["nodes"] in ("cpu1", "cpu2")
        assert ran["environment"]["path"] == str(environment)
        assert "iniconfig==2.0.0" in ran["environment"]["requirements"]
        versions = ran["environment"]["packages"]
        assert versions["iniconfig"] == "2.0.0"
        assert versions.keys() == {"cloudpickle", "fsspec", "iniconfig", "pyyaml"}
        assert all(re.match(r"\d+(\.\d+)+", version) for version in versions.values())


def test_what_cannot_be_built_ends_the_run_before_anything_is_submitted(
    looking: Callable[..., Path], run_on_slurm: Callable[..., Result], slurm: SlurmCluster, tmp_path: Path, lab: Lab
) -> None:
    result = run_on_slurm(experiment=looking("first", group="impossible"))
    assert result.code != 0
    assert "(impossible) cannot be built; uv says:" in result.output
    assert "no version of iniconfig==99999" in result.output
    assert "Traceback" not in result.output
    assert slurm.calls("sbatch") == []
    assert lab.status_of("first") is None
    assert [path.name for path in (tmp_path / "environments").iterdir() if not path.name.startswith("packages-")] == []


def test_environments_are_kept_where_the_file_of_the_cluster_says(
    looking: Callable[..., Path],
    run_on_slurm: Callable[..., Result],
    cluster_file: Callable[[str], str],
    tmp_path: Path,
    result_of: Callable[[str], Any],
) -> None:
    shared = tmp_path / "shared" / "environments"
    site = cluster_file(f"slurm: {{partition: cpu, environments: {shared}}}")
    result = run_on_slurm(experiment=looking("first"), config={"cluster": site}, env={"MARIN_ENVIRONMENTS": ""})
    assert result.code == 0, result.output
    (name,) = builds(result)
    assert result_of("first")["prefix"] == str(shared / name)
    assert not (tmp_path / "environments").exists()


def test_the_processes_of_a_step_find_each_other_with_jax(
    lab: Lab, run_on_slurm: Callable[..., Result], slurm_with_hosts: SlurmCluster
) -> None:
    """Nobody tells jax anything: it takes the coordinator, the ranks and their number from what Slurm has set."""
    file = lab.experiment(
        """
        import json, os
        from marin_rules import *

        def add_up(config):
            import jax
            from jax.experimental.multihost_utils import process_allgather

            jax.distributed.initialize()
            rank, count = jax.process_index(), jax.process_count()
            found = {
                "processes": count,
                "devices": jax.device_count(),
                "devices_here": jax.local_device_count(),
                "of_all": process_allgather(jax.numpy.array(10 ** rank)).tolist(),
                "host": os.uname().nodename,
            }
            with open(os.path.join(config, f"rank-{rank}.json"), "w") as file:
                json.dump(found, file)

        mark = remote(
            add_up,
            resources=ResourceConfig(cpu=1, ram="1500m", replicas=2),
            pip_dependency_groups=["jax"],
            env_vars={"JAX_PLATFORMS": "cpu"},
        )
        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep("sum", mark, THIS_OUTPUT_PATH)])
        """
    )
    result = run_on_slurm("--retries", "0", experiment=file, timeout=300)
    assert result.code == 0, result.output
    found = [json.loads((lab.folder_of("sum") / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert {one.pop("host") for one in found} == {"cpu1", "cpu2"}
    assert found[0] == found[1] == {"processes": 2, "devices": 2, "devices_here": 1, "of_all": [1, 10]}
