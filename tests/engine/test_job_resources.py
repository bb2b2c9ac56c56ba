"""What rules ask of Snakemake for their steps, on this machine and on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep, ResourceConfig
from marin_rules.clusters.estimates import Estimate
from marin_rules.clusters.prices import UNKNOWN, Price
from marin_rules.clusters.protocol import Cluster, JobRequest, RefusedError
from marin_rules.engine import job_resources, plan_in_process
from marin_rules.engine.invocation import Invocation
from marin_rules.engine.job_resources import JobResources, tasks_at_once
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.state.status import Status
from support.fake_snakemake import FakeDag, FakeWorkflow, job, wildcards
from support.small_plans import leave_status, plan_of, step

LARGE = step("large", resources=ResourceConfig.with_cpu(cpu=3, ram="2g", disk="4g"))
GPU = step("gpu", resources=ResourceConfig.with_gpu("H100", count=2))
SMALL = step("small")
MANY = step("many", resources=ResourceConfig.with_cpu(cpu=1, ram="1g"), tasks=10)

PRICES = {"fast": Price(3.0, "2026-01-01", "a page"), "odd": UNKNOWN}
"""By pool; the others cost nothing."""


class Site:
    """Machines of up to three cores; each attempt gets more memory. See `protocol.Site`."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.asked: list[tuple[str, int]] = []

    def resources(
        self, request: MachineRequest, step: str, attempt: int = 1, regions: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        self.asked.append((step, attempt))
        if request.gpus:
            raise SettingsError(f"{step}: there are no GPUs")
        return {"mem_mb": request.memory_mb * attempt, "pool": "big"}

    def defaults(self) -> Mapping[str, Any]:
        return {"pool": "common", "tasks": 1}

    def describe(self, resources: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in sorted(resources.items()))

    def price(self, resources: Mapping[str, Any]) -> Price | None:
        return PRICES.get(resources["pool"])

    def check(self, request: JobRequest) -> None:
        if request.resources.get("pool") == "odd":
            raise RefusedError(f"{request.name}: the odd pool is closed")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[Site]:
    """A cluster that is there to be chosen; the sites that were opened."""
    opened: list[Site] = []

    def open_site(name: str | None) -> Any:
        opened.append(Site(name))
        return opened[-1]

    found = Cluster(
        "fake",
        open_queue=lambda name: pytest.fail("nobody submits here"),
        open_site=open_site,
        first_file=lambda: "",
        is_here=lambda name: True,
    )
    monkeypatch.setattr(job_resources, "resource_names", lambda: {"pool", "mem_mb"})
    monkeypatch.setattr(job_resources, "open_cluster", {"fake": found}.__getitem__)
    monkeypatch.setattr(plan_in_process, "chosen_cluster", None)
    return opened


def made(folder: Path, *steps: ExecutorStep[Any], **details: Any) -> tuple[JobResources, PlanInProcess, FakeWorkflow]:
    in_process = PlanInProcess(plan_of(folder, *steps, cluster=None))
    workflow = FakeWorkflow(**details)
    return JobResources(in_process, Invocation(workflow)), in_process, workflow


def evaluated(resources: JobResources, rule: str, key: str, attempt: int = 1) -> dict[str, Any]:
    """What Snakemake gets when it asks a rule for the resources of a step."""
    return {
        name: value(wildcards(key), attempt) if callable(value) else value
        for name, value in resources.resources(rule).items()
    }


@pytest.mark.usefixtures("cluster")
def test_plain_steps_ask_for_a_slot_and_nothing_else(tmp_path: Path) -> None:
    resources, _, _ = made(tmp_path, SMALL)
    assert (resources.threads("compute"), resources.resources("compute")) == (1, {"step_slots": 1})


def test_steps_on_this_machine(tmp_path: Path, cluster: list[Site]) -> None:
    resources, in_process, _ = made(tmp_path, LARGE, GPU)
    large, gpu = (item.key for item in in_process.plan.steps)
    assert resources.threads("compute")(wildcards(large)) == 3
    none = {"step_slots": 1, "pool": None}
    assert evaluated(resources, "compute", large) == {**none, "mem_mb": 2048, "disk_mb": 4096, "gpu": None}
    assert evaluated(resources, "compute", large, attempt=2)["mem_mb"] == 2048
    assert evaluated(resources, "compute", gpu)["gpu"] == 2
    assert cluster == []


def test_steps_on_a_cluster_in_its_words(tmp_path: Path, cluster: list[Site], monkeypatch: pytest.MonkeyPatch) -> None:
    resources, in_process, _ = made(tmp_path, LARGE)
    (large,) = (item.key for item in in_process.plan.steps)
    rule = resources.resources("compute")  # The rules are read before it is known which cluster it is.
    monkeypatch.setattr(plan_in_process, "chosen_cluster", "fake")
    found = [{name: rule[name](wildcards(large), attempt) for name in ("mem_mb", "pool", "gpu")} for attempt in (1, 2)]
    assert found == [{"mem_mb": 2048, "pool": "big", "gpu": None}, {"mem_mb": 4096, "pool": "big", "gpu": None}]
    (site,) = cluster
    assert site.asked == [("large", 1), ("large", 2)]  # Once for each attempt, not for each resource.


@pytest.mark.usefixtures("cluster")
def test_the_limits_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_resources, "memory_mb", lambda: 8192)
    monkeypatch.setattr(job_resources, "gpus", lambda: ("0", "5"))
    resources, in_process, workflow = made(tmp_path, LARGE)
    resources.check(in_process.plan.steps)
    assert (workflow.global_resources["mem_mb"], workflow.global_resources["gpu"]) == (8192, 2)
    resources, in_process, workflow = made(tmp_path, LARGE, local_exec=False)  # Another's executor.
    resources.check(in_process.plan.steps)
    assert not {"mem_mb", "gpu"} & workflow.global_resources.keys()


@pytest.mark.usefixtures("cluster")
def test_what_a_cluster_cannot_run_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_in_process, "chosen_cluster", "fake")
    resources, in_process, workflow = made(tmp_path, SMALL, LARGE, GPU)
    resources.check([item for item in in_process.plan.steps if item.name != "gpu"])
    assert "mem_mb" not in workflow.global_resources
    with pytest.raises(SettingsError, match="gpu: there are no GPUs"):
        resources.check(in_process.plan.steps)


@pytest.mark.usefixtures("cluster")
def test_where_steps_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the job gets after profiles and flags, in the cluster's words; what stays here, and what says nothing."""
    dag = FakeDag()
    resources, in_process, workflow = made(tmp_path, LARGE, SMALL, dag=dag, _localrules={"compute_here"})
    steps = {item.name: item for item in in_process.plan.steps}
    dag.jobs = [job("compute", steps["large"].key, resources={"pool": "slow"})]
    monkeypatch.setattr(job_resources, "destination_here", lambda plan, item: f"here, {item.name}")
    assert resources.destination(steps["large"]) == "here, large"
    workflow.local_exec = False
    assert resources.destination(steps["large"]) is None  # Another's executor: nothing is known.

    monkeypatch.setattr(plan_in_process, "chosen_cluster", "fake")
    resources = JobResources(in_process, Invocation(workflow))
    assert resources.destination(steps["large"]) == "fake: pool slow"
    assert resources.destination(steps["small"]) == "here"
    workflow._localrules.clear()  # As for a hand-written rule that is sent away and asks for nothing.
    assert resources.destination(steps["small"]) == "fake: pool common, tasks 1"


@pytest.mark.usefixtures("cluster")
def test_what_steps_may_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said where they go, and estimated for those of this run that cost something."""
    monkeypatch.setattr(plan_in_process, "chosen_cluster", "fake")
    dag = FakeDag()
    resources, in_process, _ = made(tmp_path, LARGE, MANY, GPU, SMALL, dag=dag, _localrules={"compute_here"})
    steps = {item.name: item for item in in_process.plan.steps}
    given = {"large": {"pool": "fast", "runtime": 20}, "many": {"pool": "fast", "runtime": 60}, "gpu": {"pool": "odd"}}
    dag.jobs = [job("compute", steps[name].key, resources=asked) for name, asked in given.items()]
    assert [resources.destination(steps[name]) for name in ("large", "many", "gpu", "small")] == [
        "fake: pool fast, runtime 20, $3.00 an hour, at most $1.00 an attempt",
        "fake: 10 tasks, each pool fast, runtime 60, $3.00 an hour, at most $3.00 an attempt, $30.00 for all tasks",
        "fake: pool odd, price unknown",
        "here",
    ]
    in_process.estimate = resources.estimate
    assert in_process.estimates() == []  # Nothing is known of the steps yet.
    leave_status(steps["large"], Status.SUCCESS)
    in_process.assess(lambda item: False)
    assert in_process.estimates() == [Estimate("many", PRICES["fast"], 60, 10), Estimate("gpu", UNKNOWN, None)]
    in_process.max_usd = 1
    assert "the price of gpu is unknown" in (in_process.obstacle() or "")
    in_process.refusal = resources.refusal
    assert in_process.obstacle() == "step 'gpu' could not be submitted: gpu: the odd pool is closed"
    assert [resources.refusal(steps[name]) for name in ("large", "many", "small")] == [None] * 3


@pytest.mark.parametrize(
    ("tasks", "request_", "expected"),
    [
        (64, None, 8),
        (3, None, 3),
        (64, ResourceConfig.with_cpu(cpu=3, ram="1g"), 2),
        (64, ResourceConfig.with_cpu(cpu=1, ram="6g"), 2),
        (64, ResourceConfig.with_cpu(cpu=16, ram="1g"), 1),
        (64, ResourceConfig.with_cpu(cpu=1, ram="100g"), 1),
        (64, ResourceConfig.with_gpu("A100", count=1, cpu=1, ram="1g"), 4),
        (64, ResourceConfig.with_gpu("A100", count=3, cpu=1, ram="1g"), 1),
        (64, ResourceConfig.with_gpu("A100", count=8, cpu=1, ram="1g"), 1),
    ],
)
def test_how_many_tasks_run_at_once(tasks: int, request_: ResourceConfig | None, expected: int) -> None:
    """On a machine of 8 cores, 16 gigabytes and 4 GPUs: at least one, whatever it asks for."""
    machines = None if request_ is None else MachineRequest.from_resources(request_)
    assert tasks_at_once(tasks, machines, cores=8, memory=16_000, gpu_count=4) == expected


def test_tasks_on_a_machine_without_gpus() -> None:
    machines = MachineRequest.from_resources(ResourceConfig.with_gpu("A100", count=2, cpu=1, ram="1g"))
    assert tasks_at_once(64, machines, cores=8, memory=16_000, gpu_count=0) == 8
