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
def gated(experiment: Callable[..., Path]) -> Path:
    """A step that waits at the gate, and one after it."""
    return experiment(GATED)


@pytest.fixture
def checkpointed(experiment: Callable[..., Path]) -> Path:
    """A step that saves a checkpoint, starts two processes and hangs; the next attempt continues and ends."""
    return experiment(CHECKPOINTED)


@pytest.fixture
def step_processes(tmp_path: Path) -> Callable[[Any], list[int]]:
    """Wait until the step of `checkpointed` hangs; returns its process and the two it started."""

    def wait(run: Any) -> list[int]:
        run.wait_for((tmp_path / "pids").exists, "the step hangs")
        return [int(pid) for pid in (tmp_path / "pids").read_text().split()]

    return wait


@pytest.fixture
def assert_completed(
    tmp_path: Path, folder_of: Callable[[str], Path], status_of: Callable[[str], str | None]
) -> Callable[[Any], None]:
    """The second run of `checkpointed` continued from the checkpoint and left nothing but results."""

    def check(result: Any) -> None:
        assert result.code == 0, result.output
        assert (tmp_path / "ran").read_text().split() == ["train", "train", "evaluate"]
        assert (folder_of("model") / "model").read_text() == "continued from step 7"
        assert status_of("model") == status_of("score") == "SUCCESS"
        assert leases(tmp_path) == []

    return check


def leases(folder: Path) -> list[Path]:
    return list(folder.rglob(".executor_status.lock"))


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_an_interrupt_cancels_the_step_and_leaves_nothing_behind(
    door: str,
    checkpointed: Path,
    prefix: Path,
    tmp_path: Path,
    start: Callable[..., Any],
    start_snakemake: Callable[..., Any],
    snakemake: Callable[..., Any],
    step_processes: Callable[[Any], list[int]],
    wait_until: Callable[..., Any],
    status_of: Callable[[str], str | None],
    info_of: Callable[[str], dict[str, Any]],
    assert_completed: Callable[[Any], None],
    is_running: Callable[[int], bool],
) -> None:
    if door == "snakemake":
        run = start_snakemake(experiment=checkpointed)
    else:
        run = start([sys.executable, checkpointed, "--prefix", prefix])
    pids = step_processes(run)
    assert all(is_running(pid) for pid in pids)
    run.interrupt()
    result = run.wait(30)
    assert result.code == (1 if door == "snakemake" else 130), result.output
    assert "error:" not in result.output
    end = "\n0 done, 1 stopped, 1 not run\nRun the same command again to go on: what is done is kept.\n"
    assert end in result.output
    wait_until(lambda: not run.alive(), "the end of all processes")
    assert not any(is_running(pid) for pid in pids)
    assert status_of("model") == "CANCELLED"
    assert status_of("score") is None
    assert leases(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "stopped by SIG" in info_of("model")["run"]["error"]
    assert "Traceback" not in result.output

    if door == "snakemake":
        assert_completed(snakemake(experiment=checkpointed))


def test_an_interrupt_cancels_a_shell_rule(
    experiment: Callable[..., Path],
    tmp_path: Path,
    start_snakemake: Callable[..., Any],
    step_processes: Callable[[Any], list[int]],
    wait_until: Callable[..., Any],
    status_of: Callable[[str], str | None],
    is_running: Callable[[int], bool],
) -> None:
    file = experiment(
        """
        from marin_rules import ExecutorStep, SnakemakeRule, executor_main

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep(name="shell", fn=SnakemakeRule("linger"), config=None)])
        """
    )
    experiment(
        """
        rule linger:
            input:
                marin.inputs,
            output:
                marin.target("linger"),
            params:
                command=marin.command,
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
    run = start_snakemake(experiment=file)
    pids = step_processes(run)
    run.interrupt()
    assert run.wait(30).code == 1
    wait_until(lambda: not run.alive(), "the end of all processes", 20)
    assert not any(is_running(pid) for pid in pids)
    assert status_of("shell") == "CANCELLED"
    assert leases(tmp_path) == []


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_a_step_outlives_its_killed_driver_and_the_next_run_waits_for_it(
    door: str,
    gated: Path,
    open_gate: Callable[[], None],
    tmp_path: Path,
    prefix: Path,
    start: Callable[..., Any],
    start_snakemake: Callable[..., Any],
    status_of: Callable[[str], str | None],
) -> None:
    first = (
        start_snakemake(experiment=gated)
        if door == "snakemake"
        else start([sys.executable, gated, "--prefix", str(prefix)])
    )
    first.wait_for((tmp_path / "ran").exists, "the step runs")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()

    second = start_snakemake(experiment=gated)
    second.wait_for(lambda: "[slow] waiting: held by " in second.output, "the second run waits")
    open_gate()
    result = second.wait()
    assert result.code == 0, result.output
    assert "[slow] done by the other run\n" in result.output
    assert (tmp_path / "ran").read_text().split() == ["slow", "after"]
    assert status_of("slow") == status_of("after") == "SUCCESS"
    assert leases(tmp_path) == []


def test_a_report_after_a_driver_was_killed_shows_the_step_that_outlived_it(
    gated: Path,
    open_gate: Callable[[], None],
    tmp_path: Path,
    start_snakemake: Callable[..., Any],
    snakemake: Callable[..., Any],
    wait_until: Callable[..., Any],
    status_of: Callable[[str], str | None],
) -> None:
    run = start_snakemake(experiment=gated)
    run.wait_for((tmp_path / "ran").exists, "the step runs")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    open_gate()
    wait_until(lambda: status_of("slow") == "SUCCESS", "the end of the step")
    result = snakemake("--report", "report.html", experiment=gated)
    assert result.code == 0, result.output
    assert (tmp_path / "report.html").stat().st_size > 0


def test_the_lease_of_a_killed_worker_is_taken_over_at_once(
    checkpointed: Path,
    start_snakemake: Callable[..., Any],
    snakemake: Callable[..., Any],
    step_processes: Callable[[Any], list[int]],
    folder_of: Callable[[str], Path],
    status_of: Callable[[str], str | None],
    info_of: Callable[[str], dict[str, Any]],
    assert_completed: Callable[[Any], None],
    is_running: Callable[[int], bool],
) -> None:
    run = start_snakemake(experiment=checkpointed)
    step, *_ = step_processes(run)
    os.kill(lease_holder(folder_of("model")), signal.SIGKILL)
    assert run.wait(30).code == 1
    assert not is_running(step)
    assert status_of("model") == "RUNNING"

    result = snakemake(experiment=checkpointed)
    assert "waiting: held by" not in result.output
    assert_completed(result)
    assert info_of("model")["run"]["attempt"] == 2


def test_nothing_that_a_step_started_outlives_its_killed_worker(
    checkpointed: Path,
    start_snakemake: Callable[..., Any],
    step_processes: Callable[[Any], list[int]],
    wait_until: Callable[..., Any],
    folder_of: Callable[[str], Path],
    is_running: Callable[[int], bool],
) -> None:
    """The next attempt starts at once: a process left from this one would write into the same output path."""
    run = start_snakemake(experiment=checkpointed)
    pids = step_processes(run)
    os.kill(lease_holder(folder_of("model")), signal.SIGKILL)
    wait_until(lambda: not any(is_running(pid) for pid in pids), "the end of all that the step started", 20)


def lease_holder(folder: Path) -> int:
    pid = json.loads((folder / ".executor_status.lock").read_text())["owner"]["pid"]
    assert isinstance(pid, int)
    return pid


def test_a_killed_job_ends_its_step(
    checkpointed: Path,
    start_snakemake: Callable[..., Any],
    step_processes: Callable[[Any], list[int]],
    wait_until: Callable[..., Any],
    folder_of: Callable[[str], Path],
    status_of: Callable[[str], str | None],
    is_running: Callable[[int], bool],
) -> None:
    run = start_snakemake(experiment=checkpointed)
    pids = step_processes(run)
    jobs = [pid for pid, command in run.command_lines().items() if "run-step" in command]
    assert jobs
    for pid in jobs:
        os.kill(pid, signal.SIGKILL)
    assert run.wait(30).code == 1
    wait_until(lambda: not run.alive(), "the end of all processes", 20)
    assert not any(is_running(pid) for pid in pids)
    assert status_of("model") == "CANCELLED"
    assert leases(folder_of("model")) == []


def test_a_run_goes_on_without_its_warm_server(
    gated: Path,
    open_gate: Callable[[], None],
    tmp_path: Path,
    start_snakemake: Callable[..., Any],
    status_of: Callable[[str], str | None],
) -> None:
    run = start_snakemake(experiment=gated)
    run.wait_for((tmp_path / "ran").exists, "the step runs")
    # The server is older than the workers that it forked, which have its command line.
    servers = (pid for pid, command in run.command_lines().items() if "marin_rules.worker.warm.client" in command)
    os.kill(min(servers), signal.SIGKILL)
    open_gate()
    result = run.wait(40)
    assert result.code == 0, result.output
    assert (tmp_path / "ran").read_text().split() == ["slow", "after"]
    assert status_of("slow") == status_of("after") == "SUCCESS"


def has_started_a_step(run: Any) -> bool:
    return " start  " in run.output


def test_any_number_of_sudden_deaths_converges(
    experiment: Callable[..., Path],
    prefix: Path,
    tmp_path: Path,
    start_snakemake: Callable[..., Any],
    snakemake: Callable[..., Any],
) -> None:
    file = experiment(
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
        run = start_snakemake("-j", "2", experiment=file)
        if moment == 0:
            run.wait_for(lambda: list(prefix.rglob("plan")), "the plan")
        else:
            run.wait_for(functools.partial(has_started_a_step, run), "a step")
        time.sleep(chance.uniform(0, 1.2))  # The moment itself: anything may be going on.
        run.kill_everything()
        for status in prefix.rglob(".executor_status"):
            if status.read_text() == "SUCCESS":
                assert len(json.loads((status.parent / "data.json").read_text())) == 101

    result = snakemake("-j", "2", experiment=file)
    assert result.code == 0, result.output
    assert "waiting: held by" not in result.output
    for number in range(8):
        (folder,) = prefix.glob(f"work/{number}-*")
        expected = 101 * min(number, 2)
        assert json.loads((folder / "data.json").read_text()) == [*range(100), expected]
        assert (folder / ".executor_status").read_text() == "SUCCESS"
    assert leases(prefix) == []
    assert set(ran.read_text().split()) == {str(number) for number in range(8)}


# -- a signal to one process alone ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_script_alone_stops_the_run(
    number: signal.Signals,
    checkpointed: Path,
    prefix: Path,
    tmp_path: Path,
    start: Callable[..., Any],
    step_processes: Callable[[Any], list[int]],
    wait_until: Callable[..., Any],
    status_of: Callable[[str], str | None],
    is_running: Callable[[int], bool],
) -> None:
    """As systemd and IDEs send it. SIGTERM: in the background of a script, where SIGINT is ignored."""
    command = [sys.executable, str(checkpointed), "--prefix", str(prefix)]
    if number is signal.SIGTERM:
        command = [sys.executable, "-c", _DEAF_TO_CTRL_C, *command]
    run = start(command)
    pids = step_processes(run)
    os.kill(run.pid, number)
    result = run.wait(30)
    assert result.code == 128 + number, result.output
    assert "Traceback" not in result.output
    wait_until(lambda: not run.alive(), "the end of all processes")
    assert not any(is_running(pid) for pid in pids)
    assert status_of("model") == "CANCELLED"
    assert status_of("score") is None
    assert leases(tmp_path) == []


_DEAF_TO_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_an_interrupt_of_snakemake_alone_stops_its_jobs(
    checkpointed: Path,
    start_snakemake: Callable[..., Any],
    step_processes: Callable[[Any], list[int]],
    status_of: Callable[[str], str | None],
    is_running: Callable[[int], bool],
) -> None:
    run = start_snakemake(experiment=checkpointed)
    pids = step_processes(run)
    os.kill(run.pid, signal.SIGINT)
    os.kill(run.pid, signal.SIGHUP)  # An echo, as systemd sends one.
    assert run.wait(30).code == 1
    assert "Traceback" not in run.output
    assert not any(is_running(pid) for pid in pids)
    assert status_of("model") == "CANCELLED"


@pytest.mark.parametrize(
    ("stopped_at", "now", "echo"), [(None, 5.0, False), (5.0, 5.0, True), (5.0, 6.5, True), (5.0, 9.0, False)]
)
def test_the_same_request_to_stop_counts_once(stopped_at: float | None, now: float, echo: bool) -> None:
    assert is_echo(stopped_at, now) is echo


@pytest.mark.parametrize("is_last", [True, False])
def test_snakemake_told_to_finish_says_what_happened(
    is_last: bool,
    gated: Path,
    open_gate: Callable[[], None],
    tmp_path: Path,
    prefix: Path,
    start_snakemake: Callable[..., Any],
    status_of: Callable[[str], str | None],
) -> None:
    """SIGTERM to Snakemake: what runs is finished, nothing new begins. If nothing was left, the run is a success."""
    run = start_snakemake(experiment=gated, config={"run_only": "slow" if is_last else "after"})
    run.wait_for((tmp_path / "ran").exists, "the step runs")
    os.kill(run.pid, signal.SIGTERM)
    run.wait_for(lambda: "Will exit after finishing" in run.output, "Snakemake has heard it")
    open_gate()
    result = run.wait()
    assert status_of("slow") == "SUCCESS"
    assert status_of("after") is None
    assert result.code == (0 if is_last else 1), result.output
    assert ("all done, the results are in:\n  slow" in result.output) is is_last
    assert ("1 done, 0 failed, 1 not run" in result.output) is not is_last
    assert list(prefix.glob("experiments/.runs/*")) == [] or not is_last
