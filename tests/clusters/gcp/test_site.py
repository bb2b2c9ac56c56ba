"""The `gcp:` block of cluster files, where requests go, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.gcp.resources import RESOURCE_NAMES
from marin_rules.clusters.gcp.site import GcpSite, read_site
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.resources import CpuConfig, GpuConfig, ResourceConfig, TpuConfig

FILE = """
gcp:
  project: emulated
  regions: [us-central1, europe-west4]
  network: global/networks/lab
  external_address: false
  service_account: jobs@emulated.iam.gserviceaccount.com
  image: lab/image:1
  runtime: 4h
  max_runtime: 1d
  tasks_at_once: 100
  gpus:
    L4:
    A100-80G: {zones: [us-central1-a, us-central1-c], reservation: lab, spot: false, runtime: 12h}
    H100-80G: {provisioning: FLEX_START, spot: false}
  secrets: {HF_TOKEN: projects/emulated/secrets/hf/versions/latest, WANDB_API_KEY: }
  labels: {team: speech}
"""

type Reader = Callable[[str], GcpSite]


def request(device: CpuConfig | GpuConfig | TpuConfig | None = None, **options: Any) -> MachineRequest:
    return MachineRequest.from_resources(ResourceConfig(device=device or CpuConfig(), **options))


def test_a_file_says_where_jobs_go_and_as_whom(site: Reader) -> None:
    found = site(FILE)
    assert (found.project, found.region, found.network) == ("emulated", "us-central1", "global/networks/lab")
    assert (found.service_account, found.image) == ("jobs@emulated.iam.gserviceaccount.com", "lab/image:1")
    assert not found.external_address
    assert found.secrets == {"HF_TOKEN": "projects/emulated/secrets/hf/versions/latest", "WANDB_API_KEY": None}
    assert found.labels == {"team": "speech"}


def test_a_file_that_says_nothing_of_google_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config" / "clusters").mkdir(parents=True)
    (tmp_path / "config" / "clusters" / "lab.yaml").write_text("slurm: {partition: cpu}\n")
    monkeypatch.chdir(tmp_path)
    assert read_site("lab") is None


@pytest.mark.parametrize(
    ("asked", "machine", "gpu", "provisioning", "zones"),
    [
        (request(cpu=4, ram="16g"), "e2-standard-4", None, "SPOT", None),
        (request(cpu=4, ram="16g", preemptible=False), "e2-standard-4", None, "STANDARD", None),
        (request(GpuConfig("L4", count=1), cpu=4, ram="16g"), "g2-standard-4", "nvidia-l4:1", "SPOT", None),
        (
            request(GpuConfig("A100-80G", count=2), cpu=4, ram="16g"),
            "a2-ultragpu-2g",
            "nvidia-a100-80gb:2",
            "STANDARD",
            "us-central1-a us-central1-c",
        ),
        (
            request(GpuConfig("A100", count=1), cpu=4, ram="16g"),
            "a2-ultragpu-1g",
            "nvidia-a100-80gb:1",
            "STANDARD",
            None,
        ),
        (
            request(GpuConfig("H100", count=8), cpu=4, ram="16g"),
            "a3-highgpu-8g",
            "nvidia-h100-80gb:8",
            "FLEX_START",
            None,
        ),
        (request(GpuConfig("auto", count=8), cpu=4, ram="16g"), "g2-standard-96", "nvidia-l4:8", "SPOT", None),
    ],
)
def test_a_request_becomes_resources(
    site: Reader, asked: MachineRequest, machine: str, gpu: str | None, provisioning: str, zones: str | None
) -> None:
    found = site(FILE).resources(asked, "train")
    assert (found["gcp_machine_type"], found["gcp_gpu"]) == (machine, gpu)
    assert found["gcp_provisioning"] == provisioning
    assert zones is None or found["gcp_zones"] == zones
    assert (found["gcp_region"], found["nodes"], found["tasks_at_once"]) == ("us-central1", 1, 100)
    # And nothing of TPUs.
    assert set(found) == {name for name in RESOURCE_NAMES if not name.startswith("gcp_tpu")}


def test_several_machines_that_run_a_step_together_are_nodes(site: Reader) -> None:
    found = site(FILE).resources(request(cpu=4, ram="16g", replicas=3), "train")
    assert (found["nodes"], found["gcp_machine_type"]) == (3, "e2-standard-4")
    assert site(FILE).describe(found) == "3 x e2-standard-4, Spot, us-central1, 16G, 4h"


def test_a_step_may_name_its_zone_and_its_image(site: Reader) -> None:
    found = site(FILE).resources(request(zone="europe-west4-b", image="lab/own:2"), "train")
    assert (found["gcp_region"], found["gcp_zones"], found["gcp_image"]) == (
        "europe-west4",
        "europe-west4-b",
        "lab/own:2",
    )


def test_only_what_is_not_spot_uses_a_reservation(site: Reader) -> None:
    text = FILE.replace("reservation: lab, spot: false", "reservation: lab")
    gpu = GpuConfig("A100-80G", count=1)
    assert site(text).resources(request(gpu), "s")["gcp_reservation"] is None
    assert site(text).resources(request(gpu, preemptible=False), "s")["gcp_reservation"] == "lab"


def test_alternatives_are_tried_in_order(site: Reader) -> None:
    asked = request(GpuConfig("V100", count=1), device_alternatives=["H100", "L4"], cpu=4, ram="16g")
    assert site(FILE).resources(asked, "s")["gcp_machine_type"] == "a3-highgpu-1g"


def test_memory_and_time_grow_with_each_attempt_up_to_what_there_is(site: Reader) -> None:
    found = site(FILE)
    grown = [found.resources(request(cpu=4, ram="16g"), "s", attempt) for attempt in (1, 2, 3, 7)]
    assert [one["mem_mb"] // 1024 for one in grown] == [16, 32, 48, 112]
    assert [one["runtime"] for one in grown] == [240, 480, 720, 1440]
    assert [one["gcp_machine_type"] for one in grown][:2] == ["e2-standard-4", "e2-highmem-4"]
    # No machine has twice as much: it gets all that the one has which it had.
    most = found.resources(request(cpu=4, ram="800g"), "s", 2)
    assert (most["gcp_machine_type"], most["mem_mb"]) == ("n2-highmem-128", 864 * 1024)


@pytest.mark.parametrize(
    ("data", "zone", "region"),
    [
        (None, None, "us-central1"),
        (["europe-west4"], None, "europe-west4"),
        (["us-central1", "europe-west4"], None, "us-central1"),
        (["eu"], None, "europe-west4"),
        (["nam4"], None, "us-central1"),
        (["us-east1+europe-west4"], None, "europe-west4"),
        (None, "europe-west4-a", "europe-west4"),
        (["europe-west4"], "europe-west4-a", "europe-west4"),
    ],
)
def test_a_job_runs_where_its_data_are(site: Reader, data: list[str] | None, zone: str | None, region: str) -> None:
    assert site(FILE).resources(request(zone=zone), "s", regions=data)["gcp_region"] == region


@pytest.mark.parametrize(
    ("data", "zone", "words"),
    [
        (["us-east1"], None, "the data of step 's' are in us-east1, but cluster lab runs jobs in us-central1, europe"),
        (None, "us-east1-b", "step 's' asks for zone us-east1-b, but cluster lab runs jobs in us-central1, europe"),
        (["eu"], "us-central1-a", "the data of step 's' are in eu and step 's' asks for zone us-central1-a, but"),
        (None, "moon", "step 's': 'moon' is not a zone"),
    ],
)
def test_a_job_that_cannot_run_near_its_data_is_refused(
    site: Reader, data: list[str] | None, zone: str | None, words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        site(FILE).resources(request(zone=zone), "s", regions=data)


def test_machines_that_there_are_in_another_region_alone_are_refused(site: Reader) -> None:
    with pytest.raises(SettingsError, match=r"step 's' would run in europe-west4.*us-central1-a, us-central1-c"):
        site(FILE).resources(request(GpuConfig("A100-80G", count=1)), "s", regions=["europe-west4"])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            request(GpuConfig("V100", count=1)),
            "asks for GPUs of type V100; cluster lab has GPUs L4, A100-80G, H100-80G",
        ),
        (request(GpuConfig("L4", count=16)), "g2-standard-96, has 8 GPUs, 96 cores and 384G"),
        (request(GpuConfig("L4", count=1), ram="1t"), "g2-standard-96"),
        (request(cpu=500), "n2-highmem-128, has 128 cores and 864G"),
        (request(TpuConfig("v4-8")), "asks for a TPU v4-8; cluster lab has GPUs L4, A100-80G, H100-80G and no TPUs"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(site: Reader, asked: MachineRequest, words: str) -> None:
    with pytest.raises(SettingsError, match=rf"step 'train' .*{words}"):
        site(FILE).resources(asked, "train")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gcp: {regions: [us-central1]}", "gcp lacks the key 'project'"),
        ("gcp: {project: p}", "gcp lacks the key 'regions'"),
        ("gcp: {project: p, regions: [moon]}", "a region, as in 'us-central1'"),
        ("gcp: {project: p, regions: [us-central1], zone: x}", "unknown key 'zone'"),
        ("gcp: {project: p, regions: [us-central1], zones: [us-east1-b]}", "us-east1-b are in none of gcp.regions"),
        ("gcp: {project: p, regions: [us-central1], machine_series: z9}", "'z9' is not known; write one of e2, n2"),
        ("gcp: {project: p, regions: [us-central1], gpus: {MI300: }}", "'MI300' is not a GPU of Compute Engine"),
        ("gcp: {project: p, regions: [us-central1], runtime: 20d}", "gcp.runtime: Batch ends every job after 14 days"),
        ("gcp: {project: p, regions: [us-central1], gpus: {L4: {max_runtime: 20d}}}", "gcp.gpus.L4.max_runtime: Batch"),
        (
            "gcp: {project: p, regions: [us-central1], tpus: {v4: {zones: [us-central1-a], runtime: 20d}}}",
            "gcp.tpus.v4.runtime: Batch",
        ),
        ("gcp: {project: p, regions: [us-central1], provisioning: SPOT}", "one of STANDARD, FLEX_START"),
        ("gcp: {project: p, regions: [us-central1], service_account: jobs}", "address of the account"),
        ("gcp: {project: p, regions: [us-central1], secrets: {HF_TOKEN: hf_abc}}", "a version of a secret"),
        ("gcp: {project: p, regions: [us-central1], labels: {marin-run: x}}", "has the key 'marin-run'; write a name"),
        ("gcp: {project: p, regions: [us-central1], labels: {Team: x}}", "has the key 'Team'; write a name of"),
        ("gcp: {project: My Project, regions: [us-central1]}", "the id of a project .not its name"),
        ("gcp: {project: p, regions: [us-central1], image: an image}", "the name of a container's image, as in"),
    ],
)
def test_a_wrong_file_is_refused_with_what_to_write(site: Reader, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        site(text)


def test_a_place_in_a_few_words(site: Reader) -> None:
    found = site(FILE)
    assert found.describe(found.resources(request(GpuConfig("L4", count=1), cpu=4, ram="16g"), "s")) == (
        "g2-standard-4, 1 nvidia-l4, Spot, us-central1, 16G, 4h"
    )
    assert found.describe(found.defaults()) == "Batch's own choice of machine, us-central1, 4h"
