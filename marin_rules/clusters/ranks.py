"""Ranks: the same program, started once on each machine of a step.

How that is done is up to the cluster: `srun`, processes of this machine (`local_ranks`), the hosts of a TPU slice that
the step's worker has created. All of them promise:

- A rank knows from its environment who it is and where to meet the others (see `marin_rules.process`), beside the
  variables that the process which called `run` has.
- When one of them fails, the others are asked to end (SIGTERM) and, after a while, killed.
- None of them outlives the process that called `run` for long.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from marin_rules.errors import MarinRulesError
from marin_rules.process import ThisProcess

FIRST_PORT, LAST_PORT = 61_000, 65_535
"""Linux gives the ports below these to programs that accept any port."""

_PORTS_TRIED = 64


type Take = Callable[[int | None, bytes], None]
"""Takes a line that a rank has printed, with its number; None for the lines of whatever starts the ranks."""


@dataclass(frozen=True)
class RankCall:
    """What each rank is to run."""

    start: Sequence[str]
    """The words that start it on the machine of the caller, or on one that was set up like it."""

    report: str
    """Where it leaves its report: a folder that all machines see, its last argument."""

    purpose: str = ""
    """Distinguishes this call from all others that may run at the same time."""

    stopped: Callable[[], bool] = lambda: False
    """Whether the caller was told to stop: then the ranks are stopped, too, unless the signal reaches them anyway."""

    @property
    def words(self) -> list[str]:
        return [*self.start, REPORT_OPTION, self.report]


REPORT_OPTION = "--report"


@dataclass(frozen=True)
class RanksEnd:
    """How the ranks ended."""

    problem: str | None = None
    """What went wrong; None when all exited with 0."""

    first: int | None = None
    """The rank that failed first, if that is known."""

    lost_machines: bool = False
    """They were not at fault: machines were taken away or broke. They may be started again."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """What has become known about their machines, for the step's info file."""


class Ranks(Protocol):
    """A way to start ranks."""

    @property
    def count(self) -> int:
        """How many ranks there will be."""

    def run(self, call: RankCall, take: Take) -> RanksEnd:
        """Run all ranks to their end. May be called again after machines were lost."""

    def close(self) -> None:
        """Give back machines that were created for the ranks."""


def variables_for(count: int, host: str, purpose: str) -> dict[str, str]:
    """What all ranks are told, if rank 0 is on this machine, which the others know as `host`."""
    return ThisProcess(count=count, coordinator_address=coordinator_address(host, purpose)).to_variables()


def coordinator_address(host: str, purpose: str) -> str:
    """An address at which the ranks can meet, if rank 0 is on this machine.

    The first port that is tried depends on `purpose`, so that the steps which share a machine do not all want the same
    one between the moment when it is found free and that when the step itself listens.
    """
    for port in candidate_ports(purpose):
        if is_free(port):
            return join_address(host, port)
    raise MarinRulesError(
        f"found no free port for the ranks of {purpose} to meet at: of the ports {FIRST_PORT} to {LAST_PORT} of {host},"
        f" {_PORTS_TRIED} were tried. See with `ss -tlnp` what listens there, and run the step again."
    )


def candidate_ports(purpose: str) -> Iterable[int]:
    """The ports to try for a purpose, in order."""
    size = LAST_PORT - FIRST_PORT + 1
    first = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "big") % size
    return (FIRST_PORT + (first + number) % size for number in range(_PORTS_TRIED))


def is_free(port: int) -> bool:
    """Whether a process of this machine could listen on a port, on all its addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # What has just been closed is free.
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of an address."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
