"""Runs on a real Slurm: where steps go, what they find there, and what is told of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab import REPOSITORY, Lab, Result
from support.slurm.cluster import SlurmCluster

TUTORIAL = REPOSITORY / "experiments" / "tutorials" / "cluster.py"
WITHOUT_TPU = {"run_only": "cluster/summary"}

LOOK = """
    import json, os
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        number: int = versioned(1)
        output_path: str = THIS_OUTPUT_PATH

    def look(config):
        rank = this_process().rank
        with open(os.path.join(config.output_path, f"seen-{rank}.json"), "w") as file:
            json.dump(dict(os.environ), file)

    def step(name, **resources):
        return ExecutorStep(name, remote(look, resources=ResourceConfig(**{"ram": "300m", **resources})), Config())
    """


def options_of(call: list[str]) -> dict[str, str]:
    """The options of one call of sbatch."""
    return dict(word.removeprefix("--").split("=", 1) for word in call if word.startswith("--") and "=" in word)


@pytest.fixture
def submitted(slurm: SlurmCluster) -> Callable[[], dict[str, dict[str, str]]]:
    """`submitted()` gives the options of sbatch by the name of the job."""
    return lambda: {options["job-name"]: options for options in map(options_of, slurm.calls("sbatch"))}


@pytest.fixture
def looking(lab: Lab) -> Callable[[str], Path]:
    """`looking("step(...), ...")` writes an experiment whose steps note what they see."""

    def write(steps: str) -> Path:
        return lab.experiment(f"{LOOK}\n    if __name__ == '__main__':\n        executor_main(steps=[{steps}])\n")

    return write


def test_the_tutorial_says_where_its_steps_go_and_the_report_where_they_were(
    run_on_slurm: Callable[..., Result], slurm: SlurmCluster, lab: Lab, tmp_path: Path
) -> None:
    dry = run_on_slurm("-n", experiment=TUTORIAL, config=WITHOUT_TPU)
    assert dry.code == 0, dry.output
    assert re.search(r"cluster/points .*\n(.*\n)? +-> slurm: partition cpu, 1 CPU, 500M\n", dry.output), dry.output
    assert "-> slurm: partition gpu, gpu:a100:1, 1 CPU, 500M\n" in dry.output
    assert "-> slurm: partition cpu, 2 nodes, 1 CPU, 500M\n" in dry.output
    assert re.search(r"cluster/summary .*\n.*\n +-> here\n", dry.output)
    assert slurm.calls("sbatch") == []
    assert not lab.prefix.exists()

    result = run_on_slurm(experiment=TUTORIAL, config=WITHOUT_TPU)
    assert result.code == 0, result.output
    assert "5 steps: 4 to run, 1 not needed" in result.output
    assert len(slurm.calls("sbatch")) == 3

    ran = {name: lab.info_of(f"cluster/{name}")["run"] for name in ("points", "line", "distances", "summary")}
    assert ran["points"]["slurm"]["nodes"] in ("cpu1", "cpu2")
    assert ran["line"]["slurm"]["nodes"] in ("gpu1", "gpu2")
    assert ran["line"]["slurm"]["gpus"] in ("0", "1")
    assert ran["distances"]["slurm"]["nodes"] == "cpu[1-2]"
    assert "slurm" not in ran["summary"]
    line = json.loads((lab.folder_of("cluster/line") / ".artifact.json").read_text())
    assert line["slope"] == pytest.approx(3, abs=0.1)
    assert line["offset"] == pytest.approx(1, abs=0.1)
    summary = json.loads((lab.folder_of("cluster/summary") / ".artifact.json").read_text())
    assert summary["points"] == 1000
    assert summary["mean_square"] == pytest.approx(0.01, abs=0.005)
    logs = lab.folder_of("cluster/distances")
    assert "machine 1 of 2: 500 points" in (logs / ".executor_log.rank-0").read_text()
    assert "machine 2 of 2: 500 points" in (logs / ".executor_log.rank-1").read_text()
    assert "[rank 1] machine 2 of 2" in (logs / ".executor_log").read_text()

    again = run_on_slurm(experiment=TUTORIAL, config=WITHOUT_TPU)
    assert "5 steps: 4 cached, 1 not needed" in again.output
    assert len(slurm.calls("sbatch")) == 3

    report = tmp_path / "report"
    assert run_on_slurm("--report", f"{report}.html", experiment=TUTORIAL, config=WITHOUT_TPU).code == 0
    overview = (tmp_path / ".snakemake" / "marin-rules" / "report" / "overview.html").read_text()
    assert f"{ran['line']['slurm']['nodes']} (slurm job {ran['line']['slurm']['job_id']}, partition gpu)" in overview
    assert "cpu[1-2]" in overview


def test_the_same_file_runs_here_without_a_profile(lab: Lab, slurm: SlurmCluster) -> None:
    result = lab.snakemake(experiment=TUTORIAL, env=slurm.environment)
    assert result.code == 0, result.output
    assert slurm.calls("sbatch") == []
    assert "slurm" not in lab.info_of("cluster/distances")["run"]


def test_a_request_is_put_in_the_words_of_the_cluster(
    looking: Callable[[str], Path],
    run_on_slurm: Callable[..., Result],
    cluster_file: Callable[[str], str],
    submitted: Callable[[], dict[str, dict[str, str]]],
    lab: Lab,
) -> None:
    name = cluster_file(
        """
        slurm:
          partition: cpu
          runtime: 10m
          max_runtime: 1h
          preemptible: {partition: spare}
          gpus:
            A100-80G: {partition: gpu, gres: a100, count: 2, runtime: 20m}
        """
    )
    file = looking(
        "step('plain', cpu=2, preemptible=False), step('spare'),"
        " step('gpus', device=GpuConfig('nvidia-a100-80gb', count=2), replicas=2, cpu=3)"
    )
    result = run_on_slurm(experiment=file, config={"cluster": name})
    assert result.code == 0, result.output
    wanted = {
        "plain": {"partition": "cpu", "cpus-per-task": "2", "nodes": "1", "time": "10", "mem": "300"},
        "spare": {"partition": "spare", "cpus-per-task": "1", "nodes": "1", "time": "10", "mem": "300"},
        "gpus": {"partition": "gpu", "cpus-per-task": "3", "nodes": "2", "time": "20", "gres": "gpu:a100:2"},
    }
    for step, options in wanted.items():
        assert submitted()[step].items() >= options.items()
    assert "gres" not in submitted()["plain"]
    seen = [json.loads((lab.folder_of("gpus") / f"seen-{rank}.json").read_text()) for rank in (0, 1)]
    for rank, variables in enumerate(seen):
        assert variables["SLURM_PROCID"] == str(rank)
        assert (variables["SLURM_NTASKS"], variables["SLURM_LOCALID"]) == ("2", "0")
        assert variables["SLURM_STEP_NODELIST"] == "gpu[1-2]"
        assert variables["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert {variables["SLURMD_NODENAME"] for variables in seen} == {"gpu1", "gpu2"}


def test_what_a_profile_sets_wins(
    looking: Callable[[str], Path],
    run_on_slurm: Callable[..., Result],
    submitted: Callable[[], dict[str, dict[str, str]]],
) -> None:
    overrides = ["--set-resources", "look:mem_mb=512", "look:slurm_partition=urgent", "look:runtime=7"]
    file = looking("step('one')")
    assert "-> slurm: partition urgent, 1 CPU, 512M, 7m\n" in run_on_slurm("-n", *overrides, experiment=file).output
    result = run_on_slurm(*overrides, experiment=file)
    assert result.code == 0, result.output
    assert submitted()["one"].items() >= {"mem": "512", "partition": "urgent", "time": "7"}.items()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            "step('s', device=GpuConfig('H100'))",
            ["'s'", "GPUs of type H100", "test has GPUs A100 (2 a machine)"],
        ),
        (
            "step('s', device=GpuConfig('A100', count=8))",
            ["'s'", "8 GPUs on each machine", "partition gpu", "at most 2"],
        ),
        ("step('s', device=TpuConfig('v4-8'))", ["'s'", "TPU v4-8", "GPUs A100"]),
        ("step('s', ram='64g')", ["'s'", "64G of memory", "partition cpu", "4000M"]),
    ],
)
def test_what_the_cluster_lacks_is_refused_before_anything_is_submitted(
    step: str,
    words: list[str],
    looking: Callable[[str], Path],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    lab: Lab,
) -> None:
    for arguments in ([], ["-n"]):
        result = run_on_slurm(*arguments, experiment=looking(step))
        assert result.code != 0
        for word in words:
            assert word in result.output
        assert "Traceback" not in result.output
    assert slurm.calls("sbatch") == []
    assert not lab.prefix.exists()


def test_secrets_reach_the_step_and_stay_out_of_files_and_command_lines(
    lab: Lab, run_on_slurm: Callable[..., Result], slurm: SlurmCluster, tmp_path: Path
) -> None:
    secret = "hunter2-on-slurm"
    file = lab.experiment(
        """
        import hashlib, os
        from marin_rules import *

        def whisper(config):
            digest = hashlib.sha256(os.environ["TOKEN"].encode()).hexdigest()
            print(digest, "MARIN_RULES_STEP_VARIABLES" in os.environ)

        mark = remote(
            whisper,
            resources=ResourceConfig(ram="300m", replicas=2),
            env_vars={"TOKEN": os.environ["OUTER"]},
        )
        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep("quiet", mark, {})])
        """
    )
    result = run_on_slurm(experiment=file, env={"OUTER": secret})
    assert result.code == 0, result.output
    import hashlib

    log = (lab.folder_of("quiet") / ".executor_log").read_text()
    assert log.count(f"{hashlib.sha256(secret.encode()).hexdigest()} False") == 2
    for path in [*tmp_path.rglob("*"), *(slurm.folder / "log").rglob("*")]:
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    assert not any(secret in word for call in slurm.calls("sbatch") for word in call)


def test_max_concurrent_caps_steps_on_the_cluster(
    looking: Callable[[str], Path], run_on_slurm: Callable[..., Result]
) -> None:
    result = run_on_slurm(experiment=looking("step('one'), step('two'), step('three')"), config={"max_concurrent": 1})
    assert result.code == 0, result.output
    events = re.findall(r"^[\d:]+ (queue|done) ", result.output, re.MULTILINE)
    assert events == ["queue", "done"] * 3


def test_a_step_that_is_forced_runs_again_although_its_status_says_done(
    looking: Callable[[str], Path], run_on_slurm: Callable[..., Result], slurm: SlurmCluster, lab: Lab
) -> None:
    file = looking("step('one')")
    assert run_on_slurm(experiment=file).code == 0
    result = run_on_slurm("-R", "look", experiment=file)
    assert result.code == 0, result.output
    assert len(slurm.calls("sbatch")) == 2
    assert lab.info_of("one")["run"]["attempt"] == 2


def test_a_step_that_another_run_is_at_is_waited_for_here_and_not_on_a_node(
    lab: Lab, start_on_slurm: Callable[..., Any], slurm: SlurmCluster
) -> None:
    file = lab.experiment(
        """
        from marin_rules import *

        def wait(config):
            open("gate").read()

        step = ExecutorStep("shared", remote(wait, resources=ResourceConfig(ram="300m")), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    here = lab.start_snakemake(experiment=file)
    here.wait_for(lambda: lab.status_of("shared") == "RUNNING", "the step to run here")
    there = start_on_slurm(experiment=file)
    there.wait_for(lambda: "wait   shared: held by" in there.output, "a word about who has it")
    lab.open_gate()
    assert here.wait().code == 0
    result = there.wait()
    assert result.code == 0, result.output
    assert slurm.calls("sbatch") == []


def test_the_same_relative_prefix_in_two_folders_means_two_steps(
    lab: Lab,
    start_on_slurm: Callable[..., Any],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    tmp_path: Path,
) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import *

        def wait(config):
            if os.path.basename(os.getcwd()) == "first":
                open("../gate").read()

        step = ExecutorStep("same", remote(wait, resources=ResourceConfig(ram="300m")), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = start_on_slurm(experiment=file, prefix="out", cwd=tmp_path / "first")
    first.wait_for(lambda: "start  same on" in first.output, "the first one to run")
    second = run_on_slurm(experiment=file, prefix="out", cwd=tmp_path / "second")
    assert second.code == 0, second.output
    lab.open_gate()
    assert first.wait().code == 0
    assert len(slurm.calls("sbatch")) == 2


def test_a_profile_may_give_a_step_more_nodes_than_it_asks_for(
    looking: Callable[[str], Path], run_on_slurm: Callable[..., Result], lab: Lab
) -> None:
    overrides = ["--set-resources", "look:nodes=4", "look:slurm_partition=urgent"]
    result = run_on_slurm(*overrides, experiment=looking("step('wide', replicas=2)"))
    assert result.code == 0, result.output
    seen = [json.loads(path.read_text()) for path in lab.folder_of("wide").glob("seen-*.json")]
    assert {variables["SLURMD_NODENAME"] for variables in seen} == {"cpu1", "cpu2", "gpu1", "gpu2"}
    assert {variables["SLURM_NTASKS"] for variables in seen} == {"4"}
