"""Ports on loopback that stay free for the daemons, also between their stop and their next start."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

# Below the range from which systems choose ports by themselves, and from which any connection could get one.
_RANGE = range(10_000, 32_000)


def free_ports() -> Iterator[int]:
    """Different ports, on none of which anybody listens."""
    for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
