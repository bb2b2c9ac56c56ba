"""One job: its states and events as Batch words them, and its tasks as processes on machines of their own.

A job goes on by itself, as fast as it can, unless a test holds it in a state. What ends a task is its program, a limit
of time, or whoever takes its machine away with one of the reserved exit codes.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from google.cloud import batch_v1

from support.emulators.metadata_server import MetadataServer
from support.emulators.rpc.machine import Machine
from support.emulators.rpc.world import World

State: Any = batch_v1.JobStatus.State
TaskState: Any = batch_v1.TaskStatus.State

PREEMPTED, OVERTIME = 50001, 50005

CAUSES = {
    PREEMPTED: "Spot VM preemption",
    50002: "Batch no longer receives VM updates",
    50003: "VM is rebooted during task execution",
    50004: "tasks cannot be canceled",
    OVERTIME: "task runs over the maximum runtime",
    50006: "VM is recreated during task execution",
}
"""Batch's own exit codes, and its words for them."""

ENDED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)

_instances = itertools.count(7012345678901234567)


@dataclass
class BatchWorld(World):
    """What the jobs of one emulator share."""

    print_line: Callable[[str, dict[str, str], str], None] = lambda project, labels, text: None
    """Takes the project, the labels and the text of a line that a task has printed."""

    shortage: str | None = None
    """Why no machines can be had, as Batch words it; None if they can."""

    missing_images: set[str] = field(default_factory=set)
    grace_seconds: float = 5.0
    """How long a task may take to end after it was asked to."""


@dataclass
class Task:
    """A task of a job."""

    message: Any
    machine: Machine | None = None
    metadata: MetadataServer | None = None
    retries: int = 0
    lost: int | None = None
    """The reserved exit code with which its machine was taken away."""


class Job:
    """A job from its creation to its end."""

    def __init__(self, message: Any, world: BatchWorld) -> None:
        self.message = message
        self._world = world
        self._began: datetime | None = None
        self._wanted = State.STATE_UNSPECIFIED
        group = message.task_groups[0]
        self._spec = group.task_spec
        self._places = [place for place in message.allocation_policy.location.allowed_locations if "zones/" in place]
        self.tasks = [
            Task(batch_v1.Task(name=f"{message.name}/taskGroups/group0/tasks/{index}"))
            for index in range(group.task_count)
        ]
        message.status.state = State.QUEUED
        self._life = asyncio.ensure_future(self._live())

    @property
    def is_spot(self) -> bool:
        instance = self.message.allocation_policy.instances[0].policy
        return bool(instance.provisioning_model == batch_v1.AllocationPolicy.ProvisioningModel.SPOT)

    @property
    def has_ended(self) -> bool:
        return self.message.status.state in ENDED

    # --- from outside

    def end(self, state: Any) -> None:
        """Cancel it, or have it deleted: `state` is what it is in until its tasks have ended."""
        self._wanted = state
        self._set(state)
        for task in self.tasks:
            if task.machine is not None:
                task.machine.signal(signal.SIGTERM)
                asyncio.get_running_loop().call_later(self._world.grace_seconds, task.machine.take_away)
        self._world.change()

    async def is_over(self) -> None:
        """Until all of its tasks have ended."""
        await asyncio.wait({self._life})

    def lose_machine(self, index: int, code: int) -> None:
        task = self.tasks[index]
        if task.machine is None:
            raise ValueError(f"task {index} of {self.message.name} has no machine")
        task.lost = code
        task.machine.take_away()

    def kill(self) -> None:
        """Nothing of it is left running."""
        self._life.cancel()
        for task in self.tasks:
            if task.machine is not None:
                task.machine.take_away()

    # --- its life

    async def _live(self) -> None:
        await self._leave(State.QUEUED)
        self._set(State.SCHEDULED)
        await self._find_machines()
        await self._leave(State.SCHEDULED)
        if self._wanted is State.STATE_UNSPECIFIED:
            self._began = datetime.now(UTC)
            self._set(State.RUNNING)
            at_once = asyncio.Semaphore(self.message.task_groups[0].parallelism)
            await asyncio.gather(*(self._run_in_turn(index, at_once) for index in range(len(self.tasks))))
            await self._leave(State.RUNNING)
        self._finish()

    async def _leave(self, state: Any) -> None:
        while state in self._world.held and self._wanted is State.STATE_UNSPECIFIED:
            await self._world.changed.wait()

    async def _find_machines(self) -> None:
        told: str | None = None
        while (shortage := self._world.shortage) is not None and self._wanted is State.STATE_UNSPECIFIED:
            if shortage != told:
                self._tell("OPERATIONAL_INFO", f"VM in Managed Instance Group meets error: Batch Error: {shortage}")
                told = shortage
            await self._world.changed.wait()

    async def _run_in_turn(self, index: int, at_once: asyncio.Semaphore) -> None:
        self._set_task(index, TaskState.PENDING)
        async with at_once:
            if self._wanted is State.STATE_UNSPECIFIED:
                await self._run_task(index)
            else:
                self._set_task(index, TaskState.UNEXECUTED)

    async def _run_task(self, index: int) -> None:
        task = self.tasks[index]
        while True:
            zone = self._places[index % len(self._places)]
            where = f"{zone}/instances/{next(_instances)}"
            task.lost = None
            task.machine = Machine(self._world.folder / f"{self.message.uid}-{index}-{task.retries}")
            task.metadata = MetadataServer(zone.removeprefix("zones/"))
            self._set_task(index, TaskState.ASSIGNED, where=where)
            self._set_task(index, TaskState.RUNNING, where=where)
            try:
                code = await self._execute(index, task, task.machine)
            finally:
                threading.Thread(target=task.metadata.close).start()  # It takes a moment.
            task.machine.take_away()
            task.machine = None
            code = task.lost or code
            self._set_task(index, TaskState.FAILED if code else TaskState.SUCCEEDED, where=where, code=code)
            may_retry = code and self._wanted is State.STATE_UNSPECIFIED and task.retries < self._spec.max_retry_count
            if not (may_retry and self._is_retried(code)):
                return
            task.retries += 1
            self._set_task(index, TaskState.PENDING)

    def _is_retried(self, code: int) -> bool:
        """Without a policy every failure is; with one, the codes that it names, or all but those."""
        for policy in self._spec.lifecycle_policies:
            retries = policy.action == batch_v1.LifecyclePolicy.Action.RETRY_TASK
            return bool((code in policy.action_condition.exit_codes) == retries)
        return True

    async def _execute(self, index: int, task: Task, machine: Machine) -> int:
        longest = self._spec.max_run_duration
        try:
            async with asyncio.timeout(longest.total_seconds() if longest else None):
                for number, runnable in enumerate(self._spec.runnables):
                    code = await self._run(index, number, runnable, task, machine)
                    if code and not runnable.ignore_exit_status:
                        return code
        except TimeoutError:
            return OVERTIME
        return 0

    async def _run(self, index: int, number: int, runnable: Any, task: Task, machine: Machine) -> int:
        words = self._words(runnable, machine.folder / f"runnable{number}.sh")
        if isinstance(words, str):
            self._print(index, words)
            return 50000
        variables = {
            **dict(self._spec.environment.variables),
            **(dict(group[index].variables) if (group := self.message.task_groups[0].task_environments) else {}),
            **dict(runnable.environment.variables),
            **(task.metadata.environment if task.metadata is not None else {}),
            "BATCH_TASK_INDEX": str(index),
            "BATCH_TASK_COUNT": str(len(self.tasks)),
            "BATCH_TASK_RETRY_ATTEMPT": str(task.retries),
        }
        limit = runnable.timeout.total_seconds() if runnable.timeout else None
        async with asyncio.timeout(limit):
            return await machine.run(words, variables, lambda line: self._print(index, line))

    def _words(self, runnable: Any, file: Path) -> list[str] | str:
        """The command of a runnable; a sentence if it cannot be started."""
        if runnable.container.image_uri:
            container = runnable.container
            if container.image_uri in self._world.missing_images:
                return f"docker: Error response from daemon: manifest for {container.image_uri} not found"
            words = [*([container.entrypoint] if container.entrypoint else []), *container.commands]
            return words or "the emulator does not know what the image itself would run: give it commands"
        if not runnable.script.text:
            return "the emulator runs containers with commands, and scripts that are given as text"
        text = runnable.script.text
        file.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}")
        file.chmod(0o755)
        return [str(file)]

    def _finish(self) -> None:
        if self._began is not None:
            self.message.status.run_duration = datetime.now(UTC) - self._began
        if self._wanted is not State.STATE_UNSPECIFIED:
            for index, task in enumerate(self.tasks):
                if task.message.status.state in (TaskState.STATE_UNSPECIFIED, TaskState.PENDING):
                    self._set_task(index, TaskState.UNEXECUTED)
            if self._wanted is State.CANCELLATION_IN_PROGRESS:
                self._set(State.CANCELLED)
            return
        failed = next((index for index, task in enumerate(self.tasks) if _has_failed(task)), None)
        if failed is None:
            self._set(State.SUCCEEDED)
            return
        event = self.tasks[failed].message.status.status_events[-1].description
        self._set(
            State.FAILED,
            "Job failed due to task failure. Specifically, task with index"
            f' {failed} failed due to the following task event: "{event}"',
        )

    # --- what is told of it

    def _set(self, state: Any, why: str = "") -> None:
        before = self.message.status.state
        self.message.status.state = state
        sentence = f"Job state is set from {State(before).name} to {state.name} for job {self.message.name}."
        self._tell("STATUS_CHANGED", f"{sentence} {why}".strip())

    def _tell(self, kind: str, description: str) -> None:
        now = datetime.now(UTC)
        self.message.update_time = now
        event = batch_v1.StatusEvent(type_=kind, description=description, event_time=now)
        self.message.status.status_events = [*self.message.status.status_events, event]

    def _set_task(self, index: int, state: Any, where: str = "", code: int | None = None) -> None:
        status = self.tasks[index].message.status
        before = TaskState(status.state).name
        cause = f" due to {CAUSES[code]}" if code in CAUSES else ""
        end = f" with exit code {code}" if code else ""
        sentence = f"Task state is updated from {before} to {state.name}{f' on {where}' if where else ''}{cause}{end}."
        event = batch_v1.StatusEvent(
            type_="STATUS_CHANGED", description=sentence, event_time=datetime.now(UTC), task_state=state
        )
        if code is not None:
            event.task_execution.exit_code = code
        status.state = state
        status.status_events = [*status.status_events, event]
        self._count_tasks()

    def _count_tasks(self) -> None:
        counts: dict[str, int] = {}
        for task in self.tasks:
            name = TaskState(task.message.status.state).name
            counts[name] = counts.get(name, 0) + 1
        counts.pop(TaskState.STATE_UNSPECIFIED.name, None)
        self.message.status.task_groups = {"group0": batch_v1.JobStatus.TaskGroupStatus(counts=counts)}

    def _print(self, index: int, line: str) -> None:
        labels: Mapping[str, str] = {
            **dict(self.message.labels),
            "job_uid": self.message.uid,
            "task_group_name": self.message.task_groups[0].name,
            "task_id": f"task/{self.message.uid}-group0-{index}/{self.tasks[index].retries}/0",
        }
        self._world.print_line(self.message.name.split("/")[1], dict(labels), line)


def _has_failed(task: Task) -> bool:
    return bool(task.message.status.state == TaskState.FAILED)
