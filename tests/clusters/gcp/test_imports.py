"""Whoever does not use Google Cloud does not wait for its clients: half a second for each of them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from support.lab import REPOSITORY, Lab

EXPERIMENT = """
    import atexit, sys
    from marin_rules import ExecutorStep, ResourceConfig, executor_main, remote

    # (Snakemake itself imports google.cloud.storage, by way of smart_open, and so gRPC, wherever they are installed.)
    CLIENTS = ("google.cloud.batch", "google.cloud.tpu", "google.cloud.logging", "gcsfs")

    def imported():
        ours = [name for name in sys.modules if name.startswith("marin_rules.clusters.gcp.")]
        print("of Google:", [name for name in sys.modules if name.startswith(CLIENTS)])
        print("of ours:", sorted(name.rpartition(".")[2] for name in ours))

    @remote(resources=ResourceConfig.with_cpu(cpu=1, ram="500m"))
    def work(config):
        pass

    if __name__ == "__main__":
        atexit.register(imported)
        executor_main(steps=[ExecutorStep("step", work, {})])
"""
SLURM = "slurm: {partition: cpu}\n"


@pytest.mark.parametrize("where", ["here", "slurm"])
def test_runs_elsewhere_import_nothing_of_google(where: str, lab: Lab) -> None:
    folder = lab.folder / "config" / "clusters"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(SLURM)
    there = ["-n", "--profile", REPOSITORY / "profiles" / "slurm"] if where == "slurm" else []
    result = lab.snakemake(*there, experiment=lab.experiment(EXPERIMENT), config={"cluster": "lab"})
    assert result.code == 0, result.output
    assert "of Google: []" in result.output
    # Which variables and resources jobs there have is asked by every run.
    [ours] = [line for line in result.output.splitlines() if line.startswith("of ours: ")]
    assert set(re.findall(r"\w+", ours.partition(": ")[2])) <= {"allocation", "job_variables", "resources"}


@pytest.mark.processes
def test_clients_are_imported_when_they_are_used() -> None:
    code = (
        "import sys; import marin_rules.clusters.gcp.job_queue, marin_rules.clusters.gcp.allocation;"
        "print([name for name in sys.modules if name.startswith(('google', 'grpc'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
