"""The watch over Slurm jobs outlives whatever goes wrong with one of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

from marin_rules.engine.slurm_executor import Executor
from marin_rules.engine.slurm_notices import Notices


def test_no_exception_ends_the_watch_and_each_is_told_once() -> None:
    told: list[str] = []
    executor: Any = object.__new__(Executor)
    executor.workflow = SimpleNamespace(remote_execution_settings=SimpleNamespace(seconds_between_status_checks=1))
    executor._notices = Notices(SimpleNamespace(info=told.append))
    executor._ours = SimpleNamespace(discard=lambda number: None)
    executor._ask = lambda active: {}

    def look(info: Any, jobs: Any) -> bool:
        if info.external_jobid == "1":
            raise ValueError("no such thing")
        return False

    executor._has_to_be_waited_for = look
    jobs: list[Any] = [SimpleNamespace(external_jobid=number) for number in ("1", "2")]

    async def watch() -> list[Any]:
        return [info async for info in executor.check_active_jobs(jobs)]

    for _ in range(3):
        assert [info.external_jobid for info in asyncio.run(watch())] == ["1"]
    assert [text.partition(" ")[2] for text in told] == [
        "could not look at slurm job 1, will try again: ValueError('no such thing')"
    ]
