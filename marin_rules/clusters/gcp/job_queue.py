"""The queue of Google Batch.

The id of a job consists of what it is for and a number. So the job of a request whose answer was lost is found instead
of created twice: Batch says that it exists. A job carries its tag in its labels.

Requests cost as little as possible: one list for all jobs of a run, by label, without their scripts; the tasks of
a job only if it is an array or has failed, and of an ended job once.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from marin_rules.clusters.gcp import names
from marin_rules.clusters.gcp.calls import Calls, ExistsError, NotFoundError, open_batch_client
from marin_rules.clusters.gcp.definition import job_definition
from marin_rules.clusters.gcp.listing import (
    FIELDS,
    NAME,
    element_numbers,
    has_ended,
    has_slices,
    is_array,
    read_elements,
    read_job,
    short_id,
    slice_place,
)
from marin_rules.clusters.gcp.logs import TaskLogs
from marin_rules.clusters.gcp.shortages import advice_about
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.gcp.slice_notice import SliceNotice
from marin_rules.clusters.gcp.slices import Slices
from marin_rules.clusters.protocol import OWNER_VARIABLE, BusyError, ClusterJob, Extra, JobRequest, RefusedError

_MOST_ELEMENTS = 100_000
"""The most tasks of a job that Batch accepts."""

_MOST_AT_ONCE = 10_000
"""Elements of one array: if they have gaps, each takes its place in the definition, which may have a megabyte."""

_OLDEST = timedelta(days=17)
"""No job created longer ago than this is alive: Batch lets it wait for 2 days and run for 14."""

_PAGE = 1000


class BatchQueue:
    """The queue of a project. See `protocol.JobQueue`."""

    cluster = NAME
    title = "Google Batch"

    def __init__(
        self, site: GcpSite, *, client: Any = None, owner: str | None = None, calls: Calls | None = None
    ) -> None:
        self._site = site
        self._client = client or open_batch_client()
        self._owner = owner or os.environ.get(OWNER_VARIABLE) or getpass.getuser()
        self._call = calls or Calls()
        self._logs = TaskLogs(site.project, self._call)
        self._lock = threading.Lock()
        self._slices: Slices | None = None
        self._numbers: dict[str, int] = {}
        """For each purpose of a job: the number of its last one."""

        self._unanswered: set[str] = set()
        """Ids of jobs that may have been created: what is found under them is treated as ours."""

        self._seen: dict[str, Any] = {}
        """The last answer about each job, by its id: where it is, and of which run."""

        self._slice_places: dict[str, str | None] = {}
        """Where the worker of a job on TPU slices leaves messages, by the job's id."""

        self._ended: dict[str, dict[str, ClusterJob]] = {}
        """What was read of ended jobs, which no longer changes."""

    # --- submitting

    @property
    def most_elements(self) -> int:
        return _MOST_ELEMENTS

    def deal(self, tasks: Sequence[int]) -> list[list[int]]:
        arrays: list[list[int]] = []
        for task in tasks:
            if arrays and len(arrays[-1]) < _MOST_AT_ONCE and task - arrays[-1][0] < _MOST_ELEMENTS:
                arrays[-1].append(task)
            else:
                arrays.append([task])
        return arrays

    def submit(self, request: JobRequest) -> str:
        identity = uuid.uuid4().hex if request.tag is None else str(request.tag)
        number = self._numbers.get(identity, 0)
        job = names.job_id(request.name, identity, number)
        if job not in self._unanswered:
            number += 1
        while True:
            job = names.job_id(request.name, identity, number)
            self._numbers[identity] = number
            if self._create(job, request):
                return job
            number += 1

    def _create(self, job: str, request: JobRequest) -> bool:
        """Create a job, or find it created by ourselves; False if its id is taken: by one that has ended, or by
        somebody else's."""
        from google.cloud import batch_v1

        region = request.resources.get("gcp_region") or self._site.region
        parent = f"projects/{self._site.project}/locations/{region}"
        definition = job_definition(request, self._site, job, self._owner)
        creation = batch_v1.CreateJobRequest(
            parent=parent,
            job_id=job,
            job=batch_v1.Job.from_json(json.dumps(definition)),
            request_id=names.request_id(job),
        )
        try:
            answer = self._call(
                f"create job {job}", self._client.create_job, creation, lambda: self._unanswered.add(job)
            )
        except ExistsError:
            answer = self._get(f"{parent}/jobs/{job}")
        may_be_ours = job in self._unanswered
        self._unanswered.discard(job)
        if answer is None or names.tag_of(answer.labels) != request.tag or (has_ended(answer) and not may_be_ours):
            return False
        self._remember([answer])
        return True

    # --- looking

    def jobs(self) -> dict[str, ClusterJob]:
        """Those that are alive: how the others ended is not needed, and would take a call for each."""
        labels = {names.OURS: "true", names.OWNER: names.label_value(self._owner)}
        return self._read(job for job in self._list(labels) if not has_ended(job))

    def look(self, ids: Sequence[str]) -> dict[str, ClusterJob]:
        wanted = dict.fromkeys(_job_of(number) for number in ids)
        live = {job for job in wanted if job not in self._ended}
        runs = {self._seen[job].labels.get(names.RUN) for job in live if job in self._seen}
        found = {short_id(job): job for run in runs if run for job in self._list({names.RUN: run}, live)}
        for job in live - found.keys():
            answer = self._find(job)
            if answer is not None:
                found[job] = answer
        known = {number: job for ended in wanted if ended in self._ended for number, job in self._ended[ended].items()}
        return {**known, **self._read(found[job] for job in wanted if job in found)}

    def _find(self, job: str) -> Any | None:
        """A job that no list has shown: by its name, or in all regions if that is not known."""
        if job in self._seen:
            return self._get(self._seen[job].name)
        return next((found for found in self._list({names.JOB: job}) if short_id(found) == job), None)

    def _list(self, labels: Mapping[str, str], wanted: Iterable[str] | None = None) -> list[Any]:
        """Jobs with these labels, in all regions, that may still live, and some of the others; or until all that are
        wanted are among them. The newest come first."""
        from google.cloud import batch_v1

        request = batch_v1.ListJobsRequest(
            parent=f"projects/{self._site.project}/locations/-",
            filter=" AND ".join(f'labels."{key}" = "{value}"' for key, value in labels.items()),
            order_by="create_time desc",
            page_size=_PAGE,
        )
        oldest = datetime.now(UTC) - _OLDEST
        found: list[Any] = []
        left = None if wanted is None else set(wanted)
        mask = [("x-goog-fieldmask", FIELDS)]
        for page in self._call.pages("list jobs", self._client.list_jobs, request, metadata=mask):
            self._check_reached(page.unreachable)
            found += page.jobs
            if left is not None:
                left -= {short_id(job) for job in page.jobs}
            if left == set() or (page.jobs and page.jobs[-1].create_time < oldest):
                break
        self._remember(found)
        return found

    def _check_reached(self, unreachable: Iterable[str]) -> None:
        """A region that does not answer may have jobs of ours, about which nothing is then known."""
        silent = [place for place in unreachable if place.rpartition("/")[2] in self._site.regions]
        if silent:
            raise BusyError(f"Batch does not answer for {', '.join(silent)}")

    def _get(self, name: str) -> Any | None:
        from google.cloud import batch_v1

        try:
            answer = self._call(f"look at {name}", self._client.get_job, batch_v1.GetJobRequest(name=name))
        except NotFoundError:
            return None
        self._remember([answer])
        return answer

    def _remember(self, jobs: Iterable[Any]) -> None:
        with self._lock:
            self._seen.update({short_id(job): job for job in jobs})

    def _read(self, jobs: Iterable[Any]) -> dict[str, ClusterJob]:
        found: dict[str, ClusterJob] = {}
        for job in jobs:
            number = short_id(job)
            if number in self._ended:
                found |= self._ended[number]
                continue
            try:
                read = self._read_one(job)
            except (LookupError, TypeError, ValueError):  # Has our labels, but was not created by us.
                continue
            if has_ended(job):
                self._ended[number] = read
            found |= read
        return found

    def _read_one(self, job: Any) -> dict[str, ClusterJob]:
        if is_array(job):
            return {element.id: element for element in read_elements(job, list(self._tasks(job)))}
        state = job.status.state.name
        waits_for = self._waits_for(job) if state == "RUNNING" and has_slices(job) else ""
        return {short_id(job): read_job(job, self._tasks(job) if state == "FAILED" else (), waits_for)}

    def _waits_for(self, job: Any) -> str:
        """Why a job that runs has no TPU slice, as its worker says; nothing if it has one."""
        number = short_id(job)
        if number not in self._slice_places:
            whole = self._get(job.name)  # Lists are without variables.
            self._slice_places[number] = None if whole is None else slice_place(whole)
        place = self._slice_places[number]
        return "" if place is None else SliceNotice(place, number).read()

    def _tasks(self, job: Any) -> Iterator[Any]:
        from google.cloud import batch_v1

        request = batch_v1.ListTasksRequest(parent=f"{job.name}/taskGroups/group0", page_size=_PAGE)
        with contextlib.suppress(NotFoundError):  # Deleted meanwhile.
            for page in self._call.pages(f"list tasks of {job.name}", self._client.list_tasks, request):
                yield from page.tasks

    # --- ending

    def cancel(self, ids: Sequence[str]) -> None:
        """A refusal does not stop the others from being cancelled: each that continues costs money."""
        asked = set(ids)
        refusals = []
        for job in dict.fromkeys(_job_of(number) for number in ids):
            try:
                self._cancel(job, asked)
            except RefusedError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def _cancel(self, job: str, asked: set[str]) -> None:
        from google.cloud import batch_v1

        answer = self._find(job)
        if answer is None or has_ended(answer):
            return
        if job not in asked:
            self._check_all_asked_for(answer, asked)
        request = batch_v1.CancelJobRequest(name=answer.name, request_id=str(uuid.uuid4()))
        try:
            self._call(f"cancel job {job}", self._client.cancel_job, request)
        except NotFoundError:
            return
        except RefusedError:
            again = self._get(answer.name)
            if again is not None and not has_ended(again):  # It has ended meanwhile, or it was really refused.
                raise

    def _check_all_asked_for(self, job: Any, asked: set[str]) -> None:
        left = [element.id for element in self._read_one(job).values() if element.is_live and element.id not in asked]
        if left:
            raise RefusedError(
                f"Batch cannot end single tasks of a job: {', '.join(left[:5])} would end too. End them all with"
                f" `{self.cancel_command([short_id(job)])}`"
            )

    def cancel_command(self, ids: Sequence[str]) -> str:
        jobs = dict.fromkeys(_job_of(number) for number in ids)
        return " && ".join(
            f"gcloud batch jobs cancel {job} --location={self._region_of(job)} --project={self._site.project}"
            for job in jobs
        )

    # --- what is beside jobs

    def extras(self) -> list[Extra]:
        """TPU slices, if the cluster's file has TPUs, except those that are being deleted."""
        if not self._site.tpus:
            return []
        labels = {names.OURS: "true", names.OWNER: names.label_value(self._owner)}
        zones = [zone for supply in self._site.tpus.values() for zone in supply.zones]
        return [
            Extra(f"{found.zone}/{found.id}", f"TPU slice {found.id} in {found.zone}", found.state, found.tag)
            for found in self._open_slices().find(labels, zones)
            if found.state != "DELETING"
        ]

    def remove(self, extra: Extra) -> None:
        zone, _, number = extra.id.partition("/")
        self._open_slices().delete(zone, number)

    def _open_slices(self) -> Slices:
        with self._lock:
            if self._slices is None:
                self._slices = Slices(self._site.project, calls=self._call)
            return self._slices

    # --- for people

    def log_of(self, log: str, job: str) -> str:
        """Cloud Logging has it, whatever file was requested."""
        number = _job_of(job)
        return (
            f"https://console.cloud.google.com/batch/jobsDetail/regions/{self._region_of(number)}/jobs/{number}/logs"
            f"?project={self._site.project}"
        )

    def last_lines(self, job: str, count: int) -> list[str]:
        number, _, element = job.partition("_")
        found = self._seen.get(number) or self._find(number)
        if found is None:
            return []
        task = element_numbers(found).index(int(element)) if element else None
        return self._logs.last_lines(found.uid, task, found.create_time, count)

    def advice(self, job: ClusterJob) -> str | None:
        return advice_about(job.reason)

    def close(self) -> None:
        self._client.transport.close()
        self._logs.close()
        if self._slices is not None:
            self._slices.close()

    def _region_of(self, job: str) -> str:
        seen = self._seen.get(job)
        return self._site.region if seen is None else str(seen.name).split("/")[3]


def _job_of(number: str) -> str:
    """The job, or for an element the array: ids of Batch have no underscore."""
    return number.partition("_")[0]
