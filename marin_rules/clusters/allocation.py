"""Which job of a cluster this process is part of, and whether that job is the step's own.

Each cluster has a module `allocation` in its folder, which reads what the cluster tells a job about itself: a function
`allocation_from(variables)`, and the `JOB_VARIABLE` that names the job to its processes. A caller uses
`current_allocation()` and need not know which clusters there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Any, Protocol

from marin_rules.clusters.open import CLUSTER_NAMES
from marin_rules.clusters.ranks import Ranks
from marin_rules.machines import MachineRequest

DRIVER_JOB_VARIABLE = "MARIN_RULES_DRIVER_JOB"
"""The job that the driver itself is part of, as `VARIABLE=ID` for each kind of cluster, with no id for those it is not
a job of: a step that sees the same runs beside the driver, and has no job of its own."""


class EndCause(Enum):
    """Why a job was asked to end, as far as its cluster says."""

    CANCELLED = "cancelled"
    """A person ended it."""

    STARTS_AGAIN = "starts again"
    """The cluster takes its machine away, and has already requeued it."""

    TIME_LIMIT = "time limit"
    SIGNAL = "signal"
    """It is not ending at all: the signal is a warning, or came from elsewhere."""

    UNKNOWN = "unknown"
    """The cluster does not answer."""


class OtherMachine(Protocol):
    """A machine that was started for the ranks of a step, with the same command as the machine of its worker."""

    def serve(self, start: Sequence[str]) -> int:
        """Run ranks when the worker asks for them, until it no longer needs this machine; returns an exit code.

        `start` are the words that start a rank here; see `RankCall`.
        """

    def stop(self) -> None:
        """End the rank, and then `serve`. To be called from a signal handler."""


class Allocation(Protocol):
    """A job, as its cluster describes it to the processes in it."""

    @property
    def cluster(self) -> str:
        """The kind of cluster; info files keep the facts under this name."""

    @property
    def job_id(self) -> str:
        """The same as `ClusterJob.id`."""

    @property
    def element(self) -> int | None:
        """The index of this element, if the job is an array."""

    @property
    def nodes(self) -> str:
        """The machines of the job, as the cluster writes them."""

    @property
    def node_count(self) -> int: ...

    @property
    def restarts(self) -> int:
        """How often the cluster itself has restarted the job."""

    @property
    def cpus(self) -> int | None:
        """How many cores a process of the job has on its machine; None if the cluster does not say."""

    @property
    def deadline(self) -> float | None:
        """When the cluster will end the job (seconds since 1970); None if it does not say."""

    def ranks(self, request: MachineRequest) -> Ranks | None:
        """The way to start one process on each machine that the job has, or makes, for a step which asks for these
        machines; None for a step whose only process runs right here.

        Called while all variables that the job was given are there.
        """

    def other_machine(self) -> OtherMachine | None:
        """This machine, if it exists only for ranks and does not run the job's worker."""

    def why_told_to_end(self) -> EndCause:
        """Asks the cluster. To be called in the job, after it got a signal."""

    @property
    def may_start_again(self) -> bool:
        """Whether the cluster itself restarts a job whose machine is taken away."""

    def start_again(self) -> None:
        """Make the cluster end this job and requeue it, under the same id; a `ClusterError` if it does not."""

    def to_fields(self) -> dict[str, Any]:
        """The job as recorded in info files."""


def current_allocation(variables: Mapping[str, str] | None = None) -> Allocation | None:
    """The job that this process is part of; None outside of all clusters."""
    given = os.environ if variables is None else variables
    found = (module.allocation_from(given) for module in _modules())
    return next((allocation for allocation in found if allocation is not None), None)


def own_allocation(variables: Mapping[str, str] | None = None) -> Allocation | None:
    """The job of this step alone; None on the machine of the driver, even if that is in a job itself."""
    given = os.environ if variables is None else variables
    is_drivers = given.get(DRIVER_JOB_VARIABLE) == driver_job(given)
    return None if is_drivers else current_allocation(given)


def driver_job(variables: Mapping[str, str] | None = None) -> str:
    """The value of `DRIVER_JOB_VARIABLE` for a driver in this process."""
    given = os.environ if variables is None else variables
    return " ".join(f"{module.JOB_VARIABLE}={given.get(module.JOB_VARIABLE, '')}" for module in _modules())


def _modules() -> Iterator[Any]:
    return (import_module(f"marin_rules.clusters.{name}.allocation") for name in CLUSTER_NAMES)
