"""The process behind `nursery.Nursery`: it has all imported and forks workers, as the server of warm workers does.

Orders come as lines of JSON on standard input, each is answered by a line on standard output.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.plan_file import read_plan, write_plan
from marin_rules.plans.run import new_run
from marin_rules.worker import main as worker
from marin_rules.worker.array_step import Begun, begin_array
from support.faults import blobs
from support.faults.boundaries import Boundaries, Orders

_PR_SET_CHILD_SUBREAPER = 36


class Forker:
    """Forks workers and remembers how they ended."""

    def __init__(self, prefix: str, count: int, turns: str | None, tasks: int | None) -> None:
        _import_clients(prefix)
        plan = freeze(
            make_plan(blobs.blob_steps(count, turns, tasks), prefix=prefix),
            new_run(prefix=prefix, caller_path=os.path.abspath(blobs.__file__), executor_info_base_path="infos"),
        )
        write_plan(plan, plan.run.plan_path)
        self._path = plan.run.plan_path
        self._plan = read_plan(self._path)
        self._prefix = prefix
        self._ended: dict[int, int] = {}
        self._stopped: set[int] = set()
        # Steps of killed workers become children of this process, and are collected here.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        assert threading.active_count() == 1, "a fork wants a process without threads"

    def describe(self) -> dict[str, Any]:
        steps = {step.name: {"key": step.key, "path": step.output_path} for step in self._plan.steps}
        return {"plan": os.path.abspath(self._path), "steps": steps}

    def start(self, orders: dict[str, Any]) -> dict[str, Any]:
        pid = os.fork()
        if pid == 0:
            self._work(orders)
        return {"pid": pid}

    def _work(self, orders: dict[str, Any]) -> NoReturn:
        code = 99
        try:
            os.setsid()
            log = os.open(orders["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for descriptor in (1, 2):
                os.dup2(log, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            boundaries = Boundaries(
                Orders(self._prefix, orders["fatal"], orders["signal"], orders["trace"], orders["journal"])
            )
            boundaries.install()
            code = self._begin(orders["step"]) if orders["begins"] else self._run(orders["step"], orders["task"])
        finally:
            os._exit(code)

    def _begin(self, step: str) -> int:
        """As a driver does before it submits a job array."""
        return 0 if begin_array(self._plan, self._plan.by_key[step]) == Begun(1) else 1

    def _run(self, step: str, task: int | None) -> int:
        words = ["--plan", self._path, "--step", step, "--cores", "1"]
        if task is not None:
            os.environ |= {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(task)}
            words += ["--round", "1"]
        return worker.main(worker.parse(words), self._plan)

    def wait(self, pid: int, seconds: float, for_stop: bool) -> dict[str, Any]:
        """Wait until a worker ends, or until it is stopped, but not for ever."""
        give_up = time.monotonic() + seconds
        while pid not in self._ended:
            found, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if found == 0:
                if for_stop and pid in self._stopped:
                    return {"stopped": True}
                if time.monotonic() > give_up:
                    return {"late": True}
                time.sleep(0.002)
            elif os.WIFSTOPPED(status):
                self._stopped.add(found)
            else:
                self._ended[found] = os.waitstatus_to_exitcode(status)
        return {"code": self._ended.pop(pid)}

    def kill_all(self) -> None:
        """Nothing outlives this process. A step that was stopped before it asked to die with its worker comes here."""
        while True:
            with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
                pids = [int(word) for word in file.read().split()]
            if not pids:
                return
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _import_clients(prefix: str) -> None:
    import fsspec.implementations.local  # noqa: F401

    if "://" in prefix:
        import aiohttp  # noqa: F401
        import botocore.session  # noqa: F401
        import requests  # noqa: F401
    if prefix.startswith("gs://"):
        import gcsfs  # noqa: F401
        from google.cloud import storage  # noqa: F401
    if prefix.startswith("s3://"):
        import s3fs  # noqa: F401


def main(prefix: str, count: str, turns: str, tasks: str | None = None) -> None:
    forker = Forker(prefix, int(count), turns or None, None if tasks is None else int(tasks))
    answer = forker.describe()
    try:
        while True:
            print(json.dumps(answer), flush=True)
            line = sys.stdin.readline()
            if not line:
                break
            orders = json.loads(line)
            if "step" in orders:
                answer = forker.start(orders)
            else:
                answer = forker.wait(orders["pid"], orders["seconds"], orders["for_stop"])
    finally:
        forker.kill_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
