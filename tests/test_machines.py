"""From what an experiment asks for to what a scheduler counts in."""

import json

import pytest

from marin_rules import ExecutorStep, ResourceConfig, remote
from marin_rules.machines import MachineRequest, resources_of


def train(config: object) -> None:
    """A step."""


@pytest.mark.parametrize(
    ("resources", "expected", "words"),
    [
        (
            ResourceConfig.with_cpu(cpu=2, ram="1.5g", disk="1g"),
            MachineRequest(cpu=2, memory_mb=1536, disk_mb=1024),
            "2 CPUs, 1536M",
        ),
        (
            ResourceConfig.with_gpu("A100-80G", count=8, ram="16g", replicas=2, preemptible=False),
            MachineRequest(1, 16384, 16384, replicas=2, gpus=8, gpu_variants=("A100-80G",), preemptible=False),
            "2 x (1 CPU, 16G, 8 A100-80G)",
        ),
        (
            ResourceConfig.with_gpu("H100", device_alternatives=["H200"]),
            MachineRequest(1, 4096, 16384, gpus=1, gpu_variants=("H100", "H200")),
            "1 CPU, 4G, 1 H100 or H200",
        ),
        (ResourceConfig.with_gpu(), MachineRequest(1, 4096, 16384, gpus=1, gpu_variants=("auto",)), "1 CPU, 4G, 1 GPU"),
        (
            ResourceConfig.with_tpu("v4-16"),
            MachineRequest(32, 128 * 1024, 50 * 1024, replicas=2, tpus=("v4-16",)),
            "2 x (32 CPUs, 128G, TPU v4-16)",
        ),
    ],
)
def test_a_request_in_numbers_and_in_words(resources: ResourceConfig, expected: MachineRequest, words: str) -> None:
    request = MachineRequest.from_resources(resources)
    assert request == expected
    assert str(request) == words
    assert MachineRequest.from_fields(json.loads(json.dumps(request.to_fields()))) == request


def test_memory_is_rounded_up() -> None:
    assert MachineRequest.from_resources(ResourceConfig(ram="1b")).memory_mb == 1
    assert MachineRequest.from_resources(ResourceConfig(ram="1048577b")).memory_mb == 2


def test_the_resources_of_a_step_win_over_those_of_its_function() -> None:
    one, two = ResourceConfig(cpu=1), ResourceConfig(cpu=2)
    assert resources_of(ExecutorStep("s", train, {})) is None
    assert resources_of(ExecutorStep("s", remote(train, resources=one), {})) is one
    assert resources_of(ExecutorStep("s", remote(train, resources=one), {}, resources=two)) is two
    assert resources_of(ExecutorStep("s", train, {}, resources=two)) is two
