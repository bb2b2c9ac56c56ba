"""A dry run tells the truth: each step's state and why, and then exactly that is what a run does."""

import errno
import getpass
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.lab import Lab

EXPERIMENT = """
    import os
    import time
    from dataclasses import dataclass

    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of

    @dataclass(frozen=True)
    class Config:
        source: object = None
        output_path: str = THIS_OUTPUT_PATH

    def work(config):
        # Fails if another step works at the same time and `alone` says that none may.
        if os.path.exists("alone"):
            os.mkdir("busy")
            time.sleep(0.1)
            os.rmdir("busy")

    def prepare(config):
        work(config)

    def train(config):
        if os.path.exists("broken"):
            raise ValueError("told to fail")
        work(config)

    def evaluate(config):
        work(config)

    def describe(config):
        work(config)

    data = ExecutorStep("data", prepare, Config())
    model = ExecutorStep("model", train, Config(output_path_of(data)))
    score = ExecutorStep("score", evaluate, Config(output_path_of(model)))
    stats = ExecutorStep("stats", describe, Config(output_path_of(data)))

    if __name__ == "__main__":
        executor_main(steps=[score, stats])
"""

WAITING_EXPERIMENT = """
    from dataclasses import dataclass

    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of

    @dataclass(frozen=True)
    class Config:
        source: object = None
        output_path: str = THIS_OUTPUT_PATH

    def wait(config):
        with open("gate") as gate:
            gate.read()

    def use(config):
        pass

    slow = ExecutorStep("slow", wait, Config())
    user = ExecutorStep("user", use, Config(output_path_of(slow)))

    if __name__ == "__main__":
        executor_main(steps=[user])
"""

STATES = ("cached", "would run", "to run", "running elsewhere", "blocked", "not needed")
ROW = re.compile(rf"^({'|'.join(STATES)}) +(\S+) +(\S+)(?:  \((.*)\))?$")
REASON = re.compile(r"^ +\((.*)\)$")
STARTED = re.compile(r"^\d\d:\d\d:\d\d start  (\S+)$", re.MULTILINE)
COMMAND = re.compile(r"^(?:Shell command: )?(\S.*run-step.* --plan (\S+) --step (\S+)-[0-9a-f]{6}\b.*)$", re.MULTILINE)
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"


class Row(NamedTuple):
    """A line of the table."""

    state: str
    path: str
    reason: str | None


def table_of(output: str) -> dict[str, Row]:
    """The table of steps in what a command printed, by name."""
    rows: dict[str, Row] = {}
    name = ""
    for line in output.splitlines():
        if row := ROW.match(line):
            name = row[2]
            assert name not in rows, f"{name} is listed twice:\n{output}"
            rows[name] = Row(row[1], row[3], row[4])
        elif (reason := REASON.match(line)) and rows and rows[name].reason is None:
            rows[name] = rows[name]._replace(reason=reason[1])
    return rows


def states(output: str) -> dict[str, str]:
    return {name: row.state for name, row in table_of(output).items()}


def would_run(output: str) -> set[str]:
    return {name for name, row in table_of(output).items() if row.state == "would run"}


def snapshot(*folders: Path) -> dict[str, int]:
    """Every path and when it changed, without what is Snakemake's own."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*")) if path.exists()]
    return {str(path): path.stat().st_mtime_ns for path in paths if ".snakemake" not in path.parts}


class Workplace:
    """An experiment in a working directory of its own, beside its prefix."""

    def __init__(self, folder: Path, prefix: Path, snakemake: Callable[..., Any]) -> None:
        self.folder = folder
        self.prefix = prefix
        self._snakemake = snakemake

    def run(self, *arguments: str, **config: object) -> Any:
        return self._snakemake(*arguments, experiment="experiment.py", config=config, cwd=self.folder)

    def dry_run(self, *arguments: str, **config: object) -> str:
        """A dry run that succeeds and leaves no trace; returns what it prints."""
        # The first start of Snakemake in a folder makes `.snakemake` there, which changes the folder itself.
        (self.folder / ".snakemake").mkdir(exist_ok=True)
        before = snapshot(self.folder, self.prefix)
        result = self.run("-n", *arguments, **config)
        assert result.code == 0, result.output
        assert snapshot(self.folder, self.prefix) == before
        return str(result.output)

    def logs(self) -> dict[str, int]:
        """How much each step has logged: grows with every attempt to run it."""
        logs = self.prefix.glob("*/.executor_log")
        return {log.parent.name.rsplit("-", 1)[0]: log.stat().st_size for log in logs}

    def statuses(self) -> dict[str, str]:
        files = self.prefix.glob("*/.executor_status")
        return {file.parent.name.rsplit("-", 1)[0]: file.read_text() for file in files}


@pytest.fixture
def workplace(tmp_path: Path, lab: Lab) -> Workplace:
    return Workplace(lab.experiment(EXPERIMENT, "work/experiment.py").parent, lab.prefix, lab.snakemake)


def test_a_new_experiment_runs_as_foretold_then_is_cached_and_needs_no_ancestors(
    workplace: Workplace, lab: Lab
) -> None:
    said = workplace.dry_run()
    table = table_of(said)
    assert {name: row.reason for name, row in table.items()} == {
        "data": "new",
        "model": "new; dependency data would run",
        "score": "new; dependency model would run",
        "stats": "new; dependency data would run",
    }
    for name, row in table.items():
        assert re.fullmatch(rf"{re.escape(str(workplace.prefix))}/{name}-[0-9a-f]{{6}}", row.path)
    assert "4 steps: 4 would run" in said.splitlines()
    assert not workplace.prefix.exists()
    assert not list(Path(lab.environment["TMPDIR"]).glob("marin-rules-*"))

    (workplace.folder / "alone").touch()
    done = workplace.run("-j", "1")
    assert done.code == 0, done.output
    assert set(STARTED.findall(done.output)) == would_run(said)
    assert "4 steps: 4 to run" in done.output.splitlines()
    assert workplace.statuses() == dict.fromkeys(table, "SUCCESS")
    assert {path.name for path in workplace.prefix.iterdir()} == {
        *(Path(row.path).name for row in table.values()),
        "experiments",
    }

    said = workplace.dry_run()
    assert states(said) == dict.fromkeys(table, "cached")
    assert "4 steps: 4 cached" in said.splitlines()

    ancestor = lab.folder_of("data")
    shutil.rmtree(ancestor)
    said = workplace.dry_run()
    assert states(said) == {"data": "not needed", "model": "cached", "score": "cached", "stats": "cached"}
    assert table_of(said)["data"].reason == "everything built from it is done"
    assert "4 steps: 3 cached, 1 not needed" in said.splitlines()
    again = workplace.run()
    assert again.code == 0, again.output
    assert STARTED.findall(again.output) == []
    assert not ancestor.exists()


def test_forced_steps_and_what_depends_on_them_run_again(workplace: Workplace) -> None:
    assert workplace.run().code == 0

    said = workplace.dry_run("-F")
    assert {name: row.reason for name, row in table_of(said).items()} == dict.fromkeys(
        ("data", "model", "score", "stats"), "forced"
    )
    assert "4 steps: 4 would run" in said.splitlines()

    said = workplace.dry_run("-R", "train")
    assert states(said) == {"data": "cached", "model": "would run", "score": "would run", "stats": "cached"}
    assert table_of(said)["model"].reason == "forced"
    assert table_of(said)["score"].reason == "dependency model would run"
    assert "4 steps: 2 would run, 2 cached" in said.splitlines()

    before = workplace.logs()
    done = workplace.run("-R", "train")
    assert done.code == 0, done.output
    after = workplace.logs()
    assert {name for name in after if after[name] > before[name]} == would_run(said)
    assert set(STARTED.findall(done.output)) == would_run(said)


def test_failed_steps_run_again_or_are_refused(workplace: Workplace) -> None:
    (workplace.folder / "broken").touch()
    failed = workplace.run(run_only="^score")
    assert failed.code != 0
    assert workplace.statuses() == {"data": "SUCCESS", "model": "FAILED", "score": "DEP_FAILED"}

    said = workplace.dry_run()
    table = table_of(said)
    assert states(said) == {
        "data": "cached",
        "model": "would run",
        "score": "would run",
        "stats": "would run",
    }
    assert re.fullmatch(f"failed before at {MOMENT}", str(table["model"].reason))
    assert re.fullmatch(f"a dependency failed before at {MOMENT}", str(table["score"].reason))
    assert table["stats"].reason == "new"
    assert "4 steps: 3 would run, 1 cached" in said.splitlines()

    # Failed steps are refused, with what hangs on them; the rest would run, and does.
    said = workplace.dry_run(force_run_failed=False)
    table = table_of(said)
    assert states(said) == {"data": "cached", "model": "blocked", "score": "blocked", "stats": "would run"}
    assert re.match(f"failed before at {MOMENT}.*force_run_failed", str(table["model"].reason))
    assert table["score"].reason == "dependency model is blocked"
    assert "4 steps: 1 would run, 2 blocked, 1 cached" in said.splitlines()

    before = workplace.logs()
    refused = workplace.run(force_run_failed=False)
    assert refused.code != 0
    assert "model failed previously" in refused.output
    after = workplace.logs()
    assert {name for name in after if after[name] != before.get(name)} == would_run(said)
    assert workplace.statuses() == {
        "data": "SUCCESS",
        "model": "FAILED",
        "score": "DEP_FAILED",
        "stats": "SUCCESS",
    }


def test_the_command_of_a_step_can_be_repeated_by_hand(workplace: Workplace, lab: Lab) -> None:
    (workplace.folder / "broken").touch()
    assert workplace.run().code != 0
    (kept_plan,) = workplace.prefix.glob("experiments/.runs/*/plan")
    (workplace.folder / "broken").unlink()

    said = workplace.dry_run("-p")
    assert would_run(said) == {"model", "score"}
    shown = {name: (command, plan) for command, plan, name in COMMAND.findall(said)}
    assert set(shown) == {"model", "score"}, f"`-n -p` does not show each command:\n{said}"
    command, plan = shown["model"]
    assert not Path(plan).exists()  # A dry run writes none; the run that failed has left its own.
    command = re.sub(r"--digest \S+ ", "", command)  # It belongs to the plan that was not written.
    by_hand = subprocess.run(
        ["bash", "-c", command.replace(plan, str(kept_plan))],
        cwd=workplace.folder,
        env=lab.environment,
        capture_output=True,
        text=True,
    )
    assert by_hand.returncode == 0, by_hand.stderr
    assert workplace.statuses()["model"] == "SUCCESS"


def test_a_step_that_another_run_works_on(tmp_path: Path, lab: Lab) -> None:
    folder = lab.experiment(WAITING_EXPERIMENT, "work/experiment.py").parent
    gate = folder / "gate"
    os.mkfifo(gate)
    other = lab.start_snakemake(experiment="experiment.py", cwd=folder)
    # The last that its worker writes until the step ends: from then on nothing changes below the prefix.
    other.wait_for(lambda: list(lab.prefix.glob("slow-*/.executor_info")), "the step runs")
    assert lab.status_of("slow") == "RUNNING"

    said = Workplace(folder, lab.prefix, lab.snakemake).dry_run()
    table = table_of(said)
    assert states(said) == {"slow": "running elsewhere", "user": "would run"}
    host, user = re.escape(os.uname().nodename), re.escape(getpass.getuser())
    by_whom = rf"by \S+ \(pid \d+ on {host}, user {user}\)"
    assert re.match(rf"{by_whom}, running since \d\d:\d\d:\d\d, last heartbeat", str(table["slow"].reason))
    assert table["user"].reason == "new; dependency slow running elsewhere"
    assert "2 steps: 1 would run, 1 running elsewhere" in said.splitlines()

    def open_gate() -> bool:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False  # The step has not come to the gate yet.
        return True

    other.wait_for(open_gate, "the step waits at the gate")
    finished = other.wait()
    assert finished.code == 0, finished.output
    assert {lab.status_of("slow"), lab.status_of("user")} == {"SUCCESS"}


def test_run_only_takes_a_regular_expression_or_a_list_of_them(workplace: Workplace) -> None:
    said = workplace.dry_run(run_only="stats")
    assert states(said) == {
        "data": "would run",
        "model": "not needed",
        "score": "not needed",
        "stats": "would run",
    }
    assert table_of(said)["model"].reason == "not asked for"
    assert "4 steps: 2 would run, 2 not needed" in said.splitlines()
    assert "warning" not in said

    chosen = '["^mod", "no such step"]'
    said = workplace.dry_run(run_only=chosen)
    assert "warning: run_only: 'no such step' matches no step" in said.splitlines()
    assert would_run(said) == {"data", "model"}
    done = workplace.run(run_only=chosen)
    assert done.code == 0, done.output
    assert "warning: run_only: 'no such step' matches no step" in done.output.splitlines()
    assert workplace.statuses() == dict.fromkeys(would_run(said), "SUCCESS")


def test_a_large_table_counts_what_is_cached_unless_it_is_to_be_whole(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main

        def fit(config):
            pass

        def tokenize(config):
            pass

        old = [ExecutorStep(f"old{number}", (fit, tokenize)[number < 10], {"number": number}) for number in range(40)]
        new = ExecutorStep("new", fit, {"old": old[0]})

        if __name__ == "__main__":
            executor_main(steps=[*old, new])
        """
    )
    rows = table_of(lab.snakemake("-n", experiment=file).output)
    assert len(rows) == 41
    for name, row in rows.items():
        if name != "new":
            (tmp_path / row.path).mkdir(parents=True)
            (tmp_path / row.path / ".executor_status").write_text("SUCCESS")
    folded = lab.snakemake("-n", experiment=file).output
    assert states(folded) == {"new": "would run"}
    assert re.search(r"^cached +40 steps: 30 fit, 10 tokenize$", folded, re.MULTILINE)
    whole = lab.snakemake("-n", "--verbose", experiment=file).output
    assert states(whole) == {"new": "would run"} | {f"old{number}": "cached" for number in range(40)}
    for output in (folded, whole):
        assert "41 steps: 1 would run, 40 cached" in output.splitlines()


@pytest.mark.parametrize(
    ("flag", "nodes", "edges"),
    [
        (
            "--dag",
            {"all", "prepare: data", "train: model", "evaluate: score", "describe: stats"},
            {
                ("prepare: data", "train: model"),
                ("train: model", "evaluate: score"),
                ("prepare: data", "describe: stats"),
                ("evaluate: score", "all"),
                ("describe: stats", "all"),
            },
        ),
        (
            "--rulegraph",
            {"all", "prepare", "train", "evaluate", "describe"},
            {
                ("prepare", "train"),
                ("train", "evaluate"),
                ("prepare", "describe"),
                ("evaluate", "all"),
                ("describe", "all"),
            },
        ),
    ],
)
def test_graphs_speak_of_step_functions(
    flag: str, nodes: set[str], edges: set[tuple[str, str]], workplace: Workplace, lab: Lab
) -> None:
    command = [Path(sys.executable).with_name("snakemake"), "--snakefile", lab.repository / "Snakefile", flag]
    graph = subprocess.run(
        [*command, "--config", "experiment=experiment.py", f"prefix={workplace.prefix}"],
        cwd=workplace.folder,
        env=lab.environment,
        capture_output=True,
        text=True,
    )
    assert graph.returncode == 0, graph.stderr
    found_nodes, found_edges = read_dot(graph.stdout)
    assert found_nodes == nodes
    assert found_edges == edges
    assert not workplace.prefix.exists()


def read_dot(text: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Labels and edges of a graph in the dot language; anything else on standard output is an error."""
    first, *lines, last = text.strip().splitlines()
    assert (first, last) == ("digraph snakemake_dag {", "}")
    labels: dict[str, str] = {}
    edges: list[tuple[str, str]] = []
    for line in (line.strip() for line in lines):
        if node := re.fullmatch(r'(\d+)\[label = "([^"]*)", .*\];', line):
            step = re.sub(r"\\nstep: (.*)-[0-9a-f]{6}$", r": \1", node[2])
            labels[node[1]] = step
        elif edge := re.fullmatch(r"(\d+) -> (\d+)", line):
            edges.append((edge[1], edge[2]))
        else:
            assert re.fullmatch(r"(graph|node|edge)\[.*\];", line), f"not dot: {line}"
    return set(labels.values()), {(labels[one], labels[other]) for one, other in edges}


@pytest.mark.processes
def test_a_missing_environment_that_nothing_here_can_build_is_announced(lab: Lab, tmp_path: Path) -> None:
    """An install without the extra `environments`, on a machine without uv: known before the run, and said by it."""
    lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main, remote

        def work(config):
            print("worked")

        here = ExecutorStep("here", work, {})
        elsewhere = ExecutorStep("elsewhere", remote(work, pip_dependency_groups=["iniconfig"]), {"after": here})
        executor_main(steps=[elsewhere])
        """
    )
    venv.create(tmp_path / "without-uv", with_pip=False)
    (packages,) = (tmp_path / "without-uv").glob("lib/python*/site-packages")
    (packages / "beneath.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python = tmp_path / "without-uv/bin/python"
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "env", "git", "sh", "uname"):
        (programs / name).symlink_to(shutil.which(name) or name)
    env = {"MARIN_ENVIRONMENTS": str(tmp_path / "environments"), "PATH": str(programs)}
    command = [python, "experiment.py", "--prefix", lab.prefix]

    snakefile = lab.repository / "Snakefile"
    asked = ["--config", "experiment=experiment.py", f"prefix={lab.prefix}"]
    snakemake = [python, "-m", "snakemake", "--snakefile", snakefile, "-n", *asked]
    for dry in (lab.start([*command, "--dry_run", "true"], env=env), lab.start(snakemake, env=env)):
        told = dry.wait()
        assert told.code == 0, told.output
        warning = "warning: a run would stop before its first step: the environments of steps are made with uv"
        assert warning in told.output
    real = lab.start(command, env=env).wait()
    assert real.code == 1, real.output
    assert "`pip install uv`" in real.output
    assert "Traceback" not in real.output
    assert real.started == []
    only = lab.start([*command, "--dry_run", "true", "--run_only", '["^here$"]'], env=env).wait()
    assert only.code == 0, only.output
    assert "warning" not in only.output
