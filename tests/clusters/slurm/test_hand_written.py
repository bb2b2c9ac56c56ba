"""Rules that a person wrote, and conda environments, on Slurm."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from conda.installed import PYTHON_VERSION
from support.lab import REPOSITORY, Lab, Result
from support.slurm.cluster import SlurmCluster

pytest_plugins = ["conda.fixtures"]

MIXED = REPOSITORY / "experiments" / "tutorials" / "mixed.py"


def test_a_shell_rule_runs_on_a_node_and_plain_steps_beside_the_driver(
    run_on_slurm: Callable[..., Result], slurm: SlurmCluster, lab: Lab
) -> None:
    result = run_on_slurm(experiment=MIXED)
    assert result.code == 0, result.output
    assert re.search(r"mixed/counts .*\n.*\n +-> slurm: partition cpu, 1000M\n", result.output)
    told = result.output.partition("3 to run\n")[2].partition("all done")[0]
    words = [re.match(r"[\d:]{8} (\w+) +mixed/counts\b", line) for line in told.split("\n")]
    assert [word[1] for word in words if word] == ["queue", "start", "done"]
    assert all(re.match(r"([\d:]{8} \w+ +|\[)mixed/", line) for line in told.split("\n") if line), told
    names = ("mixed/text", "mixed/counts", "mixed/top")
    assert [lab.status_of(name) for name in names] == ["SUCCESS"] * 3
    (job,) = slurm.jobs()
    ran = {name: lab.info_of(name)["run"] for name in names}
    assert ran["mixed/counts"]["slurm"]["job_id"] == job.id
    assert ran["mixed/counts"]["slurm"]["nodes"] == job.nodes
    assert "slurm" not in ran["mixed/text"]
    assert "slurm" not in ran["mixed/top"]
    assert not (lab.folder_of("mixed/counts") / ".executor_status.lock").exists()
    counts = (lab.folder_of("mixed/counts") / "counts.txt").read_text()
    found = {word: int(count) for count, word in (line.split() for line in counts.splitlines())}
    assert found == Counter((lab.folder_of("mixed/text") / "text.txt").read_text().split())


FAILING = """
    rule fail:
        input:
            marin.inputs,
        output:
            marin.target("fail"),
        log:
            marin.log,
        resources:
            mem_mb=600,
        shell:
            marin.leased("echo on my way; exit 7")
    """


def test_a_shell_rule_goes_where_the_file_of_the_cluster_says_and_tells_of_its_failure(
    lab: Lab, run_on_slurm: Callable[..., Result], cluster_file: Callable[[str], str], slurm: SlurmCluster
) -> None:
    lab.experiment(FAILING, "experiment.smk")
    file = lab.experiment(
        """
        from marin_rules import *

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep(name="unlucky", fn=SnakemakeRule("fail"), config={})])
        """
    )
    site = cluster_file("slurm: {partition: urgent, account: ours}")
    result = run_on_slurm("--retries", "0", experiment=file, config={"cluster": site})
    assert result.code != 0
    (job,) = slurm.jobs()
    assert job.partition == "urgent"
    assert "--account=ours" in slurm.calls("sbatch")[0]
    assert re.search(rf"FAILED unlucky after .*: slurm job {job.id} failed on {job.nodes}\n", result.output)
    assert "[unlucky] on my way\n" in result.output
    assert "SLURM account" not in result.output


def test_a_rule_that_starts_its_processes_itself_has_tasks_on_several_nodes(
    lab: Lab, run_on_slurm: Callable[..., Result], slurm: SlurmCluster
) -> None:
    lab.experiment(
        """
        rule spread:
            input:
                marin.inputs,
            output:
                marin.target("spread"),
            log:
                marin.log,
            resources:
                mem_mb=600, mpi="srun", nodes=2, tasks=4,
            shell:
                marin.leased('{resources.mpi} bash -c "echo task on $SLURMD_NODENAME"')
        """.replace("$SLURMD", "\\$SLURMD"),
        "experiment.smk",
    )
    file = lab.experiment(
        """
        from marin_rules import *

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep(name="wide", fn=SnakemakeRule("spread"), config={})])
        """
    )
    result = run_on_slurm("--retries", "0", experiment=file)
    assert result.code == 0, result.output
    (job,) = slurm.jobs()
    said = re.findall(r"task on (\w+)", (lab.folder_of("wide") / ".executor_log").read_text())
    assert len(said) == 4
    assert len(set(said)) == 2
    assert re.search(rf"start  wide on {re.escape(job.nodes)}\n", result.output)


def test_a_group_of_steps_is_one_job(lab: Lab, run_on_slurm: Callable[..., Result], slurm: SlurmCluster) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import *

        def look(config):
            return [os.environ["SLURM_JOB_ID"], os.environ["MARK"]]

        def step(name):
            mark = remote(look, resources=ResourceConfig(ram="400m"), env_vars={"MARK": name})
            return ExecutorStep(name, mark, {})

        if __name__ == "__main__":
            executor_main(steps=[step("one"), step("two")])
        """
    )
    result = run_on_slurm("--groups", "look=pair", "--group-components", "pair=2", "--retries", "0", experiment=file)
    assert result.code == 0, result.output
    (job,) = slurm.jobs()
    for name in ("one", "two"):
        assert json.loads((lab.folder_of(name) / ".artifact.json").read_text()) == [job.id, name]
    assert f"slurm job {job.id}, " in result.output


def test_the_processes_of_a_step_run_in_its_conda_environment_on_their_nodes(
    lab: Lab, run_on_slurm: Callable[..., Result], slurm: SlurmCluster, conda_installation: Path, tmp_path: Path
) -> None:
    packages = f"[python ={PYTHON_VERSION}, cloudpickle, fsspec, iniconfig]"
    lab.experiment(f"channels: [conda-forge]\ndependencies: {packages}\n", "envs/own.yaml")
    file = lab.experiment(
        """
        import importlib.util, json, os, sys
        from marin_rules import *

        def look(config):
            modules = ("iniconfig", "snakemake")
            seen = {"prefix": sys.prefix, **{name: importlib.util.find_spec(name) is not None for name in modules}}
            with open(os.path.join(config, os.environ["SLURMD_NODENAME"]), "w") as file:
                json.dump(seen, file)

        mark = remote(look, resources=ResourceConfig(ram="300m", replicas=2), conda="envs/own.yaml")
        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep("look", mark, THIS_OUTPUT_PATH)])
        """
    )
    # A virtual environment activated over a conda one: conda's activation leaves it in front.
    base = tmp_path / "base"
    (base / "bin").mkdir(parents=True)
    folders = [Path(sys.executable).parent, base / "bin", conda_installation / "bin", slurm.environment["PATH"]]
    activated = {"PATH": os.pathsep.join(map(str, folders)), "CONDA_PREFIX": str(base), "CONDA_SHLVL": "1"}
    result = run_on_slurm("--sdm", "conda", experiment=file, env=activated)
    assert result.code == 0, result.output
    (environment,) = (path for path in (tmp_path / ".snakemake" / "conda").iterdir() if path.is_dir())
    for node in ("cpu1", "cpu2"):
        seen = json.loads((lab.folder_of("look") / node).read_text())
        assert seen == {"prefix": str(environment), "iniconfig": True, "snakemake": False}
    assert lab.info_of("look")["run"]["environment"]["path"] == str(environment)
    assert "iniconfig" in lab.info_of("look")["run"]["environment"]["packages"]
    (job,) = slurm.jobs()
    assert lab.info_of("look")["run"]["slurm"]["job_id"] == job.id
    assert lab.info_of("look")["run"]["slurm"]["nodes"] == job.nodes
