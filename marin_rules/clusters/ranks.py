"""Ranks: the same program, started once on each machine of a step.

How that is done is a cluster's business: `srun`, processes of this machine (`local_ranks`). All of them promise:

- A rank knows from its environment who it is: `MARIN_PROCESS_RANK`, `_LOCAL_RANK` and `_LOCAL_COUNT` (see
  `marin_rules.process`), beside the variables of this process and those that `run` is given.
- When one of them fails, the others are asked to end (SIGTERM) and, after a while, killed.
- None of them outlives the process that called `run`.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from marin_rules.errors import MarinRulesError

FIRST_PORT, LAST_PORT = 61_000, 65_535
"""Linux gives the ports below these to whoever does not care which one he gets."""

_PORTS_TRIED = 64


class Ranks(Protocol):
    """A way to start ranks."""

    @property
    def count(self) -> int:
        """How many ranks there will be."""

    def coordinator_host(self) -> str:
        """The machine of rank 0, by a name or an address that the others can reach."""

    def run(
        self, command: Sequence[str], variables: Mapping[str, str], take: Callable[[int | None, bytes], None]
    ) -> str | None:
        """Run all ranks to their end; returns what went wrong, None when all exited with 0.

        Each line that a rank prints is passed to `take` with its number, those of whatever starts the ranks with None.
        """


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
