"""Cluster files, clusters without one, and where requests go."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from marin_rules.clusters.slurm import configuration, discovery
from marin_rules.clusters.slurm.discovery import cluster_file_text, discover_site
from marin_rules.clusters.slurm.site import Queue, Site, read_site
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.resources import CpuConfig, GpuConfig, ResourceConfig, TpuConfig
from support.lab import REPOSITORY
from support.slurm.cluster import SlurmCluster

FILE = """
data: {root: /shared}
slurm:
  partition: cpu
  account: physics
  runtime: 4h
  max_runtime: 2d
  max_memory: 180g
  preemptible: {partition: spare, qos: low}
  environments: /shared/environments
  gpus:
    A100-40G: {partition: small, gres: a100, count: 4, constraint: a40}
    A100-80G: {partition: large, gres: a100, count: 8, account: ml, preemptible: {partition: large-spare}}
    T4: {partition: old}
"""


@pytest.fixture
def site(cluster_file: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Site]:
    """`site(yaml)` is the cluster of that file."""

    def read(text: str) -> Site:
        monkeypatch.chdir(tmp_path)
        found = read_site(cluster_file(text))
        assert found is not None
        return found

    return read


def request(device: CpuConfig | GpuConfig | TpuConfig | None = None, **options: object) -> MachineRequest:
    return MachineRequest.from_resources(ResourceConfig(device=device or CpuConfig(), **options))  # type: ignore[arg-type]


def test_a_file_says_where_each_kind_of_machine_is(site: Callable[[str], Site]) -> None:
    found = site(FILE)
    assert found.environments == "/shared/environments"
    cpu = found.queue_for(request(preemptible=False), "s")
    assert cpu.partition == "cpu"
    assert (cpu.account, cpu.runtime, cpu.max_runtime, cpu.max_memory_mb) == ("physics", 240, 2880, 180 * 1024)
    spare = found.queue_for(request(), "s")
    assert (spare.partition, spare.qos, spare.account, spare.runtime) == ("spare", "low", "physics", 240)
    large = found.queue_for(request(GpuConfig("a100-80gb", count=8), preemptible=False, ram="500g"), "s")
    assert (large.partition, large.gres, large.account, large.constraint) == ("large", "a100", "ml", None)
    assert large.max_memory_mb is None
    assert found.queue_for(request(GpuConfig("A100-80G")), "s").partition == "large-spare"
    assert found.queue_for(request(GpuConfig("A100-80G")), "s").gres == "a100"
    assert found.queue_for(request(GpuConfig("Tesla-T4")), "s") == Queue(
        partition="old", account="physics", runtime=240, max_runtime=2880
    )


def test_how_many_tasks_run_at_once_is_said_for_all_machines_or_for_some(site: Callable[[str], Site]) -> None:
    found = site(
        "slurm: {tasks_at_once: 50, preemptible: {tasks_at_once: 500}, gpus: {T4: , A100: {tasks_at_once: 4}}}"
    )
    asked = [request(preemptible=False), request(), request(GpuConfig("T4")), request(GpuConfig("A100"))]
    assert [found.resources(one, "s")["tasks_at_once"] for one in asked] == [50, 500, 50, 4]
    assert site("slurm: {partition: cpu}").resources(request(), "s")["tasks_at_once"] is None


def test_a_name_without_a_size_takes_whatever_is_large_enough(site: Callable[[str], Site]) -> None:
    found = site(FILE)
    assert found.queue_for(request(GpuConfig("A100", count=4)), "s").partition == "small"
    assert found.queue_for(request(GpuConfig("A100", count=6), preemptible=False), "s").partition == "large"
    assert found.queue_for(request(GpuConfig("auto", count=8), preemptible=False), "s").partition == "large"


def test_alternatives_are_tried_in_their_order(site: Callable[[str], Site]) -> None:
    wanted = request(GpuConfig("H100"), device_alternatives=["B200", "T4", "A100-80G"])
    assert site(FILE).queue_for(wanted, "s").partition == "old"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (request(GpuConfig("H100")), ["'train'", "type H100", "A100-40G (4 a machine), A100-80G (8 a machine), T4."]),
        (request(GpuConfig("A100", count=9)), ["'train'", "9 GPUs", "at most 8", "replicas"]),
        (request(TpuConfig("v4-8")), ["'train'", "TPU v4-8", "A100-40G"]),
        (request(ram="181g"), ["'train'", "181G", "partition spare", "180G"]),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    wanted: MachineRequest, words: list[str], site: Callable[[str], Site]
) -> None:
    with pytest.raises(SettingsError) as caught:
        site(FILE).queue_for(wanted, "train")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slurm: {partitoin: cpu}", ["slurm has an unknown key 'partitoin'", "Did you mean 'partition'?"]),
        ("slurm: {gpus: {A100: {gress: a}}}", ["slurm.gpus.A100 has an unknown key 'gress'", "'gres'"]),
        ("slurm: {preemptible: {preemptible: {}}}", ["slurm.preemptible has an unknown key 'preemptible'"]),
        ("slurm: {runtime: 240}", ["slurm.runtime is 240", "'4h'"]),
        ("slurm: {max_runtime: soon}", ["slurm.max_runtime is 'soon'", "'2d'"]),
        ("slurm: {max_memory: 180}", ["slurm.max_memory", "with a unit"]),
        ("slurm: {gpus: {A100: {count: 0}}}", ["slurm.gpus.A100.count is 0", "how many GPUs"]),
        ("slurm: {tasks_at_once: 0}", ["slurm.tasks_at_once is 0", "how many tasks"]),
        ("slurm: {gpus: [A100]}", ["slurm.gpus", "must be a mapping, not a list"]),
        ("slurm: {partition: 7}", ["slurm.partition is 7", "must be a string, not a number"]),
        ("slurm: {partition: true}", ["slurm.partition is True", "must be a string, not true"]),
        ("slurm: cpu", ["slurm is 'cpu'", "must be a mapping"]),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(text: str, words: list[str], site: Callable[[str], Site]) -> None:
    with pytest.raises(SettingsError) as caught:
        site(text)
    assert "site.yaml" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


KEYS = {
    "partition": "p", "account": "a", "qos": "q", "constraint": "c", "runtime": "1h", "max_runtime": "2h",
    "max_memory": "1g", "extra": "--x", "preemptible": "{qos: low}", "gpus": "{T4: }", "environments": "/e",
    "trust": "[ann]", "gres": "g", "count": "1", "tasks_at_once": "7", "drivers": "{partition: p}", "memory": "3g",
    "cores": "2",
}  # fmt: skip


def test_every_key_of_the_schema_says_something(site: Callable[[str], Site]) -> None:
    schema = yaml.safe_load((REPOSITORY / "config" / "cluster.schema.yaml").read_text())
    block = schema["properties"]["slurm"]["properties"]
    gpu = block["gpus"]["additionalProperties"]["properties"]
    drivers = block["drivers"]["properties"]
    assert set(block) | set(gpu) | set(drivers) == set(KEYS)
    nothing, plain_gpu = site("slurm: {extra: x}"), site("slurm: {gpus: {T4: }}")
    for key in block:
        assert site(f"slurm: {{extra: x, {key}: {KEYS[key]}}}" if key != "extra" else "slurm: {extra: y}") != nothing
    for key in gpu:
        assert site(f"slurm: {{gpus: {{T4: {{{key}: {KEYS[key]}}}}}}}") != plain_gpu
    for key in drivers:
        assert site(f"slurm: {{drivers: {{{key}: {KEYS[key]}}}}}").driver_resources() != nothing.driver_resources()
    for key in block["preemptible"]["properties"]:
        queue = site(f"slurm: {{preemptible: {{{key}: {KEYS[key]}}}}}").cpu
        assert queue.preemptible not in (None, replace(queue, preemptible=None))


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("", {"slurm_partition": "cpu", "runtime": 2880, "mem_mb": 2048, "cpus_per_task": 1, "constraint": "old"}),
        ("drivers: {runtime: 7d}", {"slurm_partition": "cpu", "runtime": 10080, "constraint": "old"}),
        ("drivers: {partition: long}", {"slurm_partition": "long", "runtime": None, "slurm_account": "physics"}),
        ("drivers: {memory: 1g, cores: 4}", {"runtime": 2880, "mem_mb": 1024, "cpus_per_task": 4}),
    ],
)
def test_drivers_get_little_for_as_long_as_their_partition_lets_them(
    block: str, expected: dict[str, object], site: Callable[[str], Site]
) -> None:
    """Their own limit, not that of steps; another partition has limits that are not known."""
    text = "slurm: {partition: cpu, account: physics, constraint: old, runtime: 4h, max_runtime: 2d%s}"
    found = site(text % (f", {block}" if block else "")).driver_resources()
    assert {name: found[name] for name in expected} == expected


def test_the_example_is_a_file_that_can_be_read() -> None:
    example = read_site("slurm-example")
    assert example is not None
    assert example.queue_for(request(GpuConfig("H100")), "s").account == "my-group-gpu"


def test_slurm_itself_is_asked_where_there_is_no_file(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch, site: Callable[[str], Site]
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    found = discover_site()
    assert found.name == "test"
    assert (found.cpu.partition, found.cpu.max_runtime, found.cpu.max_memory_mb) == ("cpu", 60, 4000)
    gpu = found.gpus["A100"]
    assert (gpu.partition, gpu.gres, gpu.gpu_count, gpu.max_memory_mb) == ("gpu", "a100", 2, 4000)
    assert found.queue_for(request(GpuConfig("auto", count=2), ram="1g"), "s") == gpu
    # What the command prints is a file that says the same.
    printed = subprocess.run(
        [Path(sys.executable).with_name("marin-rules"), "cluster", "discover"],
        env={**os.environ, **slurm.environment}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert printed == cluster_file_text(found)
    read = site(printed)
    assert (read.cpu, dict(read.gpus)) == (found.cpu, dict(found.gpus))


@pytest.mark.parametrize(
    ("rows", "cpu", "gpus"),
    [
        ("work*|up|infinite|1000|(null)\n", ("work", None, 1000), {}),
        ("a|up|1-12:30:00|1000+|(null)\nb|up|30:00|2000|(null)\n", ("a", 36 * 60 + 30, 1000), {}),
        ("a|up|2:00:00|9|(null)\nb*|up|30:00|2000|(null)\n", ("b", 30, 2000), {}),
        ("b*|up|1-00:00:00|9|(null)\nb*|up|1-00:00:00|99|gpu:4(S:0-1)\n", ("b", 1440, 99), {"GPU": (None, 4)}),
        (
            "b*|up|infinite|9|gpu:h100-sxm:8(S:0),gpu:tesla_t4:2,craynetwork:4\ndead|down|infinite|9|gpu:b200:8\n",
            ("b", None, 9),
            {"H100-SXM": ("h100-sxm", 8), "TESLA_T4": ("tesla_t4", 2)},
        ),
    ],
)
def test_partitions_in_all_their_forms(
    rows: str,
    cpu: tuple[str, int | None, int],
    gpus: dict[str, tuple[str | None, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"scontrol": "ClusterName             = big\n", "sinfo": rows}
    for module in (configuration, discovery):
        monkeypatch.setattr(module, "run_command", lambda *words: answers[words[0]])
    found = discover_site()
    assert found.name == "big"
    assert (found.cpu.partition, found.cpu.max_runtime, found.cpu.max_memory_mb) == cpu
    assert {name: (queue.gres, queue.gpu_count) for name, queue in found.gpus.items()} == gpus
