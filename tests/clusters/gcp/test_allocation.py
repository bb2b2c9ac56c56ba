"""What each machine of a job on Google Cloud is there for: a worker, another machine of its job, a host of a slice."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from marin_rules.clusters.gcp.allocation import allocation_from
from marin_rules.clusters.gcp.host import Host
from marin_rules.clusters.gcp.host_ranks import HostRanks
from marin_rules.clusters.gcp.meeting import Pace
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.slice_order import SliceOrder
from marin_rules.machines import MachineRequest
from support.emulators.metadata_server import MetadataServer

REQUEST = MachineRequest(cpu=1, memory_mb=1024, disk_mb=1024)
ALONE = {"MARIN_RULES_JOB_ID": "train-1", "MARIN_RULES_JOB_NODE": "vm-7", "BATCH_TASK_INDEX": "0"}
SEVERAL = {**ALONE, "MARIN_RULES_JOB_MACHINES": "3", "MARIN_RULES_JOB_MEETING": "gs://bucket/meet"}
ORDER = SliceOrder(
    "train", "train place", "emulated", [Offer("v4-16", "us-central2-b", "base")], slices=2, hosts=2, place="gs://b/m"
)
SLICES = {**ALONE, "MARIN_RULES_JOB_SLICES": ORDER.to_json(), "MARIN_RULES_JOB_SCRIPT": "exec worker"}


def ranks_of(variables: dict[str, str]) -> HostRanks | None:
    found = allocation_from(variables)
    assert found is not None
    return found.ranks(REQUEST)


def machine_of(variables: dict[str, str]) -> Host | None:
    found = allocation_from(variables)
    assert found is not None
    return found.other_machine()


def test_the_only_machine_of_a_job_runs_its_worker_and_no_ranks() -> None:
    assert ranks_of(ALONE) is None
    assert machine_of(ALONE) is None
    found = allocation_from(ALONE)
    assert found is not None
    assert found.to_fields() == {"job_id": "train-1", "nodes": "vm-7", "restarts": 0}


def test_the_first_of_several_machines_runs_the_worker_and_has_ranks_on_all() -> None:
    ranks = ranks_of(SEVERAL)
    assert ranks is not None
    assert ranks.count == 3
    assert machine_of(SEVERAL) is None
    found = allocation_from(SEVERAL)
    assert found is not None
    assert (found.node_count, found.to_fields()["node_count"]) == (3, 3)


@pytest.mark.parametrize(
    ("own", "rank"),
    [
        ({"BATCH_TASK_INDEX": "2"}, 2),
        # What the worker starts beside itself, for the first rank.
        ({"BATCH_TASK_INDEX": "0", "MARIN_RULES_JOB_HOST": "0"}, 0),
    ],
)
def test_the_others_are_there_for_a_rank(own: dict[str, str], rank: int) -> None:
    machine = machine_of({**SEVERAL, **own})
    assert machine is not None
    assert machine.rank == rank


def test_a_worker_with_an_order_has_ranks_on_the_hosts_of_its_slices(
    metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_EMULATOR_HOST", "127.0.0.1:1")  # Nobody is asked yet.
    ranks = ranks_of(SLICES)
    assert ranks is not None
    assert ranks.count == 4
    assert machine_of(SLICES) is None
    assert metadata_server.calls == 0


def test_a_host_of_a_slice_is_there_for_its_rank(
    metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    metadata_server.attributes = {
        "agent-worker-number": "1",
        "worker-network-endpoints": "unknown:unknown:10.0.0.7,unknown:unknown:10.0.0.8",
        "tpu-env": "NODE_ID: 'train-1-1'\n",
    }
    about = {"id": "train-1", "project": "emulated", "zone": "us-central2-b", "slices": 2, "hosts": 2, "secrets": {}}
    variables = {
        "MARIN_RULES_JOB_ID": "train-1",
        "MARIN_RULES_JOB_MEETING": "gs://bucket/meet",
        "MARIN_RULES_JOB_SLICE": json.dumps(about),
    }
    machine = machine_of(variables)
    assert machine is not None
    assert machine.rank == 3
    assert ranks_of(variables) is None


def test_the_pace_of_tests_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_HOSTS_PACE", "0.5")
    assert asdict(Pace.current()) == {name: seconds / 2 for name, seconds in asdict(Pace()).items()}
    monkeypatch.delenv("MARIN_HOSTS_PACE")
    assert Pace.current() == Pace()
