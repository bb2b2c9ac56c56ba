"""A host of a TPU slice finds out who it is from its metadata server, and fetches its secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from marin_rules.clusters.gcp.calls import Calls
from marin_rules.clusters.gcp.secrets import fetch_secret
from marin_rules.clusters.gcp.slice_host import (
    address_of,
    environment_of_slices,
    host_of_slice,
    read_tpu_env,
    slice_number_in,
)
from marin_rules.clusters.protocol import BusyError, ClusterError, RefusedError
from support.emulators.metadata_server import MetadataServer
from support.emulators.rest_server import RestServer

PLACE = "projects/emulated/secrets/hf/versions/1"
TPU_ENV = """ACCELERATOR_TYPE: 'v4-16'
NODE_ID: 'train-1-1'
ZONE: 'us-central2-b'
WORKER_ID: '1'
MEGASCALE_COORDINATOR_ADDRESS: '10.0.0.1:8080'
MEGASCALE_NUM_SLICES: '2'
MEGASCALE_SLICE_ID: '1'
"""


@pytest.fixture
def secret_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    server = RestServer()
    monkeypatch.setenv("GOOGLE_REST_EMULATOR_HOST", server.address)
    yield server
    server.close()
    assert server.objections == []


@pytest.fixture
def metadata(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> MetadataServer:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    metadata_server.attributes = {
        "agent-worker-number": "1",
        "worker-network-endpoints": "unknown:unknown:10.0.0.7,unknown:unknown:10.0.0.8",
        "tpu-env": TPU_ENV,
    }
    return metadata_server


def variables(**about: Any) -> dict[str, str]:
    known = {
        "id": "train-1",
        "project": "emulated",
        "zone": "us-central2-b",
        "slices": 1,
        "hosts": 2,
        "secrets": {},
        **about,
    }
    return {"MARIN_RULES_JOB_MEETING": "gs://bucket/meet", "MARIN_RULES_JOB_SLICE": json.dumps(known)}


@pytest.mark.usefixtures("metadata")
@pytest.mark.parametrize(("slices", "rank"), [(1, 1), (2, 3)])
def test_a_host_knows_its_rank_among_all_slices(slices: int, rank: int) -> None:
    host = host_of_slice(variables(slices=slices))
    assert host.rank == rank


@pytest.mark.parametrize("missing", ["agent-worker-number", "worker-network-endpoints"])
def test_a_machine_that_is_no_host_says_so(metadata: MetadataServer, missing: str) -> None:
    del metadata.attributes[missing]
    with pytest.raises(ClusterError, match=f"does not report {missing}: it is not a host of a TPU slice"):
        host_of_slice(variables())


@pytest.mark.parametrize(
    ("endpoints", "number", "address"),
    [
        ("unknown:unknown:10.0.0.7", 0, "10.0.0.7"),
        ("uid1:8470:10.0.0.7,uid2:8470:10.0.0.8", 1, "10.0.0.8"),
    ],
)
def test_its_own_address_is_among_those_of_its_slice(endpoints: str, number: int, address: str) -> None:
    assert address_of(endpoints, number) == address


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("WORKER_ID: '3'\n", {"WORKER_ID": "3"}),
        ('WORKER_ID: "3"', {"WORKER_ID": "3"}),
        ("A: ''\nnothing\nADDRESS: '10.0.0.1:8080'\n", {"A": "", "ADDRESS": "10.0.0.1:8080"}),
    ],
)
def test_tpu_env(text: str, found: dict[str, str]) -> None:
    assert read_tpu_env(text) == found


def test_libraries_are_told_of_the_other_slices() -> None:
    assert environment_of_slices(read_tpu_env(TPU_ENV)) == {
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1:8080",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
    }


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({"MEGASCALE_SLICE_ID": "1", "NODE_ID": "train-1-0"}, 1),
        ({"NODE_ID": "train-1-0"}, 0),
        ({"NODE_ID": "train-1-12"}, 12),
    ],
)
def test_which_of_several_slices_it_is_in(environment: dict[str, str], number: int) -> None:
    assert slice_number_in(environment, "train-1") == number


@pytest.mark.parametrize("environment", [{}, {"NODE_ID": "train-1"}, {"NODE_ID": "other-3"}, {"NODE_ID": "0"}])
def test_two_hosts_never_take_the_same_rank_for_want_of_a_word(environment: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match="does not say which slice of train-1"):
        slice_number_in(environment, "train-1")


# --- secrets


def test_a_host_fetches_its_secrets_before_anything_of_the_step_runs(
    metadata: MetadataServer, secret_manager: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "to be replaced")
    secret_manager.values[PLACE] = "hf_grün\n".encode()
    host_of_slice(variables(secrets={"HF_TOKEN": PLACE}))
    assert os.environ["HF_TOKEN"] == "hf_grün\n"


def test_a_busy_service_is_asked_again(secret_manager: RestServer) -> None:
    secret_manager.values[PLACE] = b"hf_abc"
    secret_manager.faults = [503]
    assert fetch_secret(PLACE) == "hf_abc"


@pytest.mark.parametrize(
    ("faults", "error", "words"),
    [
        ([], RefusedError, f"there is no secret {PLACE}: create it, or correct its place in gcp.secrets"),
        ([403], RefusedError, f"{PLACE}.* needs the role secretmanager.secretAccessor"),
        ([503], BusyError, f"{PLACE}.* asked for by the test"),
    ],
)
def test_a_refusal_says_what_to_do(
    secret_manager: RestServer, faults: list[int], error: type[ClusterError], words: str
) -> None:
    secret_manager.faults = faults
    with pytest.raises(error, match=words):
        fetch_secret(PLACE, Calls(retry_seconds=0.01))


def test_a_value_that_is_no_text_is_not_repeated(secret_manager: RestServer) -> None:
    secret_manager.values[PLACE] = b"hf_abc\xff"
    with pytest.raises(RefusedError, match="its value must be text") as refused:
        fetch_secret(PLACE)
    assert "hf_abc" not in str(refused.value)
