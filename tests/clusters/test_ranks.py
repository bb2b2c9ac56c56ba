"""The address at which ranks meet."""

import socket
from collections.abc import Iterator

import pytest

from marin_rules.clusters import ranks
from marin_rules.clusters.ranks import (
    FIRST_PORT,
    LAST_PORT,
    candidate_ports,
    coordinator_address,
    is_free,
    join_address,
    split_address,
)
from marin_rules.errors import MarinRulesError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of this machine that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_somebody_listens_on_is_not_free(taken: int) -> None:
    assert not is_free(taken)


def test_a_port_is_free_again_when_its_listener_is_gone() -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        server.accept()[0].close()  # Closed by the server first: the port stays in TIME_WAIT.
        client.close()
    assert is_free(port)


def test_the_first_free_port_is_taken(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "candidate_ports", lambda purpose: [taken, 0])  # Port 0 can always be bound.
    assert coordinator_address("gpu1", "model-1a2b3c") == "gpu1:0"


def test_no_free_port_is_told_with_what_to_do(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "candidate_ports", lambda purpose: [taken])
    with pytest.raises(MarinRulesError, match=r"no free port for the ranks of model-1a2b3c.* of gpu1,.*ss -tlnp"):
        coordinator_address("gpu1", "model-1a2b3c")


def test_jobs_that_share_a_machine_begin_at_ports_of_their_own() -> None:
    purposes = [f"model-1a2b3c in job {number}, restart 0" for number in range(50)]
    firsts = [next(iter(candidate_ports(purpose))) for purpose in purposes]
    assert len(set(firsts)) >= 48
    for purpose in purposes:
        ports = list(candidate_ports(purpose))
        assert len(set(ports)) == len(ports) == 64
        assert all(FIRST_PORT <= port <= LAST_PORT for port in ports)
        assert ports == list(candidate_ports(purpose))


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [("gpu1", 61000, "gpu1:61000"), ("10.0.0.1", 1, "10.0.0.1:1"), ("fe80::1", 65535, "[fe80::1]:65535")],
)
def test_an_address_is_a_host_and_a_port(host: str, port: int, address: str) -> None:
    assert join_address(host, port) == address
    assert split_address(address) == (host, port)
