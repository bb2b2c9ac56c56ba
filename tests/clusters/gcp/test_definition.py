"""Definitions of Batch jobs, judged by Google's own discovery document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from marin_rules.clusters.gcp.allocation import allocation_from
from marin_rules.clusters.gcp.definition import check_request, job_definition
from marin_rules.clusters.gcp.meeting import Meeting
from marin_rules.clusters.gcp.names import tag_of
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.gcp.slice_order import SliceOrder
from marin_rules.clusters.gcp.tpu_supply import TpuSupply
from marin_rules.clusters.protocol import STEP_VARIABLE, ArrayTasks, JobRequest, JobTag, RefusedError
from support.emulators.rpc.judge import objections

TAG = JobTag.of("run-1", "train-0123ab", "gs://bucket/train-0123ab")
RESOURCES = {
    "mem_mb": 16384,
    "disk_mb": 10240,
    "runtime": 90,
    "cpus_per_task": 4,
    "gcp_region": "us-central1",
    "gcp_machine_type": "e2-standard-4",
    "gcp_provisioning": "SPOT",
}
REQUEST = JobRequest(
    name="train",
    script='exec python -c "print(1)"',
    variables={"MARIN_PREFIX": "gs://bucket"},
    folder="/tmp/it's here",
    log="/tmp/{job}.log",
    resources=RESOURCES,
    tag=TAG,
)
SITE = GcpSite("lab", "emulated", ("us-central1",))


def define(request: JobRequest = REQUEST, site: GcpSite = SITE) -> dict[str, Any]:
    """A definition to which Google's own document does not object."""
    found = job_definition(request, site, "train-1", "ann")
    assert objections("batch.v1", "Job", found) == []
    return found


def policy(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definition["allocationPolicy"]["instances"][0]["policy"]
    return found


def group(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definition["taskGroups"][0]
    return found


def environment(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = group(definition)["taskSpec"]["environment"]
    return found


def test_a_plain_job() -> None:
    found = define()
    assert policy(found) == {
        "machineType": "e2-standard-4",
        "provisioningModel": "SPOT",
        "bootDisk": {"sizeGb": "40", "type": "pd-balanced"},
    }
    assert found["allocationPolicy"]["location"] == {"allowedLocations": ["regions/us-central1"]}
    spec = group(found)["taskSpec"]
    assert (spec["maxRunDuration"], spec["maxRetryCount"]) == ("5400s", 0)
    assert spec["computeResource"] == {"cpuMilli": "4000", "memoryMib": "16384"}
    assert (group(found)["taskCount"], group(found)["taskCountPerNode"]) == ("1", "1")
    assert found["logsPolicy"] == {"destination": "CLOUD_LOGGING"}
    assert tag_of(found["labels"]) == TAG
    assert {key: found["labels"][f"marin-{key}"] for key in ("owner", "run", "job")} == {
        "owner": "ann",
        "run": "run-1",
        "job": "train-1",
    }
    assert found["allocationPolicy"]["labels"] == found["labels"]


def test_it_runs_in_a_container_if_the_file_names_one() -> None:
    [runnable] = group(define(site=replace(SITE, image="lab/image:1")))["taskSpec"]["runnables"]
    container = runnable["container"]
    assert (container["imageUri"], container["entrypoint"], container["commands"][0]) == (
        "lab/image:1",
        "/bin/bash",
        "-c",
    )
    assert container["commands"][1].endswith(REQUEST.script)


def test_networks_accounts_images_and_labels_are_those_of_the_file() -> None:
    found = define(
        site=replace(
            SITE,
            network="global/networks/lab",
            external_address=False,
            service_account="jobs@emulated.iam.gserviceaccount.com",
            boot_image="projects/lab/global/images/one",
            labels={"team": "speech"},
        )
    )
    allocation = found["allocationPolicy"]
    assert allocation["network"] == {
        "networkInterfaces": [{"network": "global/networks/lab", "noExternalIpAddress": True}]
    }
    assert allocation["serviceAccount"] == {"email": "jobs@emulated.iam.gserviceaccount.com"}
    assert policy(found)["bootDisk"]["image"] == "projects/lab/global/images/one"
    assert found["labels"]["team"] == "speech"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            {"gcp_machine_type": "n4-standard-4", "gcp_gpu": None},
            {"bootDisk": {"sizeGb": "40", "type": "hyperdisk-balanced"}},
        ),
        (
            {"gcp_machine_type": "n1-standard-4", "gcp_gpu": "nvidia-tesla-t4:2"},
            {"accelerators": [{"type": "nvidia-tesla-t4", "count": "2"}]},
        ),
        (
            {"gcp_provisioning": "RESERVATION_BOUND", "gcp_reservation": "lab"},
            {"provisioningModel": "RESERVATION_BOUND", "reservation": "lab"},
        ),
        ({"gcp_provisioning": None}, {"provisioningModel": "STANDARD"}),
    ],
)
def test_resources_of_a_profile_win(resources: dict[str, Any], expected: dict[str, Any]) -> None:
    found = define(replace(REQUEST, resources={**RESOURCES, **resources}))
    assert expected.items() <= policy(found).items()
    wants_drivers = bool(resources.get("gcp_gpu"))
    assert found["allocationPolicy"]["instances"][0].get("installGpuDrivers", False) == wants_drivers


def test_zones_are_those_of_the_job() -> None:
    found = define(replace(REQUEST, resources={**RESOURCES, "gcp_zones": "us-central1-a us-central1-c"}))
    assert found["allocationPolicy"]["location"] == {"allowedLocations": ["zones/us-central1-a", "zones/us-central1-c"]}


def test_the_tasks_of_an_array_are_its_elements() -> None:
    tag = replace(TAG, tasks=ArrayTasks(1, 0))
    found = group(define(replace(REQUEST, tag=tag, elements=range(64), at_once=8)))
    assert (found["taskCount"], found["parallelism"]) == ("64", "8")
    assert "taskEnvironments" not in found
    sparse = group(define(replace(REQUEST, tag=tag, elements=[0, 7, 9])))
    assert "taskCount" not in sparse
    assert [one["variables"] for one in sparse["taskEnvironments"]] == [
        {"MARIN_RULES_JOB_ELEMENT": element} for element in ("0", "7", "9")
    ]


def test_the_largest_array_with_gaps_is_not_too_large_for_batch() -> None:
    assert len(group(define(replace(REQUEST, elements=range(0, 20_000, 2))))["taskEnvironments"]) == 10_000


def _hf_token(site: GcpSite) -> GcpSite:
    return replace(site, secrets={"HF_TOKEN": "projects/emulated/secrets/hf/versions/1", "WANDB_API_KEY": None})


def test_secrets_are_references_and_nothing_else() -> None:
    variables = {"HF_TOKEN": "hf_abc", "WANDB_API_KEY": "abc", "LANG": "C"}
    found = define(replace(REQUEST, variables=variables), _hf_token(SITE))
    assert environment(found)["secretVariables"] == {"HF_TOKEN": "projects/emulated/secrets/hf/versions/1"}
    assert environment(found)["variables"]["LANG"] == "C"
    assert "abc" not in json.dumps(found)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "LAB_PASSWORD", "aws_session_token", "MY_CREDENTIALS"],
)
def test_what_looks_like_a_secret_by_its_name_is_refused_without_a_reference(name: str) -> None:
    with pytest.raises(RefusedError, match=rf"the variable {name} looks like a secret.*secrets: {{{name}: projects/"):
        define(replace(REQUEST, variables={name: "x"}))
    define(replace(REQUEST, variables={name: ""}))


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(RefusedError, match="HTTPS_PROXY looks like a secret") as refused:
        define(replace(REQUEST, variables={"HTTPS_PROXY": "http://ann:pa55@proxy:3128"}))
    assert "pa55" not in str(refused.value)
    define(replace(REQUEST, variables={"HTTPS_PROXY": "http://proxy:3128"}))


@pytest.mark.parametrize(
    "value",
    [
        "hf_abcdefghijklmnopqrst",
        "AIza" + "x" * 35,
        "ya29.a0AfB",
        '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}',
    ],
)
def test_what_looks_like_a_secret_by_its_value_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(RefusedError, match="ACCOUNT looks like a secret") as refused:
        define(replace(REQUEST, variables={"ACCOUNT": value}))
    assert value not in str(refused.value)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MARIN_PREFIX", "UV_INDEX", "GOOGLE_CLOUD_PROJECT"])
def test_other_variables_are_passed_on(name: str) -> None:
    assert environment(define(replace(REQUEST, variables={name: "x"})))["variables"][name] == "x"


def test_a_file_of_this_machine_is_not_passed_on() -> None:
    found = environment(define(replace(REQUEST, variables={"GOOGLE_APPLICATION_CREDENTIALS": "/home/ann/key.json"})))
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in found["variables"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"excluded_nodes": ("a1",)}, "cannot be excluded by name: a1"),
        (
            {"resources": {**RESOURCES, "gcp_zones": "us-east1-b"}},
            "a job in us-central1 cannot have machines in us-east1-b",
        ),
        ({"resources": {**RESOURCES, "runtime": 15 * 24 * 60}}, "14 days"),
        ({"resources": {**RESOURCES, "runtime": 0}}, "runtime=0 is not a time limit"),
        ({"resources": {**RESOURCES, "gcp_provisioning": "CHEAP"}}, "gcp_provisioning=CHEAP is not known to Batch"),
        ({"resources": {**RESOURCES, "gcp_region": "mars"}}, "gcp_region=mars is not a region"),
        ({"resources": {**RESOURCES, "gcp_image": "an image"}}, "'an image' is not the name of an image"),
        ({"resources": {**RESOURCES, "disk_mb": 65 << 20}}, "no machine has a boot disk of 66560G"),
        ({"resources": {**RESOURCES, "gcp_gpu": "nvidia-l4:1"}}, "cannot have 1 nvidia-l4; it has no GPUs"),
        (
            {"resources": {**RESOURCES, "gcp_machine_type": "g2-standard-12", "gcp_gpu": "nvidia-l4:3"}},
            "cannot have 3 nvidia-l4; it has 1 nvidia-l4:",
        ),
        (
            {"resources": {**RESOURCES, "gcp_machine_type": "n1-standard-8", "gcp_gpu": "nvidia-tesla-t4:3"}},
            "cannot have 3 nvidia-tesla-t4; it has 1 nvidia-tesla-t4 or 2 nvidia-tesla-t4 or",
        ),
        ({"resources": {**RESOURCES, "gcp_gpu": "nvidia-l4:all"}}, "does not name a number of GPUs"),
        ({"variables": {"X": "x" * 1_000_001}}, "Batch takes 1,000,000"),
    ],
)
def test_what_batch_would_refuse_is_refused_first(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        define(replace(REQUEST, **change))


def test_more_labels_than_google_takes_are_refused() -> None:
    labels = {f"label-{number}": "x" for number in range(60)}
    with pytest.raises(RefusedError, match=r"64 labels, and this one would have 6\d, .* gcp.labels"):
        define(site=replace(SITE, labels=labels))
    define(site=replace(SITE, labels=dict(list(labels.items())[:40])))


def test_a_machine_that_a_profile_names_has_to_be_large_enough_at_first() -> None:
    small = {**RESOURCES, "gcp_machine_type": "e2-standard-2"}
    for resources, words in (
        (small, "e2-standard-2 has 2 cores and 8G, but the job asks for 4 and 16G"),
        ({**small, "mem_mb": 8192}, "asks for 4 and 8G"),
    ):
        with pytest.raises(RefusedError, match=words):
            check_request(replace(REQUEST, resources=resources), SITE)
    check_request(replace(REQUEST, resources={**small, "mem_mb": 8192, "cpus_per_task": 2}), SITE)


def test_a_later_attempt_gets_all_the_memory_of_a_machine_that_a_profile_names() -> None:
    found = define(replace(REQUEST, resources={**RESOURCES, "mem_mb": 2 * 16384}))
    assert group(found)["taskSpec"]["computeResource"]["memoryMib"] == "16384"


def test_no_more_tasks_run_at_once_than_batch_takes() -> None:
    request = replace(REQUEST, elements=range(6000), at_once=6000, tag=TAG)
    assert group(define(request))["parallelism"] == "5000"


@pytest.mark.parametrize("resources", [{}, {"gcp_machine_type": "x5-tiny-1", "gcp_gpu": "nvidia-x:3"}])
def test_what_nobody_here_knows_is_left_to_google(resources: dict[str, Any]) -> None:
    check_request(replace(REQUEST, resources={**resources, "mem_mb": 1 << 20, "runtime": None}), SITE)


@pytest.mark.parametrize(
    ("variables", "job", "element"),
    [
        ({"MARIN_RULES_JOB_ID": "train-1"}, "train-1", None),
        ({"MARIN_RULES_JOB_ID": "train-1", "BATCH_TASK_INDEX": "0"}, "train-1", None),
        (
            {"MARIN_RULES_JOB_ID": "train-1", "MARIN_RULES_JOB_ARRAY": "true", "BATCH_TASK_INDEX": "3"},
            "train-1_3",
            3,
        ),
        (
            {
                "MARIN_RULES_JOB_ID": "train-1",
                "MARIN_RULES_JOB_ARRAY": "true",
                "BATCH_TASK_INDEX": "1",
                "MARIN_RULES_JOB_ELEMENT": "7",
            },
            "train-1_7",
            7,
        ),
    ],
)
def test_a_process_knows_its_job_and_element(variables: dict[str, str], job: str, element: int | None) -> None:
    found = allocation_from(variables)
    assert found is not None
    assert (found.cluster, found.job_id, found.element, found.node_count) == ("gcp", job, element, 1)


def test_what_a_job_is_told_of_itself() -> None:
    assert allocation_from({"BATCH_TASK_INDEX": "0"}) is None
    found = allocation_from(
        {
            "MARIN_RULES_JOB_ID": "train-1",
            "MARIN_RULES_JOB_NODE": "vm-7",
            "MARIN_RULES_JOB_CPUS": "4",
            "MARIN_RULES_JOB_DEADLINE": "1000",
            "BATCH_TASK_RETRY_ATTEMPT": "1",
        }
    )
    assert found is not None
    assert (found.cpus, found.deadline, found.restarts) == (4, 1000, 1)
    assert found.to_fields() == {"job_id": "train-1", "nodes": "vm-7", "restarts": 1, "cpus_per_task": 4}


# --- several machines


def test_a_step_on_several_machines_has_a_task_on_each_all_at_once() -> None:
    found = define(replace(REQUEST, resources={**RESOURCES, "nodes": 3}, meeting_place="gs://bucket/run/meetings"))
    assert (group(found)["taskCount"], group(found)["parallelism"], group(found)["taskCountPerNode"]) == ("3", "3", "1")
    given = environment(found)["variables"]
    assert given["MARIN_RULES_JOB_MACHINES"] == "3"
    assert given["MARIN_RULES_JOB_MEETING"] == "gs://bucket/run/meetings/train-1"
    alone = environment(define(replace(REQUEST, resources={**RESOURCES, "nodes": 1})))["variables"]
    assert not {"MARIN_RULES_JOB_MACHINES", "MARIN_RULES_JOB_MEETING"} & alone.keys()


# --- TPU slices

TPU_SITE = replace(
    SITE,
    regions=("us-central1", "us-east5"),
    tpus={"v5litepod": TpuSupply(("us-central1-a", "us-east5-b"), "v2-alpha-tpuv5-lite", on_demand=True)},
    labels={"team": "speech"},
    network="global/networks/lab",
    external_address=False,
    service_account="jobs@emulated.iam.gserviceaccount.com",
    image="lab/image:1",
)
TPU_RESOURCES = {
    "mem_mb": 131072,
    "runtime": 90,
    "nodes": 1,
    "cpus_per_task": 32,
    "gcp_region": "us-central1",
    "gcp_machine_type": "e2-highcpu-2",
    "gcp_provisioning": "STANDARD",
    "gcp_tpu": "v5litepod-16",
    "gcp_tpu_slices": 2,
    "gcp_tpu_zones": "us-east5-b",
    "gcp_tpu_provisioning": "SPOT",
}
TPU_REQUEST = replace(REQUEST, resources=TPU_RESOURCES, meeting_place="gs://bucket/run/meetings")


def order_in(definition: dict[str, Any]) -> SliceOrder:
    return SliceOrder.from_json(environment(definition)["variables"]["MARIN_RULES_JOB_SLICES"])


def test_the_worker_of_a_tpu_step_is_told_which_slices_to_have() -> None:
    found = define(TPU_REQUEST, TPU_SITE)
    assert (group(found)["taskCount"], group(found)["taskSpec"]["computeResource"]) == ("1", {"cpuMilli": "1000"})
    assert (policy(found)["machineType"], policy(found)["provisioningModel"]) == ("e2-highcpu-2", "STANDARD")
    order = order_in(found)
    offer = Offer("v5litepod-16", "us-east5-b", "v2-alpha-tpuv5-lite")
    assert order.offers == (replace(offer, spot=True), offer)
    assert (order.step, order.identity, order.project) == ("train", f"{TAG.step} {TAG.place}", "emulated")
    assert (order.slices, order.hosts, order.place) == (2, 4, "gs://bucket/run/meetings")
    assert (order.network, order.external_address, order.image) == ("global/networks/lab", False, "lab/image:1")
    assert order.service_account == "jobs@emulated.iam.gserviceaccount.com"
    # All labels of the job, for bills and for whoever cleans up, but for that of the job itself.
    assert order.labels == {name: value for name, value in found["labels"].items() if name != "marin-job"}
    script = environment(found)["variables"]["MARIN_RULES_JOB_SCRIPT"]
    assert script == f"cd '/tmp/it'\"'\"'s here' || exit\n{REQUEST.script}"


def test_an_image_of_the_step_wins_on_hosts_too() -> None:
    request = replace(TPU_REQUEST, resources={**TPU_RESOURCES, "gcp_image": "lab/own:2"})
    found = define(request, TPU_SITE)
    assert order_in(found).image == "lab/own:2"
    assert group(found)["taskSpec"]["runnables"][0]["container"]["imageUri"] == "lab/own:2"


def test_hosts_get_the_variables_of_the_job_and_nothing_that_would_make_them_workers() -> None:
    given = {**dict(REQUEST.variables), "LANG": "C"}
    found = define(replace(TPU_REQUEST, variables=given), TPU_SITE)
    variables = {**environment(found)["variables"], "MARIN_RULES_JOB_NODE": "vm", "MARIN_RULES_JOB_DEADLINE": "1"}
    script = order_in(found).plan(variables).script_for(Meeting("gs://bucket/meet/s-1"), "s-1", "us-east5-b")
    names = {line.split()[1].partition("=")[0] for line in script.splitlines() if line.startswith("export ")}
    own = {"MARIN_RULES_JOB_ID", "MARIN_RULES_JOB_MEETING", "MARIN_RULES_JOB_SLICE"}
    assert names == {"MARIN_PREFIX", "LANG"} | own


SECRET = "hf_abc"
STEP_TOKEN = f"{STEP_VARIABLE}HF_TOKEN"


@pytest.mark.parametrize("request_", [REQUEST, TPU_REQUEST], ids=["machine", "slices"])
def test_secrets_of_a_step_are_references_or_refused(request_: JobRequest) -> None:
    request = replace(request_, variables={STEP_TOKEN: SECRET, f"{STEP_VARIABLE}LANG": "C"})
    found = define(request, _hf_token(TPU_SITE))
    assert environment(found)["secretVariables"] == {STEP_TOKEN: "projects/emulated/secrets/hf/versions/1"}
    assert environment(found)["variables"][f"{STEP_VARIABLE}LANG"] == "C"
    assert SECRET not in json.dumps(found)
    left_out = define(request, replace(TPU_SITE, secrets={"HF_TOKEN": None}))
    assert SECRET not in json.dumps(left_out)
    assert "secretVariables" not in environment(left_out)
    with pytest.raises(RefusedError, match=r"the variable HF_TOKEN looks like a secret") as refused:
        define(request, TPU_SITE)
    assert SECRET not in str(refused.value)


def test_hosts_are_told_the_places_of_secrets_and_no_values() -> None:
    request = replace(TPU_REQUEST, variables={STEP_TOKEN: SECRET, "LANG": "C"})
    found = define(request, _hf_token(TPU_SITE))
    order = order_in(found)
    assert order.secrets == {STEP_TOKEN: "projects/emulated/secrets/hf/versions/1"}
    # The worker itself has the value by then, from Batch.
    variables = {**environment(found)["variables"], STEP_TOKEN: SECRET}
    script = order.plan(variables).script_for(Meeting("gs://bucket/meet/s-1"), "s-1", "us-east5-b")
    assert SECRET not in script
    assert "projects/emulated/secrets/hf/versions/1" in script


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"elements": range(3)}, "train is divided into tasks, which get no TPUs on Google Cloud"),
        (
            {"resources": {**TPU_RESOURCES, "gcp_tpu_zones": "us-central2-b"}},
            "cluster lab has no TPU v5litepod-16 in us-central2-b: see gcp.tpus",
        ),
        ({"resources": {**TPU_RESOURCES, "gcp_tpu": "v4-8"}}, "cluster lab has no TPU v4-8"),
        ({"variables": {"X": "x" * 262_145}}, "the data for hosts of TPU slices has 26.,... bytes, .* takes 262,144"),
        ({"variables": {"my.variable": "x"}}, "cannot get the variable 'my.variable'"),
    ],
)
def test_slices_that_could_not_run_the_step_are_refused_before_there_are_any(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        define(replace(TPU_REQUEST, **change), TPU_SITE)
