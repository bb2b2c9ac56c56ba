"""A step that was told to stop and then returns has not succeeded, whoever told it, unless it says that it is whole."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from support.lab import Lab

TRAINING = """
    import asyncio
    import os
    import signal
    import threading
    import time
    from marin_rules import ExecutorStep, THIS_OUTPUT_PATH, declare_complete, executor_main

    STEPS = 100
    stopping = []

    def wait():
        while not stopping:
            time.sleep(0.01)

    def ready():
        with open("pid.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename("pid.new", "pid")

    def save(path, step):
        with open(os.path.join(path, "checkpoint"), "w") as file:
            file.write(str(step))

    def load(path):
        checkpoint = os.path.join(path, "checkpoint")
        return int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0

    def flag(path):
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
        step = load(path)
        if step:  # The second attempt goes on to the end.
            save(path, STEPS)
            return {"step": STEPS}
        ready()
        wait()
        save(path, 14)
        return {"step": 14}

    def keyboard_interrupt(path):
        if load(path):
            save(path, STEPS)
            return {"step": STEPS}
        try:
            ready()
            time.sleep(1000)
        except KeyboardInterrupt:
            save(path, 14)
        return {"step": 14}

    def asynchronous(path):
        async def wait():
            stopped = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
            ready()
            await stopped.wait()
        if load(path):
            save(path, STEPS)
            return {"step": STEPS}
        asyncio.run(wait())
        save(path, 14)
        return {"step": 14}

    def declared(path):
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
        ready()
        wait()
        save(path, STEPS)  # It was at its last step anyway.
        declare_complete()
        return {"step": STEPS}

    def in_a_thread(path):
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
        if load(path):
            save(path, STEPS)
            return {"step": STEPS}
        threading.Thread(target=lambda: (ready(), wait(), save(path, 14))).start()
        return {"step": STEPS}

    def evaluate(config):
        with open("evaluated", "a") as file:
            file.write(open(os.path.join(config["model"], "checkpoint")).read() + "\\n")

    model = ExecutorStep(name="model", fn=globals()[os.environ["TRAIN"]], config=THIS_OUTPUT_PATH)
    score = ExecutorStep(name="score", fn=evaluate, config={"model": model})

    if __name__ == "__main__":
        executor_main(steps=[score])
"""


@pytest.mark.parametrize(
    ("train", "told", "number"),
    [
        ("flag", "everybody", signal.SIGINT),  # Ctrl-C
        ("flag", "worker", signal.SIGTERM),
        ("flag", "step", signal.SIGTERM),
        ("keyboard_interrupt", "step", signal.SIGINT),
        ("asynchronous", "step", signal.SIGTERM),
        ("in_a_thread", "step", signal.SIGTERM),
        ("in_a_thread", "everybody", signal.SIGINT),
    ],
)
def test_a_return_after_a_stop_signal_is_no_success(
    train: str, told: str, number: signal.Signals, lab: Lab, tmp_path: Path
) -> None:
    path = lab.experiment(TRAINING)
    run = lab.start_snakemake(experiment=path, env={"TRAIN": train})
    run.wait_for((tmp_path / "pid").exists, "the step is training")
    pid = int((tmp_path / "pid").read_text())
    if told == "everybody":
        run.interrupt()
    else:
        os.kill(pid if told == "step" else parent_of(pid), number)
    if (train, told) == ("in_a_thread", "step"):
        # Python overlooks a signal that comes just when its main thread goes to sleep; a person would send it again.
        while not (lab.folder_of("model") / "checkpoint").exists() and run.process.poll() is None:
            time.sleep(0.5)
            with contextlib.suppress(ProcessLookupError):
                if not (lab.folder_of("model") / "checkpoint").exists():
                    os.kill(pid, number)
    first = run.wait()
    assert first.code != 0, first.output
    assert (lab.folder_of("model") / "checkpoint").read_text() == "14"
    assert lab.status_of("model") == "CANCELLED"
    assert lab.status_of("score") is None
    assert "stopped by SIG" in lab.info_of("model")["run"]["error"]
    assert not (lab.folder_of("model") / ".artifact.json").exists()

    second = lab.snakemake(experiment=path, env={"TRAIN": train})
    assert second.code == 0, second.output
    assert (tmp_path / "evaluated").read_text() == "100\n"


@pytest.mark.parametrize("told", ["worker", "step"])
def test_a_step_that_declares_its_output_complete_succeeds_all_the_same(told: str, lab: Lab, tmp_path: Path) -> None:
    run = lab.start_snakemake(experiment=lab.experiment(TRAINING), env={"TRAIN": "declared"})
    run.wait_for((tmp_path / "pid").exists, "the step is training")
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid if told == "step" else parent_of(pid), signal.SIGTERM)
    result = run.wait()
    assert result.code == 0, result.output
    assert lab.status_of("model") == lab.status_of("score") == "SUCCESS"
    assert json.loads((lab.folder_of("model") / ".artifact.json").read_text()) == {"step": 100}


OWN_SIGNALS = """
    import multiprocessing
    import os
    import signal
    import time
    from marin_rules import ExecutorStep, THIS_OUTPUT_PATH, executor_main

    def handler(number, frame):
        os._exit(0)

    def sleep(ready):
        os.write(ready, b"!")  # A signal that comes before Python is through with the fork is lost.
        while True:
            time.sleep(0.01)  # One that comes just before Python sleeps is heard only afterwards.

    def signal_children(path):
        signal.signal(signal.SIGTERM, handler)  # The children inherit it.
        is_ready, ready = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=sleep, args=(ready,))
        process.start()
        os.read(is_ready, 1)
        process.terminate()
        process.join()
        child = os.fork()
        if child == 0:
            sleep(ready)
        os.read(is_ready, 1)
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        return "whole"

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name="parent", fn=signal_children, config=THIS_OUTPUT_PATH)])
"""


def test_signals_to_a_steps_own_children_are_no_stop_signals(lab: Lab) -> None:
    result = lab.snakemake(experiment=lab.experiment(OWN_SIGNALS))
    assert result.code == 0, result.output
    assert json.loads((lab.folder_of("parent") / ".artifact.json").read_text()) == "whole"


TWO_STEPS = """
    import os
    from marin_rules import ExecutorStep, executor_main

    def work(config):
        if not os.path.exists("waits"):
            open("waits", "w").close()
            open("gate").read()

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name=name, fn=work, config={}) for name in ("one", "two")])
"""


def test_a_signal_to_what_stands_for_the_steps_ends_those_that_run_and_no_later_one(lab: Lab, tmp_path: Path) -> None:
    path = lab.experiment(TWO_STEPS)
    run = lab.start_snakemake("--cores", "1", "--keep-going", experiment=path)
    run.wait_for((tmp_path / "waits").exists, "the first step waits")
    (stand_in,) = (pid for pid, line in run.command_lines().items() if "marin-rules" in line and "trap" in line)
    os.kill(stand_in, signal.SIGTERM)
    first = run.wait()
    assert first.code != 0, first.output
    assert {lab.status_of("one"), lab.status_of("two")} == {"CANCELLED", "SUCCESS"}, first.output

    second = lab.snakemake(experiment=path)
    assert second.code == 0, second.output
    assert lab.status_of("one") == lab.status_of("two") == "SUCCESS"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
