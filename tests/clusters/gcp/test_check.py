"""A project is looked at before its first run: real clients, against its services on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from marin_rules.checks import Check, Verdict
from marin_rules.clusters.gcp import check as checking
from marin_rules.clusters.gcp.calls import Calls
from marin_rules.clusters.gcp.check import check_site
from marin_rules.clusters.gcp.rest import Rest
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.protocol import BusyError, WantedMachines
from marin_rules.commands.main import main
from marin_rules.machines import MachineRequest
from marin_rules.resources import ResourceConfig
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.rest_server import RestServer
from support.emulators.tpu.emulator import TpuEmulator

JOBS = "jobs@emulated.iam.gserviceaccount.com"
SECRET = "projects/emulated/secrets/hf/versions/latest"
FILE = f"""
gcp:
  project: emulated
  regions: [us-central1]
  service_account: {JOBS}
  external_address: false
  subnetwork: regions/us-central1/subnetworks/lab
  gpus: {{L4: }}
  secrets: {{HF_TOKEN: {SECRET}, WANDB_API_KEY: }}
data:
  region_buckets: {{us-central1: bucket}}
"""
TPUS = """
gcp:
  project: emulated
  regions: [us-central1, us-central2, us-moon1]
  tpus:
    v4: {zones: [us-central2-b, us-moon1-a]}
    v6e: {zones: [us-central1-a], runtime_version: v2-alpha-tpuv6e}
"""


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    """A project that has everything."""
    services = ("batch", "compute", "logging", "storage", "secretmanager", "tpu")
    server = RestServer(
        enabled={f"{service}.googleapis.com" for service in services},
        permissions={
            *("batch.jobs.create", "batch.jobs.get", "batch.jobs.list", "batch.jobs.delete"),
            *("logging.logEntries.list", "iam.serviceAccounts.actAs"),
        },
        accounts={JOBS: False},
        bindings=[
            {"role": f"roles/{role}", "members": [f"serviceAccount:{JOBS}"]}
            for role in ("batch.agentReporter", "logging.logWriter", "secretmanager.secretAccessor")
        ],
        bucket_bindings={"bucket": [{"role": "roles/storage.objectAdmin", "members": [f"serviceAccount:{JOBS}"]}]},
        quotas={"us-central1": {"CPUS": 24, "N2_CPUS": 8, "NVIDIA_L4_GPUS": 1, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}},
        subnetworks={"emulated/us-central1/lab": True},
        secrets={SECRET: "ENABLED"},
    )
    monkeypatch.setenv("GOOGLE_REST_EMULATOR_HOST", server.address)
    monkeypatch.setattr(checking, "_CALLS", Calls(retry_seconds=0.5, call_seconds=5.0))
    yield server
    server.close()
    assert server.objections == [], "what Google's discovery documents say of the requests"


def found(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.what: check for check in checks}


def not_well(checks: dict[str, Check]) -> dict[str, Verdict]:
    return {what: check.verdict for what, check in checks.items() if check.verdict is not Verdict.OK}


@pytest.mark.usefixtures("gcs_here")
def test_a_project_that_is_ready(rest: RestServer, site: Callable[[str], GcpSite]) -> None:
    checks = found(check_site(site(FILE), "gs://bucket/results"))
    assert not_well(checks) == {}
    assert [what for what in checks if what.startswith("API")] == [
        f"API {name}.googleapis.com" for name in ("batch", "compute", "logging", "storage", "secretmanager")
    ]
    assert list(checks)[-5:] == [
        "region of bucket bucket",
        *(f"{doing} below gs://bucket/results" for doing in ("write", "create-if-absent", "read", "delete")),
    ]


def test_nothing_is_left_below_the_prefix(
    rest: RestServer, gcs_here: GcsEmulator, site: Callable[[str], GcpSite]
) -> None:
    list(check_site(site(FILE), "gs://bucket/results"))
    assert gcs_here.names("bucket") == []


@pytest.mark.usefixtures("gcs_here")
def test_what_is_missing_is_told_with_what_to_type(rest: RestServer, site: Callable[[str], GcpSite]) -> None:
    rest.enabled -= {"batch.googleapis.com"}
    rest.permissions -= {"batch.jobs.create", "iam.serviceAccounts.actAs"}
    rest.quotas["us-central1"] |= {"NVIDIA_L4_GPUS": 0}
    rest.subnetworks["emulated/us-central1/lab"] = False
    rest.secrets.clear()
    checks = found(check_site(site(FILE), "gs://nowhere/results"))
    missing = not_well(checks)
    assert set(missing.values()) == {Verdict.MISSING, Verdict.UNKNOWN}
    assert [what for what, verdict in missing.items() if verdict is Verdict.UNKNOWN] == [
        f"a role of {JOBS} for bucket nowhere",
        "region of bucket nowhere",
    ]
    assert [what for what, verdict in missing.items() if verdict is Verdict.MISSING] == [
        "API batch.googleapis.com",
        "role batch.jobsEditor for user:YOU",
        f"service account {JOBS}",
        "secret of HF_TOKEN",
        "quota of L4 GPUs in us-central1",
        "quota of Spot L4 GPUs in us-central1",
        "Private Google Access of subnetwork lab in us-central1",
        "write below gs://nowhere/results",
    ]
    assert checks["API batch.googleapis.com"].command == (
        "gcloud services enable batch.googleapis.com --project=emulated"
    )


@pytest.mark.usefixtures("gcs_here")
def test_what_cannot_be_asked_is_not_called_missing(rest: RestServer, site: Callable[[str], GcpSite]) -> None:
    denied = (403, "The caller does not have permission")
    rest.refusals = {
        "serviceusage.services.batchGet": denied,
        "cloudresourcemanager.projects.getIamPolicy": denied,
        "compute.regions.get": (503, "come back later"),
        "secretmanager.projects.secrets.versions.get": denied,
    }
    checks = found(check_site(site(FILE), "gs://bucket/results"))
    assert set(not_well(checks).values()) == {Verdict.UNKNOWN}
    assert "The caller does not have permission" in checks["API batch.googleapis.com"].detail
    assert "come back later" in checks["quota of L4 GPUs in us-central1"].detail
    assert checks[f"service account {JOBS}"].verdict is Verdict.OK


@pytest.mark.usefixtures("gcs_here")
def test_a_service_that_cannot_be_reached_is_named_in_a_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_REST_EMULATOR_HOST", "127.0.0.1:1")
    with (
        closing(Rest("emulated", Calls(retry_seconds=0.01))) as rest,
        pytest.raises(BusyError, match=r"^could not ask iam about v1/x: no answer \(Connection refused\)$"),
    ):
        rest.get("iam", "v1/x", [("names", "a long list")])


def test_the_account_of_a_file_that_names_none_is_the_project_s_own(
    rest: RestServer, site: Callable[[str], GcpSite]
) -> None:
    own = "123456789-compute@developer.gserviceaccount.com"
    rest.accounts[own] = False
    checks = found(check_site(site("gcp: {project: emulated, regions: [us-central1]}"), "gs://bucket"))
    assert checks[f"service account {own}"].verdict is Verdict.OK
    for what in (f"role batch.agentReporter for {own}", f"a role of {own} for bucket bucket"):
        assert checks[what].verdict is Verdict.UNKNOWN


@pytest.mark.usefixtures("gcs_here")
def test_the_zones_are_asked_for_their_tpus(
    rest: RestServer, tpu: TpuEmulator, site: Callable[[str], GcpSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_EMULATOR_HOST", tpu.address)
    checks = found(check_site(site(TPUS), "gs://bucket/results"))
    assert {what: check.verdict for what, check in checks.items() if what.startswith("TPU")} == {
        "TPU v4 in us-central2-b": Verdict.OK,
        "TPU runtime version tpu-ubuntu2204-base in us-central2-b": Verdict.OK,
        "TPU v4 in us-moon1-a": Verdict.UNKNOWN,
        "TPU runtime version tpu-ubuntu2204-base in us-moon1-a": Verdict.UNKNOWN,
        "TPU v6e in us-central1-a": Verdict.MISSING,
        "TPU runtime version v2-alpha-tpuv6e in us-central1-a": Verdict.MISSING,
    }
    assert checks["TPU v6e in us-central1-a"].detail == "the zone has v5litepod, v5p"
    assert checks["API tpu.googleapis.com"].verdict is Verdict.OK


@pytest.mark.usefixtures("gcs_here")
def test_steps_are_held_against_quotas(rest: RestServer, site: Callable[[str], GcpSite]) -> None:
    rest.quotas["us-central1"] |= {"PREEMPTIBLE_CPUS": 8}
    wanted = [
        wants("small", ResourceConfig.with_cpu(cpu=2, ram="2g")),
        wants("large", ResourceConfig.with_cpu(cpu=4, ram="4g", replicas=3)),
        wants("kept", ResourceConfig.with_cpu(cpu=16, ram="16g", preemptible=False)),
        wants("gpus", ResourceConfig.with_gpu("L4", count=4, cpu=1, ram="1g")),
        wants("a100", ResourceConfig.with_gpu("A100-80G", count=1, cpu=1, ram="1g")),
    ]
    checks = found(check_site(site(FILE), "gs://bucket/results", wanted))
    asked = {what: check for what, check in checks.items() if "step" in what}
    assert {what: (check.verdict, check.detail) for what, check in asked.items() if "quota" in what} == {
        "quota for step large in us-central1": (
            Verdict.MISSING,
            "it needs 12, and PREEMPTIBLE_CPUS is 8, of which 0 are in use",
        ),
        "quota for step kept in us-central1": (Verdict.OK, "it needs 16, and CPUS is 24, of which 0 are in use"),
        "quota for step gpus in us-central1": (
            Verdict.MISSING,
            "it needs 4, and NVIDIA_L4_GPUS is 1, of which 0 are in use",
        ),
    }
    refused = asked["machines for step a100"]
    assert refused.verdict is Verdict.MISSING
    assert "has GPUs L4 and no TPUs" in refused.detail


@pytest.mark.usefixtures("gcs_here")
def test_zones_are_asked_for_the_very_slices_of_steps(
    rest: RestServer, tpu: TpuEmulator, site: Callable[[str], GcpSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_EMULATOR_HOST", tpu.address)
    wanted = [wants(f"on-{size}", ResourceConfig.with_tpu(f"v4-{size}")) for size in (128, 2048)]
    text = "gcp: {project: emulated, regions: [us-central2], tpus: {v4: {zones: [us-central2-b]}}}"
    checks = found(check_site(site(text), "gs://bucket/results", wanted))
    assert checks["TPU v4-128 in us-central2-b"].verdict is Verdict.OK
    assert checks["TPU v4-2048 in us-central2-b"].verdict is Verdict.MISSING


def wants(step: str, resources: ResourceConfig) -> WantedMachines:
    return WantedMachines(step, MachineRequest.from_resources(resources))


def test_without_credentials_it_is_told_what_could_not_be_checked(
    site: Callable[[str], GcpSite],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("GOOGLE_REST_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    site(FILE)
    assert main(["cluster", "check", "--cluster", "lab", "--prefix", "gs://bucket/results"]) == 1
    first, login, *others, _, count = capsys.readouterr().out.splitlines()
    assert first.startswith("missing      credentials: there are no credentials for Google Cloud here")
    assert login.strip() == "gcloud auth application-default login"
    assert "not checked  API batch.googleapis.com: there are no credentials" in others
    assert count == "10 checks: 1 missing, 9 could not be made"
