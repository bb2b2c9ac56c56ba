"""The API of Batch, and of the log entries of its tasks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from google.cloud import batch_v1
from google.cloud.logging_v2 import types as logging_types
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from support.emulators.batch.filters import matcher
from support.emulators.batch.job import CAUSES, PREEMPTED, BatchWorld, Job, State
from support.emulators.batch.logs import Logs
from support.emulators.batch.refusals import check, filled_in
from support.emulators.rpc.errors import already_exists, failed_precondition, invalid, not_found
from support.emulators.rpc.operations import Operations
from support.emulators.rpc.server import page_of
from support.emulators.rpc.service import Method

_LARGEST_PAGE = 1000
"""Unless a test says otherwise: pages are seldom full, and never larger than the service likes."""

_BATCH = "google.cloud.batch.v1.BatchService"

_ORDERS = {"": ("name", False), "name": ("name", False), "name desc": ("name", True)} | {
    f"create_time{end}": ("create_time", bool(end)) for end in ("", " desc")
}

QUIRKS = frozenset({"unordered events", "us-east1 unreachable"})


class BatchService:
    """Google Batch behind the front."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs = Logs()
        self._operations = Operations()
        self._jobs: dict[str, Job] = {}
        self._by_request: dict[str, Job] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._quirks: frozenset[str] = frozenset()
        self._largest_page = _LARGEST_PAGE
        self._world = self._new_world()
        self.methods: Mapping[str, Method] = {
            f"{_BATCH}/CreateJob": Method(self._create, batch_v1.CreateJobRequest, batch_v1.Job),
            f"{_BATCH}/GetJob": Method(self._get, batch_v1.GetJobRequest, batch_v1.Job),
            f"{_BATCH}/ListJobs": Method(self._list, batch_v1.ListJobsRequest, batch_v1.ListJobsResponse),
            f"{_BATCH}/CancelJob": Method(self._cancel, batch_v1.CancelJobRequest, operations_pb2.Operation),
            f"{_BATCH}/DeleteJob": Method(self._delete, batch_v1.DeleteJobRequest, operations_pb2.Operation),
            f"{_BATCH}/GetTask": Method(self._get_task, batch_v1.GetTaskRequest, batch_v1.Task),
            f"{_BATCH}/ListTasks": Method(self._list_tasks, batch_v1.ListTasksRequest, batch_v1.ListTasksResponse),
            "google.longrunning.Operations/GetOperation": self._operations.method,
            "google.logging.v2.LoggingServiceV2/ListLogEntries": Method(
                self._logs.entries, logging_types.ListLogEntriesRequest, logging_types.ListLogEntriesResponse
            ),
        }

    # --- for tests

    def reset(self) -> None:
        self.close()
        self._jobs.clear()
        self._by_request.clear()
        self._operations.reset()
        self._logs.reset()
        self._quirks = frozenset()
        self._largest_page = _LARGEST_PAGE
        self._world = self._new_world()

    def close(self) -> None:
        for job in list(self._jobs.values()):
            job.kill()

    def control(self, what: str, arguments: Mapping[str, Any]) -> Any:
        match what:
            case "hold":
                self._world.held = {State[name] for name in arguments["states"]}
            case "shortage":
                self._world.shortage = arguments["message"]
            case "missing_images":
                self._world.missing_images = set(arguments["images"])
            case "grace":
                self._world.grace_seconds = arguments["seconds"]
            case "quirks":
                if unknown := set(arguments["quirks"]) - QUIRKS:
                    raise ValueError(f"no such quirks: {', '.join(sorted(unknown))}")
                self._quirks = frozenset(arguments["quirks"])
            case "largest_page":
                self._largest_page = arguments["size"]
            case "age":
                message = self._named(arguments["job"]).message
                message.create_time = message.create_time - timedelta(days=arguments["days"])
            case "lose_machine":
                self._lose_machine(**arguments)
            case "processes":
                return [
                    pid
                    for job in self._jobs.values()
                    for task in job.tasks
                    if task.machine is not None
                    for pid in task.machine.processes()
                ]
            case _:
                raise ValueError(f"no such control call: {what}")
        self._world.change()
        return None

    def _lose_machine(self, job: str, task: int, code: int) -> None:
        found = self._named(job)
        if code not in CAUSES:
            raise ValueError(f"no such exit code: {code}")
        if code == PREEMPTED and not found.is_spot:
            raise ValueError(f"the machines of {job} cannot be preempted: they are no Spot machines")
        found.lose_machine(task, code)

    def _named(self, job: str) -> Job:
        for name, found in self._jobs.items():
            if name.endswith(f"/jobs/{job}"):
                return found
        raise ValueError(f"no job {job}")

    def _new_world(self) -> BatchWorld:
        return BatchWorld(self._folder / uuid.uuid4().hex, print_line=self._logs.add)

    # --- for clients

    def _create(self, request: Any) -> Any:
        name = f"{request.parent}/jobs/{request.job_id}"
        if request.request_id and request.request_id in self._by_request:
            return self._answer(self._by_request[request.request_id])
        if request.request_id:
            _check_request_id(request.request_id)
        check(request)
        if name in self._jobs:
            raise already_exists(name)
        message = filled_in(request)
        message.uid = f"{request.job_id[:46]}-{uuid.uuid4().hex[:12]}"
        message.create_time = message.update_time = datetime.now(UTC)
        job = self._jobs[name] = Job(message, self._world)
        if request.request_id:
            self._by_request[request.request_id] = job
        return self._answer(job)

    def _get(self, request: Any) -> Any:
        return self._answer(self._job(request.name))

    def _list(self, request: Any) -> Any:
        wanted = matcher(request.filter)
        _, project, _, region = request.parent.split("/")
        if request.order_by not in _ORDERS:
            raise invalid(f"Invalid order_by: {request.order_by}")
        field, backwards = _ORDERS[request.order_by]
        unreachable = [quirk.removesuffix(" unreachable") for quirk in self._quirks if quirk.endswith(" unreachable")]
        found = []
        for name, job in self._jobs.items():
            _, owner, _, place, *_ = name.split("/")
            if owner == project and region in ("-", place) and place not in unreachable and wanted(job.message):
                found.append(job)
        found.sort(key=lambda job: getattr(job.message, field), reverse=backwards)
        page, token = page_of(found, request.page_size, request.page_token, most=self._largest_page)
        return batch_v1.ListJobsResponse(
            jobs=[self._answer(job) for job in page],
            next_page_token=token,
            unreachable=[f"projects/{project}/locations/{place}" for place in unreachable],
        )

    def _cancel(self, request: Any) -> operations_pb2.Operation:
        job = self._job(request.name)
        if job.has_ended:
            raise failed_precondition(f"Job {request.name} is in state {job.message.status.state.name}.")
        if job.message.status.state != State.CANCELLATION_IN_PROGRESS:
            job.end(State.CANCELLATION_IN_PROGRESS)
        return self._operations.start(
            request.name.partition("/jobs/")[0],
            lambda: batch_v1.CancelJobResponse.pb(batch_v1.CancelJobResponse()) if job.has_ended else None,
        )

    def _delete(self, request: Any) -> operations_pb2.Operation:
        job = self._job(request.name)
        if job.message.status.state != State.DELETION_IN_PROGRESS:
            job.end(State.DELETION_IN_PROGRESS)
            ending = asyncio.ensure_future(self._remove(request.name, job))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        return self._operations.start(
            request.name.partition("/jobs/")[0],
            lambda: None if self._jobs.get(request.name) is job else empty_pb2.Empty(),
        )

    async def _remove(self, name: str, job: Job) -> None:
        await job.is_over()
        if self._jobs.get(name) is job:
            del self._jobs[name]

    def _get_task(self, request: Any) -> Any:
        job, _, index = request.name.partition("/taskGroups/group0/tasks/")
        tasks = self._job(job).tasks
        if not index.isdecimal() or int(index) >= len(tasks):
            raise not_found(request.name)
        return self._with_events(batch_v1.Task, tasks[int(index)].message)

    def _list_tasks(self, request: Any) -> Any:
        job = self._job(request.parent.removesuffix("/taskGroups/group0"))
        if job.message.status.state == State.QUEUED:
            return batch_v1.ListTasksResponse()
        page, token = page_of(job.tasks, request.page_size, request.page_token, most=self._largest_page)
        tasks = [self._with_events(batch_v1.Task, task.message) for task in page]
        return batch_v1.ListTasksResponse(tasks=tasks, next_page_token=token)

    def _job(self, name: str) -> Job:
        try:
            return self._jobs[name]
        except KeyError:
            raise not_found(name) from None

    def _answer(self, job: Job) -> Any:
        return self._with_events(batch_v1.Job, job.message)

    def _with_events(self, kind: Any, message: Any) -> Any:
        """A message as it is answered: its events in no order, if that was asked for."""
        if "unordered events" not in self._quirks:
            return message
        answer = kind.deserialize(kind.serialize(message))
        answer.status.status_events = list(reversed(answer.status.status_events))
        return answer


def _check_request_id(text: str) -> None:
    try:
        is_valid = uuid.UUID(text).int != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise invalid(f"request_id {text!r} is no UUID.")
