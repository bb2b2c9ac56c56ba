"""What the rest of the house expects of a cluster: a site that has machines, and a queue that takes jobs.

A cluster is a folder beside this file (`slurm/` is the first) that implements these protocols and exposes them in one
object, its `Cluster`; `clusters.open` finds it by its name. Nothing here knows steps or Snakemake, and nothing outside
that folder knows which cluster it talks to: it compares neutral states, and passes the cluster's own words on to
people.

What every cluster promises:

- A job carries a tag. A later listing of the jobs, in this process or another, returns the tag.
- An array is many jobs under one number: each of its elements is a job of its own, with the array's tag. It waits,
  runs, ends and is cancelled without the others.
- An answer that does not come is a `BusyError` and says nothing: what was asked for may have happened.
- A job that is not among the answers is not known (any more). That says nothing about how it ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol
from urllib.parse import quote, unquote

from marin_rules.checks import Check
from marin_rules.clusters.prices import Price
from marin_rules.errors import MarinRulesError
from marin_rules.machines import MachineRequest

_MARK = "marin-rules"


class ClusterError(MarinRulesError):
    """A cluster did not do what it was asked to do. It may if asked again: the reason is not known to last."""


class BusyError(ClusterError):
    """There was no answer, or a request to come back later. The request may have been carried out anyway."""


class FullError(BusyError):
    """It has as many jobs as it accepts now: this one was not accepted. Others may be, elsewhere on the cluster."""


class RefusedError(ClusterError):
    """The request itself is wrong: it will be refused again in the same way."""


class JobState(Enum):
    """What is known about a job, whatever its cluster calls it."""

    WAITING = "waiting"
    """It has no machines yet, or again none."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    """It has its machines, but is not allowed to run on them."""

    ENDING = "ending"
    """It is about to end, or to wait again: nothing can be done until that is known."""

    DONE = "done"
    FAILED = "failed"
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    """A person ended it."""

    INTERRUPTED = "interrupted"
    """Its machine was taken away or broke, and the cluster does not restart it: not the job's fault."""

    @property
    def is_live(self) -> bool:
        """The cluster itself takes care of it: it waits, runs, or is about to."""
        return self in _LIVE


_LIVE = frozenset((JobState.WAITING, JobState.RUNNING, JobState.SUSPENDED, JobState.ENDING))


@dataclass(frozen=True)
class ArrayTasks:
    """Which tasks of a step the elements of an array are: the element with index 3 is the task `first + 3`."""

    round: int
    """Which round of the step's tasks they belong to."""

    first: int


@dataclass(frozen=True)
class JobTag:
    """What a job says about itself, in one line of text that its cluster keeps for us."""

    run: str
    """The run that submitted it."""

    step: str
    """The step's key, `<name>-<hash>`."""

    place: str
    """Distinguishes the step's output path from that of the same step below another prefix."""

    tasks: ArrayTasks | None = None
    """For an array: which tasks of the step its elements are."""

    @classmethod
    def of(cls, run: str, step: str, output_path: str, tasks: ArrayTasks | None = None) -> JobTag:
        return cls(run, step, hashlib.md5(output_path.encode(), usedforsecurity=False).hexdigest()[:12], tasks)

    @classmethod
    def of_driver(cls, run: str) -> JobTag:
        """The tag of the job that drives a run, and is not one of its steps."""
        return cls(run, "", "")

    @property
    def is_driver(self) -> bool:
        return not self.step

    def __str__(self) -> str:
        parts = [_MARK, quote(self.run, safe=""), self.step, self.place]  # No key of a step holds a colon.
        if self.tasks is not None:
            parts += [str(self.tasks.round), str(self.tasks.first)]
        return ":".join(parts)

    @classmethod
    def parse(cls, text: str) -> JobTag | None:
        """The tag in a text, None if it is not one of ours."""
        mark, *parts = text.strip().split(":")
        match parts:
            case [run, step, place] if mark == _MARK:
                return cls(unquote(run), step, place)
            case [run, step, place, round, first] if mark == _MARK and round.isdecimal() and first.isdecimal():
                return cls(unquote(run), step, place, ArrayTasks(int(round), int(first)))
        return None

    def is_same_step(self, other: JobTag) -> bool:
        return (self.step, self.place) == (other.step, other.place)


@dataclass(frozen=True)
class ClusterJob:
    """A job, as its cluster last reported it."""

    cluster: str
    """The name of the cluster that has it, such as `slurm`."""

    id: str
    state: JobState
    word: str
    """The cluster's own word for the state, such as PENDING: for people."""

    reason: str = ""
    """Why it waits, in the cluster's own word."""

    nodes: str = ""
    """The machines that it has."""

    seconds: float | None = None
    """How long it has run; None if that is not known."""

    restarts: int = 0
    """How often the cluster itself has restarted it, as far as it says."""

    exit_code: int | None = None
    """The exit code of a job that ended on its own, if known."""

    tag: JobTag | None = None
    element: int | None = None
    """Its index, if it is an element of an array; its id is then `element_id` of the array's."""

    @property
    def is_live(self) -> bool:
        return self.state.is_live

    @property
    def array(self) -> str | None:
        """The id of the array that it is an element of."""
        return None if self.element is None else self.id.removesuffix(element_id("", self.element))

    @property
    def task(self) -> int | None:
        """Which task of its step it works on; None for a job that is the whole step."""
        tasks = None if self.tag is None else self.tag.tasks
        return None if tasks is None or self.element is None else tasks.first + self.element


def element_id(array: str, element: int) -> str:
    """The id of an element of an array."""
    return f"{array}_{element}"


def live_jobs_of(tag: JobTag, jobs: Iterable[ClusterJob]) -> list[ClusterJob]:
    """Jobs that work on the same step, or wait to."""
    return [job for job in jobs if job.is_live and job.tag is not None and job.tag.is_same_step(tag)]


STEP_VARIABLE = "MARIN_RULES_STEP_VARIABLE_"
"""Stands before the name of a variable that a step was given as `env_vars`."""

OWNER_VARIABLE = "MARIN_RULES_OWNER"
"""The user whose jobs a process submits under another user name: a driver on a cloud machine."""

JOB = "{job}"
"""Stands for the id of a job in the name of its log, since it is not known before the job is submitted."""


@dataclass(frozen=True)
class JobRequest:
    """A job to be submitted."""

    name: str
    """What people see in the cluster's own lists."""

    script: str
    """Lines of bash. The last one should take the place of the shell (`exec`), so that signals reach what it starts."""

    variables: Mapping[str, str]
    """All environment variables of the job except those that the cluster adds. They may hold secrets: they are written
    to no file or command line of ours. A name that begins with `STEP_VARIABLE` is one that the step itself was
    given."""

    folder: str
    """Where it starts."""

    log: str
    """The file that its own output goes to; `JOB` stands for its id. Each element of an array has its own."""

    resources: Mapping[str, Any]
    """What it asks for, by the names that users give it in profiles; see `Site.resources`."""

    tag: JobTag | None = None
    """None for a job that is not a single step: nobody looks for it later."""

    requeue: bool = True
    """Whether the cluster itself may restart it when its machine is lost."""

    excluded_nodes: tuple[str, ...] = field(default=())
    elements: Sequence[int] | None = None
    """The indices of an array's elements, in order; None for a job that is not an array. See `JobQueue.deal`."""

    at_once: int | None = None
    """How many elements may have machines at the same time; None leaves that to the cluster."""

    meeting_place: str = ""
    """A folder in the store of the run, for what the machines of the job tell each other where nothing else connects
    them. The cluster's folder decides what of it is used."""

    warning_seconds: int | None = None
    """How long before its time limit it gets SIGUSR1, if the cluster can do so; None for no warning."""


@dataclass(frozen=True)
class Extra:
    """Something that the worker of a step has created beside its job, and that costs money: a TPU slice."""

    id: str
    words: str
    """What it is and where, for people."""

    state: str
    """Its state, in the cluster's own word."""

    tag: JobTag | None = None
    """That of the job whose worker had it made."""


class JobQueue(Protocol):
    """Accepts jobs, and reports on them. Safe to use from several threads."""

    @property
    def cluster(self) -> str:
        """The name of the cluster, as it precedes a job's id in messages: `slurm job 7`."""

    @property
    def title(self) -> str:
        """What people call the cluster: `Slurm`."""

    @property
    def most_elements(self) -> int:
        """The indices of an array's elements are below this; 0 if it accepts no arrays. Raises `ClusterError`."""

    def deal(self, tasks: Sequence[int]) -> Sequence[Sequence[int]]:
        """Deal out tasks, in rising order, to as many arrays as they need: each can be submitted as one request.

        The elements of such a request are its tasks less the first of them. Raises `RefusedError` if no arrays are
        accepted, `ClusterError` if the cluster does not say how large they may be.
        """

    def submit(self, request: JobRequest) -> str:
        """Hand over a job; returns its id, or for an array that of the whole.

        Raises `RefusedError`, `BusyError`, or `ClusterError` for all else.
        """

    def jobs(self) -> Mapping[str, ClusterJob]:
        """All jobs of this user, by id, in one question; those that ended lately may be among them.

        In arrays with our tag each element counts as one, including those that wait for their turn.

        A queue that cannot list jobs which others have submitted returns none.
        """

    def look(self, ids: Sequence[str]) -> Mapping[str, ClusterJob]:
        """The states of these jobs, including those that the queue has forgotten but an accounting still knows.

        Unknown jobs are left out; jobs that were not asked for may be included.
        """

    def cancel(self, ids: Sequence[str]) -> None:
        """Request the end of jobs, elements of arrays or whole arrays; it may take a while.

        Those that have already ended are not an error.
        """

    def extras(self) -> Sequence[Extra]:
        """Everything that workers of this user have created beside their jobs, in any state. Raises `ClusterError`."""

    def remove(self, extra: Extra) -> None:
        """Delete such a thing; one that is gone is not an error."""

    def log_of(self, log: str, job: str) -> str:
        """Where a job's own output is, for a `JobRequest.log`: a file, or the address of a page."""

    def last_lines(self, job: str, count: int) -> Sequence[str]:
        """The last lines that a job or element has printed, if the cluster itself keeps them; none of one that prints
        to a file alone. Raises `ClusterError`."""

    def advice(self, job: ClusterJob) -> str | None:
        """What a person can do about a job that may wait forever; None if it is fine."""

    def cancel_command(self, ids: Sequence[str]) -> str:
        """What a person types to end these jobs."""

    def close(self) -> None:
        """No more queries. Jobs continue."""


class Site(Protocol):
    """What machines there are, and what they are called there."""

    @property
    def name(self) -> str: ...

    @property
    def environments(self) -> str | None:
        """Where Python environments of steps are kept: a folder that all machines see. None leaves it to the prefix."""

    @property
    def trust(self) -> tuple[str, ...]:
        """Whose environments are used there besides one's own: users, and groups as `@name`."""

    def resources(
        self, request: MachineRequest, step: str, attempt: int = 1, regions: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        """What the job of a step asks for, by the names that users give it in profiles.

        Memory and time grow with each attempt. `regions` are where the step's data is: its job goes to one of them, if
        the site has a choice of regions. Raises `SettingsError`, which names the step and what there is instead, if the
        site has no such machines.
        """

    def defaults(self) -> Mapping[str, Any]:
        """What a job that does not say where it should go asks for: that of a hand-written rule."""

    def driver_resources(self) -> Mapping[str, Any]:
        """What the job of a driver asks for: little, for a long time."""

    def describe(self, resources: Mapping[str, Any]) -> str:
        """Where a job with these resources goes, in a few words for people."""

    def price(self, resources: Mapping[str, Any]) -> Price | None:
        """What an hour of a job with these resources costs, which may be unknown; None if nobody is billed."""

    def check(self, request: JobRequest) -> None:
        """Refuse a job that the cluster would not accept, with the message of its submission: `RefusedError`. The
        cluster is not asked, so what only it can know is not seen."""


@dataclass(frozen=True)
class WantedMachines:
    """What a step of an experiment asks for."""

    step: str
    request: MachineRequest
    """For an array step, what each of its tasks asks for."""

    regions: Sequence[str] | None = None
    """Where its data is, if that is known."""


@dataclass(frozen=True)
class Cluster:
    """A kind of cluster: what `clusters.open` finds by its name."""

    name: str
    """The block of the cluster's file that is about it, and the word before a job's id: `slurm`. Two ways to the same
    cluster share it."""

    open_queue: Callable[[str | None], JobQueue]
    open_site: Callable[[str | None], Site]
    """Both by the name of a cluster's file; without a name the cluster is asked what it has. Raises `SettingsError`."""

    first_file: Callable[[], str]
    """A first version of the cluster's file, with what the cluster itself reports. Raises `ClusterError`."""

    is_here: Callable[[str | None], bool]
    """Whether it can be asked from this machine, given the name of the cluster's file that was chosen. Starts no
    process."""

    may_share_files: bool = True
    """Whether its machines may have the files of the machine that starts a run."""

    check: Callable[[str | None, str, Sequence[WantedMachines]], Iterable[Check]] = lambda name, prefix, wanted: ()
    """What its jobs will need, checked before the first run: for the cluster's file of this name, this prefix, and
    steps with these machines, if an experiment was named. Each is reported as soon as it is known. Changes nothing,
    except for a small object below the prefix that is written and deleted. Raises `SettingsError`."""
