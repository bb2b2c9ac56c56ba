"""What facts about a project mean for a first run: tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from marin_rules.checks import Unanswered, Verdict
from marin_rules.clusters.gcp.readiness import (
    CALLER_ROLES,
    Quota,
    about_account,
    about_account_role,
    about_bucket_role,
    about_private_access,
    about_quota,
    about_role,
    about_secret,
    about_service,
    about_tpu_runtime,
    about_tpu_type,
)

OK, MISSING, UNKNOWN = Verdict.OK, Verdict.MISSING, Verdict.UNKNOWN
SILENT = Unanswered("no answer")
ANN, JOBS = "user:ann@lab.org", "jobs@lab.iam.gserviceaccount.com"
OTHERS = "jobs@elsewhere.iam.gserviceaccount.com"
PLACE = "projects/lab/secrets/hf/versions/3"


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ({"tpu.googleapis.com": "ENABLED"}, OK),
        ({"tpu.googleapis.com": "DISABLED"}, MISSING),
        ({}, MISSING),
        (SILENT, UNKNOWN),
    ],
)
def test_services(states: Mapping[str, str] | Unanswered, verdict: Verdict) -> None:
    check = about_service("lab", "tpu.googleapis.com", states)
    assert check.verdict is verdict
    assert verdict is OK or check.command == "gcloud services enable tpu.googleapis.com --project=lab"


@pytest.mark.parametrize("role", CALLER_ROLES)
def test_a_role_is_there_if_all_of_its_permissions_are(role: str) -> None:
    *most, last = CALLER_ROLES[role]
    assert about_role("lab", ANN, role, {*most, last}).verdict is OK
    check = about_role("lab", ANN, role, set(most))
    assert (check.verdict, check.detail) == (MISSING, f"without {last}")
    assert check.command == f"gcloud projects add-iam-policy-binding lab --member={ANN} --role=roles/{role}"
    assert about_role("lab", ANN, role, SILENT).verdict is UNKNOWN


@pytest.mark.parametrize(
    ("email", "is_disabled", "may_act", "verdict", "command"),
    [
        (JOBS, False, True, OK, ""),
        (JOBS, None, True, MISSING, "gcloud iam service-accounts create jobs --project=lab"),
        (OTHERS, None, True, MISSING, ""),
        (JOBS, True, True, MISSING, f"gcloud iam service-accounts enable {JOBS}"),
        (JOBS, False, False, MISSING, f"gcloud iam service-accounts add-iam-policy-binding {JOBS} --member={ANN}"
         " --role=roles/iam.serviceAccountUser --project=lab"),
        (JOBS, SILENT, True, OK, ""),
        (JOBS, SILENT, SILENT, UNKNOWN, None),
        (JOBS, False, SILENT, UNKNOWN, None),
    ],
)  # fmt: skip
def test_the_account_of_the_jobs(
    email: str,
    is_disabled: bool | Unanswered | None,
    may_act: bool | Unanswered,
    verdict: Verdict,
    command: str | None,
) -> None:
    check = about_account("lab", ANN, email, is_disabled, may_act)
    assert check.verdict is verdict
    assert command is None or check.command == command


@pytest.mark.parametrize(
    ("bindings", "verdict"),
    [
        ({"roles/logging.logWriter": [f"serviceAccount:{JOBS}"]}, OK),
        ({"roles/logging.logWriter": [f"serviceAccount:{OTHERS}"]}, UNKNOWN),
        ({"roles/owner": [f"serviceAccount:{JOBS}"]}, UNKNOWN),
        ({}, UNKNOWN),
        (SILENT, UNKNOWN),
    ],
)
def test_a_role_that_the_project_does_not_grant_may_come_from_elsewhere(
    bindings: Mapping[str, Sequence[str]] | Unanswered, verdict: Verdict
) -> None:
    assert about_account_role("lab", JOBS, "logging.logWriter", bindings).verdict is verdict


@pytest.mark.parametrize(
    ("bindings", "verdict"),
    [
        ({"roles/storage.objectUser": [f"serviceAccount:{JOBS}"]}, OK),
        ({"roles/storage.admin": [f"serviceAccount:{JOBS}"]}, OK),
        ({"roles/storage.objectViewer": [f"serviceAccount:{JOBS}"]}, UNKNOWN),
        ({"roles/storage.objectUser": [f"serviceAccount:{OTHERS}"]}, UNKNOWN),
        (SILENT, UNKNOWN),
    ],
)
def test_the_jobs_write_to_the_bucket(bindings: Mapping[str, Sequence[str]] | Unanswered, verdict: Verdict) -> None:
    check = about_bucket_role(JOBS, "bucket", bindings)
    assert check.verdict is verdict
    assert check.command in ("", (
        f"gcloud storage buckets add-iam-policy-binding gs://bucket --member=serviceAccount:{JOBS}"
        " --role=roles/storage.objectUser"
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("quota", "spot", "quotas", "verdict", "detail"),
    [
        ("A", False, {"A": Quota(8, 3)}, OK, "A is 8, of which 3 are in use"),
        ("A", False, {"A": Quota(0)}, MISSING, "A is 0"),
        ("A", True, {"A": Quota(0), "PREEMPTIBLE_A": Quota(4)}, OK, "PREEMPTIBLE_A is 4, of which 0 are in use"),
        ("A", True, {"A": Quota(2), "PREEMPTIBLE_A": Quota(0)}, OK, "A is 2, of which 0 are in use"),
        ("A", True, {"A": Quota(0), "PREEMPTIBLE_A": Quota(0)}, MISSING, "A is 0"),
        ("A", True, {"PREEMPTIBLE_A": Quota(4)}, OK, "PREEMPTIBLE_A is 4, of which 0 are in use"),
        ("A", True, {"PREEMPTIBLE_A": Quota(0)}, UNKNOWN, "Compute Engine does not list it with the region"),
        (
            "N2_CPUS",
            True,
            {"N2_CPUS": Quota(0), "PREEMPTIBLE_CPUS": Quota(9)},
            OK,
            "PREEMPTIBLE_CPUS is 9, of which 0 are in use",
        ),
        ("A", False, {"B": Quota(8)}, UNKNOWN, "Compute Engine does not list it with the region"),
        (None, False, {"A": Quota(8)}, UNKNOWN, "Compute Engine does not list it with the region"),
        ("A", False, SILENT, UNKNOWN, "no answer"),
    ],
)
def test_quotas(
    quota: str | None, spot: bool, quotas: Mapping[str, Quota] | Unanswered, verdict: Verdict, detail: str
) -> None:
    check = about_quota("lab", "us-east1", "L4 GPUs", quota, quotas, spot=spot)
    assert (check.verdict, check.detail) == (verdict, detail)
    assert verdict is OK or check.command == "https://console.cloud.google.com/iam-admin/quotas?project=lab"


@pytest.mark.parametrize(("has_access", "verdict"), [(True, OK), (False, MISSING), (None, MISSING), (SILENT, UNKNOWN)])
def test_machines_without_an_address_need_a_way_to_the_bucket(
    has_access: bool | Unanswered | None, verdict: Verdict
) -> None:
    assert about_private_access("lab", "us-east1", "inner", has_access).verdict is verdict


@pytest.mark.parametrize(
    ("state", "verdict"), [("ENABLED", OK), ("DISABLED", MISSING), (None, MISSING), (SILENT, UNKNOWN)]
)
def test_secrets(state: str | Unanswered | None, verdict: Verdict) -> None:
    assert about_secret("HF_TOKEN", PLACE, state).verdict is verdict


@pytest.mark.parametrize(
    ("wanted", "offered", "verdict", "detail"),
    [
        ("v4-128", ["v4-8", "v4-128"], OK, ""),
        ("v4", ["v4-8"], OK, ""),
        ("v5p", ["v5litepod-8", "v6e-8"], MISSING, "the zone has v5litepod, v6e"),
        ("v4", [], MISSING, "the zone has no TPUs"),
        ("v4", SILENT, UNKNOWN, "no answer"),
    ],
)
def test_tpus_of_a_zone(wanted: str, offered: Sequence[str] | Unanswered, verdict: Verdict, detail: str) -> None:
    check = about_tpu_type("us-east1-d", wanted, offered)
    assert (check.verdict, check.detail) == (verdict, detail)


@pytest.mark.parametrize(
    ("wanted", "offered", "verdict", "detail"),
    [
        ("v2-alpha-tpuv6e", ["v2-alpha-tpuv6e"], OK, ""),
        ("v2-alpha-tpuv7", ["tpu-vm-base", "v2-alpha-tpuv6e"], MISSING, "similar ones are v2-alpha-tpuv6e"),
        ("nothing", ["tpu-vm-base"], MISSING, "it is not offered"),
        ("v2-alpha-tpuv6e", SILENT, UNKNOWN, "no answer"),
    ],
)
def test_runtime_versions_of_a_zone(
    wanted: str, offered: Sequence[str] | Unanswered, verdict: Verdict, detail: str
) -> None:
    check = about_tpu_runtime("us-east1-d", wanted, offered)
    assert (check.verdict, check.detail) == (verdict, detail)
