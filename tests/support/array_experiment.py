"""An array step for tests, and its own account of what ran: no task twice at the same time, none again that was done.

The step is told what to do by a file, `orders`, and writes a line into `ran` whenever something happens. While a task
runs it has a lock that ends with its process, so that a second one at the same time is found out whoever started it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.lab import Lab, Running

EXPERIMENT = """
    import fcntl
    import json
    import os
    import shutil
    import signal
    import sys
    import time
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, remote, this_process

    def note(*words):
        with open("ran", "a") as file:
            file.write(" ".join(map(str, words)) + "\\n")

    def opened(path, mode="r"):
        if "://" in path:
            import fsspec
            return fsspec.open(path, mode)
        return open(path, mode)

    def work(config):
        here = this_process()
        task = here.task
        with open("orders") as file:
            orders = {name: tasks for name, tasks in json.load(file).items() if tasks == "all" or task in tasks}
        os.makedirs("locks", exist_ok=True)
        lock = open(f"locks/{task}", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("twice", task)
        told = []
        signal.signal(signal.SIGTERM, lambda number, frame: (note("told", task), told.append(time.monotonic())))
        if "fork" in orders and os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            note("child", task, os.getpid())
            time.sleep(1000)
        note("begin", task, os.getpid(), os.getppid(), here.tasks)
        print(f"this is {task}", flush=True)
        while "wait" in orders and not os.path.exists("go"):
            time.sleep(0.01)
            if told and time.monotonic() > told[0] + config["saves"]:
                sys.exit("stopped")
        if "fail" in orders:
            raise ValueError(f"no {task}")
        if "empty" in orders:
            shutil.rmtree(config["path"])
            os.makedirs(config["path"])
        with opened(os.path.join(config["path"], f"{task}.data"), "w") as file:
            file.write(str(task * task))
        note("end", task)
        return {"task": task, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "secret": len(os.environ.get("KEY", ""))}

    def after(path):
        with opened(os.path.join(path, ".artifact.json")) as file:
            return json.load(file)

    with open("step.json") as file:
        details = json.load(file)
    config = {"path": THIS_OUTPUT_PATH, "saves": details.pop("saves", 0.0)}
    machines = details.pop("machines", None)
    if machines is not None:
        work = remote(work, env_vars=details.pop("env_vars"), resources=ResourceConfig.with_gpu(**machines))
    many = ExecutorStep(name="many", fn=work, config=config, **details)
    last = ExecutorStep(name="last", fn=after, config=many)

    if __name__ == "__main__":
        executor_main(steps=[last])
"""

WORKER = """
    import sys
    import experiment
    from marin_rules.plans.prepare import PlanSettings, prepare
    from marin_rules.worker.main import main, parse

    plan = prepare([experiment.many], PlanSettings(prefix="out", caller_path=experiment.__file__))
    sys.exit(main(parse(["--plan", "none", "--step", plan.steps[0].key, "--cores", sys.argv[1]]), plan))
"""
"""What a job of the step does, in a process of its own: a run without Snakemake."""


class ArrayLab:
    """The step `many`, and what came of it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.file = lab.experiment(EXPERIMENT)
        self._worker = lab.experiment(WORKER, "work.py")
        self.divide(6)
        self.order()

    def divide(self, tasks: int | None, **details: Any) -> None:
        """From now on the step has so many tasks, and these details."""
        given = {**details, **({} if tasks is None else {"tasks": tasks})}
        (self.lab.folder / "step.json").write_text(json.dumps(given))

    def order(self, **orders: list[int] | str) -> None:
        """`order(fail=[2], wait="all")`: what tasks do from now on beside their work."""
        (self.lab.folder / "orders").write_text(json.dumps(orders))

    def go(self) -> None:
        """Let tasks go on that wait."""
        (self.lab.folder / "go").touch()

    def start_worker(self, cores: int = 2, **options: Any) -> Running:
        return self.lab.start([sys.executable, self._worker, str(cores)], **options)

    def start_run(self, **options: Any) -> Running:
        return self.lab.start([sys.executable, self.file, "--prefix", self.lab.prefix], **options)

    # --- what came of it

    @property
    def folder(self) -> Path:
        return self.lab.folder_of("many")

    def record(self, task: int, number: int = 1) -> dict[str, Any]:
        found = json.loads((self.folder / f".executor_tasks/round-{number}/{task}.json").read_text())
        assert isinstance(found, dict)
        return found

    def words(self, number: int = 1) -> dict[int, str]:
        """What the records of a round say."""
        folder = self.folder / f".executor_tasks/round-{number}"
        return {int(path.stem): json.loads(path.read_text())["status"] for path in sorted(folder.glob("*.json"))}

    def leases(self) -> list[Path]:
        """Of the step and of its tasks."""
        return [*self.folder.rglob("*.lock")]

    @property
    def ran(self) -> list[tuple[str, ...]]:
        """What the tasks have written down."""
        path = self.lab.folder / "ran"
        return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []

    def forget(self) -> None:
        """From now on `ran` tells of what happens from now on."""
        (self.lab.folder / "ran").unlink(missing_ok=True)

    def noted(self, word: str) -> list[int]:
        """The tasks that wrote this word, sorted."""
        return sorted(int(line[1]) for line in self.ran if line[0] == word)

    def pids(self, task: int) -> tuple[int, int]:
        """The process of a task that began last, and that of its worker."""
        _, _, own, worker, _ = [line for line in self.ran if line[:2] == ("begin", str(task))][-1]
        return int(own), int(worker)

    def assert_never_twice(self) -> None:
        """No task ran twice at the same time, and none again once it had come to its end."""
        assert self.noted("twice") == []
        ended: Counter[str] = Counter()
        for word, task, *_ in self.ran:
            assert word != "begin" or not ended[task], f"task {task} ran again although it was done"
            ended[task] += word == "end"

    def assert_finished(self, tasks: int, number: int = 1) -> None:
        """All is there, once, and nobody is at it any more."""
        assert self.lab.status_of("many") == "SUCCESS"
        assert self.words(number) == dict.fromkeys(range(tasks), "SUCCESS")
        assert [item["task"] for item in json.loads((self.folder / ".artifact.json").read_text())] == list(range(tasks))
        data = {path.name: path.read_text() for path in self.folder.glob("*.data")}
        assert data == {f"{task}.data": str(task * task) for task in range(tasks)}
        assert self.leases() == []


@pytest.fixture
def array(lab: Lab) -> ArrayLab:
    """This test's array step."""
    return ArrayLab(lab)
