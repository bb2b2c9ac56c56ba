"""Array steps on a cluster: their tasks are elements of job arrays, each with a history and an outcome of its own.

- `ArrayTakeUp` puts the tasks that are not done into the queue, once, or finds elements that are already there.
- `ArrayWatch` looks at the elements and decides about each with `clusters.policy`, as about any job. Tasks that have to
  be submitted again are submitted together; the step is over when none is left.

Only tasks without a good record are ever submitted. While the tasks run nobody holds the step's lease: see
`worker.array_step`. A task that somebody else has, on another cluster, is waited for here and not on a machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from marin_rules.clusters.policy import Absence, Again, Fail, History, Observation, Succeed, TaskWord, decide
from marin_rules.clusters.protocol import (
    ArrayTasks,
    ClusterError,
    ClusterJob,
    JobQueue,
    JobRequest,
    JobState,
    JobTag,
    element_id,
)
from marin_rules.engine.cluster_notices import Notices
from marin_rules.engine.cluster_tracking import ArrayTrack, Clock, OwnJobs
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.recorded_job import recorded_job
from marin_rules.state.status import Status
from marin_rules.state.task_records import (
    TaskCounts,
    TaskPlace,
    TaskRecord,
    failures_in_words,
    is_hopeless,
    read_records,
)
from marin_rules.storage.leases.held import is_free
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner
from marin_rules.worker.array_step import done, end_array
from marin_rules.worker.conclusion import Conclusion
from marin_rules.worker.step_call import Outcome

_PROGRESS_SECONDS = 5.0
"""How often a step's progress is reported."""

_LEASES_IN_A_LOOK = 50
"""How many tasks of others to check at a time: each check is a request to the store."""


class ArrayTakeUp:
    """For the array steps of one run. Called in threads, by one driver at a time for each step."""

    def __init__(
        self,
        plan: FrozenPlan,
        queue: JobQueue,
        *,
        ours: OwnJobs,
        notices: Notices,
        describe_job: Callable[[JobRequest], str],
        is_ours: Callable[[JobTag], bool],
        most_interruptions: int,
    ) -> None:
        self._plan = plan
        self._queue = queue
        self._ours = ours
        self._notices = notices
        self._describe_job = describe_job
        self._is_ours = is_ours
        self._most_interruptions = most_interruptions

    def find(self, array: ArrayTrack, step: FrozenStep, jobs: Iterable[ClusterJob]) -> ClusterJob | None:
        """See which tasks are done, and who is working on the others; returns a job that belongs to another run, if
        any.

        `jobs` are all that the queue has.
        """
        assert step.tasks is not None
        foreign: ClusterJob | None = None
        found = {job.task: job for job in jobs if self._is_at(job, step, array.round) and job.task is not None}
        for task, job in found.items():
            assert job.tag is not None
            assert job.array is not None
            is_ours = self._is_ours(job.tag)
            if not is_ours:
                foreign = job
            elif job.array not in array.arrays:
                array.arrays.add(job.array)
                self._ours.add(job.array)
            history = self._history(array, step, task)
            if history.job != job.id:
                array.histories[task] = history.of_next_job(job.id, restarts=job.restarts, is_ours=is_ours)
        array.jobs = {task: job.id for task, job in found.items()}
        unknown = [task for task in range(step.tasks) if task not in array.done]
        records = read_records(step.output_path, array.round, unknown)
        array.done |= {task: record for task, record in records.items() if record.is_done}
        running = (task for task, record in records.items() if record.status is Status.RUNNING)
        array.elsewhere = {
            task: lease
            for task in running
            if task not in array.jobs and not is_free(lease := self._lease(step, array.round, task))
        }
        return foreign

    def submit(
        self,
        array: ArrayTrack,
        step: FrozenStep,
        tag: JobTag,
        request_for: Callable[[JobTag, Sequence[int]], JobRequest],
        require_turn: Callable[[], None],
    ) -> bool:
        """Submit jobs for all tasks that nobody is working on; False if the run was cancelled meanwhile."""
        assert step.tasks is not None
        left = array.left(step.tasks)
        for tasks in self._queue.deal(left) if left else ():
            require_turn()
            first = tasks[0]
            own_tag = JobTag(tag.run, tag.step, tag.place, ArrayTasks(array.round, first))
            request = request_for(own_tag, tasks)
            number = self._queue.submit(request)
            array.log = request.log
            array.arrays.add(number)
            for task in tasks:
                element = element_id(number, task - first)
                array.jobs[task] = element
                array.histories[task] = self._history(array, step, task).of_next_job(element)
            where = f"{self._queue.cluster} job {number}, {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"
            self._notices.tell(f"queue  {step.name}: {where}, {self._describe_job(request)}")
            if not self._ours.add(number):
                return False
        return True

    def _is_at(self, job: ClusterJob, step: FrozenStep, number: int) -> bool:
        """Whether a job does, or will do, a task of this round of the step."""
        tag = job.tag
        if tag is None or tag.tasks is None or not job.is_live or tag.tasks.round != number:
            return False
        run = self._plan.run
        return tag.is_same_step(JobTag.of(run.id, step.key, run.absolute(step.output_path)))

    def _history(self, array: ArrayTrack, step: FrozenStep, task: int) -> History:
        if task not in array.histories:
            array.histories[task] = History(
                name=f"{step.name} task {task}",
                cluster=self._queue.cluster,
                title=self._queue.title,
                job="",
                most_interruptions=self._most_interruptions,
            )
        return array.histories[task]

    @staticmethod
    def _lease(step: FrozenStep, number: int, task: int) -> Lease:
        return TaskPlace(step.output_path, number, task).open_lease(Owner.current())


class Progress(Enum):
    """What to do about an array step after a look at its tasks."""

    WAIT = "wait"
    SUBMIT = "submit"
    """Some tasks have to be submitted, or submitted again."""

    SUCCESS = "success"
    FAILURE = "failure"


class Explain(Protocol):
    """Says more about a job that left no record: where its own output is."""

    def __call__(self, job: ClusterJob | Absence, log: str | None) -> str: ...


class ArrayWatch:
    """Over the tasks of array steps."""

    def __init__(
        self,
        plan: FrozenPlan,
        queue: JobQueue,
        *,
        notices: Notices,
        explain: Explain,
        remove_log: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._queue = queue
        self._notices = notices
        self._explain = explain
        self._remove_log = remove_log
        self._clock = clock

    def look(self, array: ArrayTrack, step: FrozenStep, answers: Mapping[str, ClusterJob] | None) -> Progress:
        """Judge all tasks; `answers` are the jobs that the cluster knows, None if it does not answer."""
        assert step.tasks is not None
        if answers is not None:
            self._judge(array, step, answers)
        self._look_at_others(array, step)
        self._tell(array, step)
        if array.failed and is_hopeless(len(array.done), len(array.failed)) and self._give_up(array, step):
            return Progress.FAILURE
        if array.left(step.tasks):
            return Progress.SUBMIT
        if array.jobs or array.elsewhere:
            return Progress.WAIT
        return Progress.FAILURE if array.failed else Progress.SUCCESS

    def end(self, array: ArrayTrack, step: FrozenStep, status: Status) -> bool:
        """Record the outcome of the step, if nobody else has; False if somebody else holds it right now."""
        assert step.tasks is not None
        if status is Status.SUCCESS:
            conclusion = done(array.done)
        elif status is Status.FAILED:
            conclusion = Conclusion(status, Outcome(error=self.reason(array, step)))
        else:
            conclusion = Conclusion(status, Outcome(error="stopped with its run"))
        return end_array(self._plan, step, array.round, conclusion, say=self._notices.tell, waits=False)

    def reason(self, array: ArrayTrack, step: FrozenStep) -> str:
        """Why the step failed."""
        assert step.tasks is not None
        left = step.tasks - len(array.done) - len(array.failed)
        return failures_in_words(step.tasks, array.failed, left)

    def _judge(self, array: ArrayTrack, step: FrozenStep, answers: Mapping[str, ClusterJob]) -> None:
        jobs = {task: answers.get(number, Absence.MISSING) for task, number in array.jobs.items()}
        ended = [task for task, job in jobs.items() if isinstance(job, Absence) or not job.is_live]
        records = read_records(step.output_path, array.round, ended) if ended else {}
        array.running = sum(isinstance(job, ClusterJob) and job.state is JobState.RUNNING for job in jobs.values())
        for task, job in jobs.items():
            if isinstance(job, ClusterJob) and _is_as_before(job, array.histories[task]):
                continue
            word = _word(records.get(task), job) if task in ended else TaskWord.NOTHING
            decision = decide(array.histories[task], Observation(job, self._clock.now(), word))
            array.histories[task] = decision.history
            self._pass_on(array, step, job, decision.notices)
            number = array.jobs[task]
            match decision:
                case Succeed():
                    array.done[task] = records[task]
                    del array.jobs[task]
                    self._remove_log(self._queue.log_of(array.log, number))
                case Again():
                    del array.jobs[task]
                case Fail():
                    self._fail(array, step, task, decision, records.get(task), job)

    def _pass_on(self, array: ArrayTrack, step: FrozenStep, job: ClusterJob | Absence, notices: Iterable[str]) -> None:
        """Report what happened to tasks; of the many that start, only the first."""
        if isinstance(job, ClusterJob) and job.state is JobState.RUNNING and not array.is_started:
            array.is_started = True
            self._notices.tell(f"start  {step.name} on {job.nodes}")
        for text in notices:
            if not text.startswith("start "):
                self._notices.tell(text)
        if isinstance(job, ClusterJob) and job.state is JobState.WAITING:
            self._notices.tell_why_it_waits(step.name, job, self._queue.advice(job))

    def _fail(
        self,
        array: ArrayTrack,
        step: FrozenStep,
        task: int,
        decision: Fail,
        record: TaskRecord | None,
        job: ClusterJob | Absence,
    ) -> None:
        number = array.jobs.pop(task)
        if decision.job_lives:
            with contextlib.suppress(ClusterError):
                self._queue.cancel([number])
        if record is not None and record.status is Status.FAILED and _is_of(record, number):
            array.failed[task] = record.error
        else:
            log = self._queue.log_of(array.log, number) if array.log else None
            array.failed[task] = decision.reason + self._explain(job, log)
        array.may_retry = array.may_retry and decision.may_retry
        self._notices.tell(f"failed {step.name}: task {task}: {array.failed[task]}")

    def _look_at_others(self, array: ArrayTrack, step: FrozenStep) -> None:
        """Tasks that somebody else no longer has: done, or to be submitted."""
        for task, lease in list(array.elsewhere.items())[:_LEASES_IN_A_LOOK]:
            del array.elsewhere[task]
            if not is_free(lease):
                array.elsewhere[task] = lease  # At the end: another look begins with the others.
                continue
            record = read_records(step.output_path, array.round, [task]).get(task)
            if record is not None and record.is_done:
                array.done[task] = record

    def _give_up(self, array: ArrayTrack, step: FrozenStep) -> bool:
        """End the jobs of tasks that would fail like all before them; False if there is nothing left to end."""
        if not array.jobs:
            return bool(array.left(step.tasks or 0))
        self._notices.tell(f"giving up on {step.name}: {len(array.failed)} tasks failed, and none was done")
        with contextlib.suppress(ClusterError):
            self._queue.cancel(list(array.jobs.values()))
        array.jobs.clear()
        return True

    def _tell(self, array: ArrayTrack, step: FrozenStep) -> None:
        assert step.tasks is not None
        now = self._clock.now()
        is_over = len(array.done) + len(array.failed) == step.tasks
        if now < array.tell_at and not is_over:
            return
        text = str(TaskCounts(step.tasks, len(array.done), 0 if is_over else array.running, len(array.failed)))
        if text != array.told:
            array.told, array.tell_at = text, now + _PROGRESS_SECONDS
            self._notices.tell(f"tasks  {step.name}: {text}")


def _is_as_before(job: ClusterJob, history: History) -> bool:
    """Whether nothing has happened to a job since the last look, as with most of thousands."""
    return job.is_live and job.state is history.state and job.restarts == history.restarts


def _word(record: TaskRecord | None, job: ClusterJob | Absence) -> TaskWord:
    if record is None:
        return TaskWord.NOTHING
    if record.status is Status.CANCELLED and isinstance(job, ClusterJob):
        return TaskWord.STOPPED if _is_of(record, job.id) else TaskWord.NOTHING
    words = {Status.SUCCESS: TaskWord.DONE, Status.FAILED: TaskWord.FAILED}
    return words.get(record.status, TaskWord.NOTHING)


def _is_of(record: TaskRecord, number: str) -> bool:
    """Whether a record was written in the job with this id."""
    recorded = recorded_job(record.fields)
    return recorded is not None and recorded.id == number
