"""Rules that a person wrote, and conda environments, on Slurm."""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conda.installed import PYTHON_VERSION
from runs.fixtures import REPOSITORY, Result
from slurm.cluster import SlurmCluster

pytest_plugins = ["conda.fixtures"]

MIXED = REPOSITORY / "experiments" / "tutorials" / "mixed.py"


def test_a_shell_rule_runs_on_a_node_and_plain_steps_beside_the_driver(
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    status_of: Callable[[str], str | None],
    info_of: Callable[[str], dict[str, Any]],
    folder_of: Callable[[str], Path],
) -> None:
    result = run_on_slurm(experiment=MIXED)
    assert result.code == 0, result.output
    names = ("mixed/text", "mixed/counts", "mixed/top")
    assert [status_of(name) for name in names] == ["SUCCESS"] * 3
    (job,) = slurm.jobs()
    ran = {name: info_of(name)["run"] for name in names}
    assert ran["mixed/counts"]["slurm"]["job_id"] == job.id
    assert ran["mixed/counts"]["slurm"]["nodes"] == job.nodes
    assert "slurm" not in ran["mixed/text"]
    assert "slurm" not in ran["mixed/top"]
    assert not (folder_of("mixed/counts") / ".executor_status.lock").exists()
    counts = (folder_of("mixed/counts") / "counts.txt").read_text()
    found = {word: int(count) for count, word in (line.split() for line in counts.splitlines())}
    assert found == Counter((folder_of("mixed/text") / "text.txt").read_text().split())


def test_a_step_runs_in_its_conda_environment_on_a_node(
    experiment: Callable[..., Path],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    conda_installation: Path,
    tmp_path: Path,
    info_of: Callable[[str], dict[str, Any]],
    folder_of: Callable[[str], Path],
) -> None:
    packages = f"[python ={PYTHON_VERSION}, cloudpickle, fsspec, iniconfig]"
    experiment(f"channels: [conda-forge]\ndependencies: {packages}\n", "envs/own.yaml")
    file = experiment(
        """
        import importlib.util, sys
        from marin_rules import *

        def look(config):
            modules = ("iniconfig", "snakemake")
            return {"prefix": sys.prefix, **{name: importlib.util.find_spec(name) is not None for name in modules}}

        mark = remote(look, resources=ResourceConfig(ram="1g"), conda="envs/own.yaml")
        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep("look", mark, {})])
        """
    )
    path = f"{conda_installation / 'bin'}{os.pathsep}{slurm.environment['PATH']}"
    result = run_on_slurm("--sdm", "conda", experiment=file, env={"PATH": path})
    assert result.code == 0, result.output
    (environment,) = (path for path in (tmp_path / ".snakemake" / "conda").iterdir() if path.is_dir())
    seen = json.loads((folder_of("look") / ".artifact.json").read_text())
    assert seen == {"prefix": str(environment), "iniconfig": True, "snakemake": False}
    (job,) = slurm.jobs()
    assert info_of("look")["run"]["slurm"]["job_id"] == job.id
    assert info_of("look")["run"]["slurm"]["nodes"] == job.nodes
