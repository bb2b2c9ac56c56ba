"""Ctrl-C, and SIGKILL to any process of a run at any moment: the same command again always finishes the work."""

import functools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.engine.interrupts import is_echo
from marin_rules.plans.plan_file import read_plan
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.worker.command import run_step_command
from support.lab import Lab

CHECKPOINTED = """
    import os
    import subprocess
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    def note(word):
        with open("ran", "a") as file:
            file.write(word + "\\n")

    def train(path):
        note("train")
        checkpoint = os.path.join(path, "checkpoint")
        if os.path.exists(checkpoint):
            with open(os.path.join(path, "model"), "w") as file:
                file.write(f"continued from {open(checkpoint).read()}")
            return
        with open(checkpoint, "w") as file:
            file.write("step 7")
        children = [subprocess.Popen(["sleep", "1000"], start_new_session=alone) for alone in (False, True)]
        with open("pids.new", "w") as file:
            file.write(" ".join(str(pid) for pid in [os.getpid(), *(child.pid for child in children)]))
        os.rename("pids.new", "pids")
        children[0].wait()

    def evaluate(config):
        note("evaluate")

    model = ExecutorStep(name="model", fn=train, config=THIS_OUTPUT_PATH)
    score = ExecutorStep(name="score", fn=evaluate, config=[model])

    if __name__ == "__main__":
        executor_main(steps=[score])
"""

GATED = """
    from marin_rules import ExecutorStep, executor_main

    def note(config):
        with open("ran", "a") as file:
            file.write(config["name"] + "\\n")

    def wait(config):
        note(config)
        open("gate").read()

    slow = ExecutorStep(name="slow", fn=wait, config={"name": "slow"})
    after = ExecutorStep(name="after", fn=note, config={"name": "after", "input": slow})

    if __name__ == "__main__":
        executor_main(steps=[after])
"""


@pytest.fixture
def gated(lab: Lab) -> Path:
    """A step that waits at the gate, and one after it."""
    return lab.experiment(GATED)


@pytest.fixture
def checkpointed(lab: Lab) -> Path:
    """A step that saves a checkpoint, starts two processes and hangs; the next attempt continues and ends."""
    return lab.experiment(CHECKPOINTED)


@pytest.fixture
def step_processes(tmp_path: Path) -> Callable[[Any], list[int]]:
    """Wait until the step of `checkpointed` hangs; returns its process and the two it started."""

    def wait(run: Any) -> list[int]:
        run.wait_for((tmp_path / "pids").exists, "the step hangs")
        return [int(pid) for pid in (tmp_path / "pids").read_text().split()]

    return wait


@pytest.fixture
def assert_completed(tmp_path: Path, lab: Lab) -> Callable[[Any], None]:
    """The second run of `checkpointed` continued from the checkpoint and left nothing but results."""

    def check(result: Any) -> None:
        assert result.code == 0, result.output
        assert (tmp_path / "ran").read_text().split() == ["train", "train", "evaluate"]
        assert (lab.folder_of("model") / "model").read_text() == "continued from step 7"
        assert lab.status_of("model") == lab.status_of("score") == "SUCCESS"
        assert leases(tmp_path) == []

    return check


def leases(folder: Path) -> list[Path]:
    return list(folder.rglob(".executor_status.lock"))


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_an_interrupt_cancels_the_step_and_leaves_nothing_behind(
    door: str,
    checkpointed: Path,
    lab: Lab,
    tmp_path: Path,
    step_processes: Callable[[Any], list[int]],
    assert_completed: Callable[[Any], None],
) -> None:
    if door == "snakemake":
        run = lab.start_snakemake(experiment=checkpointed)
    else:
        run = lab.start([sys.executable, checkpointed, "--prefix", lab.prefix])
    pids = step_processes(run)
    assert all(lab.is_running(pid) for pid in pids)
    run.interrupt()
    result = run.wait(30)
    assert result.code == (1 if door == "snakemake" else 130), result.output
    assert "error:" not in result.output
    end = "\n0 done, 1 stopped, 1 not run\nRun the same command again to continue: what is done is kept.\n"
    assert end in result.output
    lab.wait_until(lambda: not run.alive(), "the end of all processes")
    assert not any(lab.is_running(pid) for pid in pids)
    assert lab.status_of("model") == "CANCELLED"
    assert lab.status_of("score") is None
    assert leases(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "stopped by SIG" in lab.info_of("model")["run"]["error"]
    assert "Traceback" not in result.output

    if door == "snakemake":
        assert_completed(lab.snakemake(experiment=checkpointed))


def test_an_interrupt_cancels_a_shell_rule(
    lab: Lab, tmp_path: Path, step_processes: Callable[[Any], list[int]]
) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, SnakemakeRule, executor_main

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep(name="shell", fn=SnakemakeRule("linger"), config=None)])
        """
    )
    lab.experiment(
        """
        rule linger:
            input:
                marin.inputs,
            output:
                marin.target("linger"),
            shell:
                marin.leased(
                    '''
                    sleep 1000 &
                    echo $$ $! > pids.new
                    mv pids.new pids
                    wait
                    '''
                )
        """,
        "experiment.smk",
    )
    run = lab.start_snakemake(experiment=file)
    pids = step_processes(run)
    run.interrupt()
    assert run.wait(30).code == 1
    lab.wait_until(lambda: not run.alive(), "the end of all processes", 20)
    assert not any(lab.is_running(pid) for pid in pids)
    assert lab.status_of("shell") == "CANCELLED"
    assert leases(tmp_path) == []


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_a_step_outlives_its_killed_driver_and_the_next_run_waits_for_it(
    door: str, gated: Path, lab: Lab, tmp_path: Path
) -> None:
    first = (
        lab.start_snakemake(experiment=gated)
        if door == "snakemake"
        else lab.start([sys.executable, gated, "--prefix", str(lab.prefix)])
    )
    first.wait_for((tmp_path / "ran").exists, "the step runs")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()

    second = lab.start_snakemake(experiment=gated)
    second.wait_for(lambda: "[slow] waiting: held by " in second.output, "the second run waits")
    lab.open_gate()
    result = second.wait()
    assert result.code == 0, result.output
    assert "[slow] done by the other run\n" in result.output
    assert (tmp_path / "ran").read_text().split() == ["slow", "after"]
    assert lab.status_of("slow") == lab.status_of("after") == "SUCCESS"
    assert leases(tmp_path) == []


def test_a_report_after_a_driver_was_killed_shows_the_step_that_outlived_it(
    gated: Path, lab: Lab, tmp_path: Path
) -> None:
    run = lab.start_snakemake(experiment=gated)
    run.wait_for((tmp_path / "ran").exists, "the step runs")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    lab.open_gate()
    lab.wait_until(lambda: lab.status_of("slow") == "SUCCESS", "the end of the step")
    result = lab.snakemake("--report", "report.html", experiment=gated)
    assert result.code == 0, result.output
    assert (tmp_path / "report.html").stat().st_size > 0


def test_the_lease_of_a_killed_worker_is_taken_over_at_once(
    checkpointed: Path, lab: Lab, step_processes: Callable[[Any], list[int]], assert_completed: Callable[[Any], None]
) -> None:
    run = lab.start_snakemake(experiment=checkpointed)
    step, *_ = step_processes(run)
    os.kill(lease_holder(lab.folder_of("model")), signal.SIGKILL)
    assert run.wait(30).code == 1
    assert not lab.is_running(step)
    assert lab.status_of("model") == "RUNNING"

    result = lab.snakemake(experiment=checkpointed)
    assert "waiting: held by" not in result.output
    assert_completed(result)
    assert lab.info_of("model")["run"]["attempt"] == 2


def test_nothing_that_a_step_started_outlives_its_killed_worker(
    checkpointed: Path, lab: Lab, step_processes: Callable[[Any], list[int]]
) -> None:
    """The next attempt starts at once: a process left from this one would write into the same output path."""
    run = lab.start_snakemake(experiment=checkpointed)
    pids = step_processes(run)
    os.kill(lease_holder(lab.folder_of("model")), signal.SIGKILL)
    lab.wait_until(lambda: not any(lab.is_running(pid) for pid in pids), "the end of all that the step started", 20)


def lease_holder(folder: Path) -> int:
    owner = LeaseRecord.parse((folder / ".executor_status.lock").read_bytes(), "the lease").owner
    assert owner is not None
    return owner.pid


def test_a_killed_job_ends_its_step(lab: Lab, tmp_path: Path, step_processes: Callable[[Any], list[int]]) -> None:
    """A job that asked a warm worker for its step: here one that is started by hand, with the command of the step."""
    other = """
    def wait(config):
        open("waits", "w").close()
        open("gate").read()

    if __name__ == "__main__":
        executor_main(steps=[score, ExecutorStep(name="other", fn=wait, config={})])
    """
    file = lab.experiment(CHECKPOINTED[: CHECKPOINTED.index("if __name__")].rstrip() + "\n" + other)
    run = lab.start_snakemake(experiment=file, config={"run_only": "^other$"})
    run.wait_for((tmp_path / "waits").exists, "the other step runs")
    (variable,) = {word for pid in run.alive() for word in variables_of(pid) if word.startswith("MARIN_RULES_WARM=")}
    (plan,) = lab.prefix.glob("experiments/.runs/*/plan")
    (step,) = (step.key for step in read_plan(str(plan)).steps if step.name == "model")
    words = [str(run_step_command()), sys.executable, "-", "--plan", str(plan), "--step", step]
    job = lab.start(["bash", "-euo", "pipefail", *words], env={"MARIN_RULES_WARM": variable.partition("=")[2]})
    pids = step_processes(job)
    os.kill(job.pid, signal.SIGKILL)
    lab.wait_until(lambda: not any(lab.is_running(pid) for pid in pids), "the end of the step", 20)
    lab.wait_until(lambda: lab.status_of("model") == "CANCELLED", "its last status", 20)
    lab.open_gate()
    result = run.wait()
    assert result.code == 0, result.output
    assert leases(lab.folder_of("model")) == []


def variables_of(pid: int) -> list[str]:
    """The environment that a process was started with."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


@pytest.mark.parametrize("driver_dies_first", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_ends_the_process_group_of_snakemake_stops_its_steps(
    number: int,
    driver_dies_first: bool,
    checkpointed: Path,
    lab: Lab,
    step_processes: Callable[[Any], list[int]],
) -> None:
    """As `timeout` does. Snakemake itself takes SIGTERM for a wish to finish what runs."""
    run = lab.start_snakemake(experiment=checkpointed)
    pids = step_processes(run)
    if driver_dies_first:
        os.kill(run.pid, signal.SIGKILL)
        run.wait(30)
        assert all(lab.is_running(pid) for pid in pids)
    os.killpg(run.pid, number)
    assert run.wait(30).code == (1 if number == signal.SIGTERM and not driver_dies_first else -signal.SIGKILL)
    lab.wait_until(lambda: not run.alive(), "the end of all processes", 20)
    assert not any(lab.is_running(pid) for pid in pids)
    assert lab.status_of("model") == "CANCELLED"
    assert leases(lab.folder_of("model")) == []


def test_a_run_goes_on_without_its_warm_server(gated: Path, lab: Lab, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    run = lab.start_snakemake(experiment=gated, env={"TMPDIR": str(temporary)})
    run.wait_for((tmp_path / "ran").exists, "the step runs")
    # The server is older than the workers that it forked, which have its command line.
    servers = (pid for pid, command in run.command_lines().items() if "marin_rules.worker.warm.server" in command)
    os.kill(min(servers), signal.SIGKILL)
    lab.open_gate()
    result = run.wait(40)
    assert result.code == 0, result.output
    assert (tmp_path / "ran").read_text().split() == ["slow", "after"]
    assert lab.status_of("slow") == lab.status_of("after") == "SUCCESS"
    assert list(temporary.glob("marin-rules-*")) == []


def has_started_a_step(run: Any) -> bool:
    return " start  " in run.output


def test_any_number_of_sudden_deaths_converges(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(
        """
        import json
        import os
        import time
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, versioned

        def work(config):
            with open("ran", "a") as file:
                file.write(f"{config['number']}\\n")
            inputs = [len(json.load(open(os.path.join(path, "data.json")))) for path in config["inputs"]]
            with open(os.path.join(config["path"], "data.json"), "w") as file:
                file.write("[")
                for item in range(100):
                    time.sleep(0.005)
                    file.write(f"{item}, ")
                    file.flush()
                file.write(f"{sum(inputs)}]")

        steps = []
        for number in range(8):
            config = {"number": versioned(number), "inputs": steps[-2:], "path": THIS_OUTPUT_PATH}
            steps.append(ExecutorStep(name=f"work/{number}", fn=work, config=config))

        if __name__ == "__main__":
            executor_main(steps=steps)
        """
    )
    ran = tmp_path / "ran"
    chance = random.Random(20260611)
    for moment in range(4):
        run = lab.start_snakemake("-j", "2", experiment=file)
        if moment == 0:
            run.wait_for(lambda: list(lab.prefix.rglob("plan")), "the plan")
        else:
            run.wait_for(functools.partial(has_started_a_step, run), "a step")
        time.sleep(chance.uniform(0, 1.2))  # The moment itself: anything may be going on.
        run.kill_everything()
        for status in lab.prefix.rglob(".executor_status"):
            if status.read_text() == "SUCCESS":
                assert len(json.loads((status.parent / "data.json").read_text())) == 101

    result = lab.snakemake("-j", "2", experiment=file)
    assert result.code == 0, result.output
    assert "waiting: held by" not in result.output
    for number in range(8):
        (folder,) = lab.prefix.glob(f"work/{number}-*")
        expected = 101 * min(number, 2)
        assert json.loads((folder / "data.json").read_text()) == [*range(100), expected]
        assert (folder / ".executor_status").read_text() == "SUCCESS"
    assert leases(lab.prefix) == []
    assert set(ran.read_text().split()) == {str(number) for number in range(8)}


# -- a signal to one process alone ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_script_alone_stops_the_run(
    number: signal.Signals, checkpointed: Path, lab: Lab, tmp_path: Path, step_processes: Callable[[Any], list[int]]
) -> None:
    """As systemd and IDEs send it. SIGTERM: in the background of a script, where SIGINT is ignored."""
    command = [sys.executable, str(checkpointed), "--prefix", str(lab.prefix)]
    if number is signal.SIGTERM:
        command = [sys.executable, "-c", _DEAF_TO_CTRL_C, *command]
    run = lab.start(command)
    pids = step_processes(run)
    os.kill(run.pid, number)
    result = run.wait(30)
    assert result.code == 128 + number, result.output
    assert "Traceback" not in result.output
    lab.wait_until(lambda: not run.alive(), "the end of all processes")
    assert not any(lab.is_running(pid) for pid in pids)
    assert lab.status_of("model") == "CANCELLED"
    assert lab.status_of("score") is None
    assert leases(tmp_path) == []


_DEAF_TO_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_an_interrupt_of_snakemake_alone_stops_its_jobs(
    checkpointed: Path, lab: Lab, step_processes: Callable[[Any], list[int]]
) -> None:
    run = lab.start_snakemake(experiment=checkpointed)
    pids = step_processes(run)
    os.kill(run.pid, signal.SIGINT)
    os.kill(run.pid, signal.SIGHUP)  # An echo, as systemd sends one.
    assert run.wait(30).code == 1
    assert "Traceback" not in run.output
    assert not any(lab.is_running(pid) for pid in pids)
    assert lab.status_of("model") == "CANCELLED"


@pytest.mark.parametrize(
    ("stopped_at", "now", "echo"), [(None, 5.0, False), (5.0, 5.0, True), (5.0, 6.5, True), (5.0, 9.0, False)]
)
def test_the_same_request_to_stop_counts_once(stopped_at: float | None, now: float, echo: bool) -> None:
    assert is_echo(stopped_at, now) is echo


@pytest.mark.parametrize("is_last", [True, False])
def test_snakemake_told_to_finish_says_what_happened(is_last: bool, gated: Path, lab: Lab, tmp_path: Path) -> None:
    """SIGTERM to Snakemake: what runs is finished, nothing new begins. If nothing was left, the run is a success."""
    run = lab.start_snakemake(experiment=gated, config={"run_only": "slow" if is_last else "after"})
    run.wait_for((tmp_path / "ran").exists, "the step runs")
    os.kill(run.pid, signal.SIGTERM)
    run.wait_for(lambda: "Will exit after finishing" in run.output, "Snakemake has heard it")
    lab.open_gate()
    result = run.wait()
    assert lab.status_of("slow") == "SUCCESS"
    assert lab.status_of("after") is None
    assert result.code == (0 if is_last else 1), result.output
    assert ("all done, the results are in:\n  slow" in result.output) is is_last
    assert ("1 done, 0 failed, 1 not run" in result.output) is not is_last
    assert list(lab.prefix.glob("experiments/.runs/*")) == [] or not is_last
