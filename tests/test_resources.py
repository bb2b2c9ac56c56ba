"""Requests for machines: Marin's fields and JSON, refused with what exists instead, right in their arithmetic."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from marin_rules.resources import (
    TPU_TOPOLOGIES,
    CpuConfig,
    GpuConfig,
    ResourceConfig,
    TpuConfig,
    TpuTopology,
    canonical_gpu_variant,
    check_resources,
    tpu_topology,
)

# --- TPU slices


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "chips_per_vm"),
    [
        ("v4-8", 4, 1, 4),
        ("v4-16", 8, 2, 4),
        ("v4-128", 64, 16, 4),
        ("v4-4096", 2048, 512, 4),
        ("v5p-8", 4, 1, 4),
        ("v5p-384", 192, 48, 4),
        ("v5p-12288", 6144, 1536, 4),
        ("v5litepod-1", 1, 1, 1),
        ("v5litepod-2", 2, 1, 2),
        ("v5litepod-4", 4, 1, 4),
        ("v5litepod-8", 8, 1, 8),
        ("v5litepod-16", 16, 4, 4),
        ("v5litepod-256", 256, 64, 4),
        ("v6e-1", 1, 1, 1),
        ("v6e-8", 8, 1, 8),
        ("v6e-16", 16, 4, 4),
        ("v6e-256", 256, 64, 4),
    ],
)
def test_the_shape_of_a_slice(name: str, chips: int, hosts: int, chips_per_vm: int) -> None:
    topology = tpu_topology(name)
    assert topology == TpuTopology(name, chip_count=chips, host_count=hosts, chips_per_vm=chips_per_vm)
    assert topology.vm_count == hosts


def test_every_slice_is_whole() -> None:
    for name, topology in TPU_TOPOLOGIES.items():
        assert topology.name == name
        assert topology.chip_count == topology.host_count * topology.chips_per_vm > 0


def test_nobody_can_change_the_table() -> None:
    with pytest.raises(TypeError):
        TPU_TOPOLOGIES["v4-8"] = tpu_topology("v4-16")  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("v4-100", "v4-64, v4-128"),  # the nearest sizes, smallest first
        ("V4-8", "v4-8"),
        ("v5e-16", "v5litepod-16"),  # the name on Google's pages
        ("v5p-200", "v5p-128, v5p-256"),
        ("v6-8", "v6e-8"),
        ("v5litepod8", "v5litepod-8"),
    ],
)
def test_an_unknown_slice_names_near_ones(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"unknown TPU type '{name}': did you mean .*there are v4-N, ") as caught:
        tpu_topology(name)
    assert near in str(caught.value)


def test_an_unknown_slice_like_no_other_still_says_what_exists() -> None:
    with pytest.raises(ValueError, match="unknown TPU type 'abacus': there are v4-N, v5litepod-N, v5p-N, v6e-N"):
        tpu_topology("abacus")


def test_a_tpu_layout_must_hold_the_slices_chips() -> None:
    assert TpuConfig("v4-128", topology="4x4x4").topology == "4x4x4"
    assert TpuConfig("v6e-8", topology="2x4").topology == "2x4"
    with pytest.raises(ValueError, match="'4x4x8' has 128 chips, but a v4-128 has 64"):
        TpuConfig("v4-128", topology="4x4x8")
    for bad in ("64", "4x4x", "4X4X4", "0x4x4", "2x2x2x8"):
        with pytest.raises(ValueError, match=f"'{bad}' is not a shape"):
            TpuConfig("v4-128", topology=bad)


# --- making requests


def test_defaults() -> None:
    resources = ResourceConfig()
    assert (resources.cpu, resources.ram, resources.disk) == (1, "4g", "16g")
    assert resources.device == CpuConfig()
    assert resources.preemptible is True
    assert resources.replicas == 1
    assert resources.regions is resources.zone is resources.device_alternatives is resources.image is None
    assert ResourceConfig.with_cpu() == resources


def test_with_cpu_and_with_gpu_take_the_other_fields() -> None:
    cpu = ResourceConfig.with_cpu(cpu=8, ram="32g", image="debian:12")
    assert cpu == ResourceConfig(cpu=8, ram="32g", image="debian:12")
    gpu = ResourceConfig.with_gpu("H100", count=8, cpu=96, replicas=2, device_alternatives=["H200"])
    assert gpu == ResourceConfig(cpu=96, device=GpuConfig("H100", count=8), replicas=2, device_alternatives=["H200"])
    assert ResourceConfig.with_gpu().device == GpuConfig("auto", count=1)


def test_with_tpu_has_the_amounts_of_a_tpu_host() -> None:
    resources = ResourceConfig.with_tpu("v4-8")
    assert resources == ResourceConfig(cpu=32, ram="128g", disk="50g", device=TpuConfig("v4-8"))
    assert ResourceConfig.with_tpu("v4-8", ram="200g", preemptible=False) == dataclasses.replace(
        resources, ram="200g", preemptible=False
    )


def test_slices_become_replicas_by_their_hosts() -> None:
    assert ResourceConfig.with_tpu("v4-128").replicas == 16
    assert ResourceConfig.with_tpu("v4-128", slice_count=3).replicas == 48
    assert ResourceConfig.with_tpu("v6e-8", slice_count=3).replicas == 3


def test_several_tpu_types_are_a_device_and_its_alternatives() -> None:
    resources = ResourceConfig.with_tpu(["v4-8", "v5p-8", "v6e-4"], slice_count=2)
    assert resources.device == TpuConfig("v4-8")
    assert resources.device_alternatives == ["v5p-8", "v6e-4"]
    assert resources.replicas == 2
    assert ResourceConfig.with_tpu(["v4-8"]) == ResourceConfig.with_tpu("v4-8")


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["v4-8", "v4-16"], "v4-8 has vm_count 1 and chips_per_vm 4, but v4-16 has vm_count 2"),
        (
            ["v6e-4", "v6e-8"],
            "v6e-4 has vm_count 1 and chips_per_vm 4, but v6e-8 has vm_count 1 and chips_per_vm 8",
        ),
    ],
)
def test_alternatives_must_have_the_same_hosts_and_chips(types: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResourceConfig.with_tpu(types)
    with pytest.raises(ValueError, match=message):
        ResourceConfig(device=TpuConfig(types[0]), device_alternatives=types[1:])


def test_with_tpu_refuses_what_it_decides_itself() -> None:
    options: dict[str, Any] = {"replicas": 4}
    with pytest.raises(TypeError, match="does not take replicas: give slice_count"):
        ResourceConfig.with_tpu("v4-8", **options)
    with pytest.raises(ValueError, match="at least one TPU type"):
        ResourceConfig.with_tpu([])
    with pytest.raises(ValueError, match="slice_count is 0: it must be at least 1"):
        ResourceConfig.with_tpu("v4-8", slice_count=0)
    with pytest.raises(ValueError, match="did you mean v4-8"):
        ResourceConfig.with_tpu(["v4-8", "v4-9"])


def test_part_of_a_slice_can_be_named_and_is_refused_for_a_step() -> None:
    part = ResourceConfig(device=TpuConfig("v4-128"))
    with pytest.raises(ValueError, match=r"replicas=1 .* a v4-128 has 16 hosts; .*with_tpu\('v4-128'"):
        check_resources(part)
    part.replicas = 32
    check_resources(part)
    assert part.chip_count() == 128


def test_what_was_changed_is_checked_for_a_step() -> None:
    resources = ResourceConfig()
    resources.cpu = 0.5
    check_resources(resources)
    resources.cpu = 0
    with pytest.raises(ValueError, match="cpu is 0: it must be more than 0"):
        check_resources(resources)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"cpu": 0}, ValueError, "cpu is 0: it must be more than 0"),
        ({"cpu": -2}, ValueError, "cpu is -2"),
        ({"cpu": float("nan")}, ValueError, "cpu is nan: it must be more than 0"),
        ({"cpu": True}, TypeError, "cpu True is not a number"),
        ({"replicas": 0}, ValueError, "replicas is 0: it must be at least 1"),
        ({"ram": "lots"}, ValueError, "ram: memory 'lots' is not a number with a unit"),
        ({"ram": 4}, TypeError, "ram: memory 4 is not a string"),
        ({"disk": "16"}, ValueError, "disk: memory '16' is not a number with a unit"),
        ({"device": "H100"}, TypeError, r"device 'H100' is not a device: use CpuConfig\(\)"),
        ({"regions": "us-central1"}, TypeError, r"regions 'us-central1' is one string: write a list"),
        ({"regions": ["us-central1", ""]}, ValueError, "regions is empty"),
        ({"regions": [3]}, TypeError, "regions 3 is not a string"),
        ({"device_alternatives": ["H100"]}, ValueError, r"\['H100'\] need a GPU or TPU as device"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ResourceConfig(**fields)


def test_a_wrong_device_is_named() -> None:
    with pytest.raises(ValueError, match="GPU count is 0: it must be at least 1"):
        GpuConfig("H100", count=0)
    with pytest.raises(ValueError, match="GPU variant is empty"):
        GpuConfig(" ")
    with pytest.raises(TypeError, match="TPU variant 8 is not a string"):
        TpuConfig(8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown TPU type 'v4-9'"):
        TpuConfig("v4-9")
    kind: Any = 8
    with pytest.raises(ValueError, match=r"kind is 8, .* write GpuConfig\('H100', count=8\)"):
        GpuConfig("H100", kind)
    kind = "2x2x1"
    with pytest.raises(ValueError, match=r"kind is '2x2x1', .* write TpuConfig\('v4-8', topology='2x2x1'\)"):
        TpuConfig("v4-8", kind)


def test_a_request_keeps_what_it_was_given() -> None:
    """Its JSON enters a version if somebody versions it, and Marin keeps lists as lists and an empty one as it is."""
    assert ResourceConfig(regions=[]).regions == []
    resources = ResourceConfig.with_tpu(["v4-8", "v5p-8"], regions=["us-central1"])
    assert pickle.loads(pickle.dumps(resources)) == copy.deepcopy(resources) == resources


# --- GPU names


@pytest.mark.parametrize(
    "spelling",
    ["A100-80G", "a100-80g", "a100-80GB", "nvidia-a100-80gb", "NVIDIA A100 80GB", "tesla_a100_80g"],
)
def test_gpu_names_are_compared_whatever_their_spelling(spelling: str) -> None:
    assert canonical_gpu_variant(spelling) == "A100-80G"
    assert GpuConfig(spelling) == GpuConfig("A100-80G")
    assert hash(GpuConfig(spelling)) == hash(GpuConfig("A100-80G"))
    assert ResourceConfig.with_gpu(spelling) == ResourceConfig.with_gpu("A100-80G")
    assert GpuConfig(spelling).variant == spelling, "clusters compare names with case: keep what was written"


def test_different_gpus_differ() -> None:
    assert GpuConfig("A100-80G") != GpuConfig("A100-40G")
    assert GpuConfig("A100-80G") != GpuConfig("A100-80G", count=2)
    assert GpuConfig("A100") != "A100"


# --- arithmetic


def test_chips_over_all_replicas() -> None:
    assert ResourceConfig.with_cpu(cpu=64, replicas=4).chip_count() == 0
    assert ResourceConfig.with_gpu("H100", count=8, replicas=4).chip_count() == 32
    assert ResourceConfig.with_gpu(count=2).chip_count() == 2
    assert ResourceConfig.with_tpu("v4-128").chip_count() == 64
    assert ResourceConfig.with_tpu("v5litepod-8", slice_count=3).chip_count() == 24


@pytest.mark.parametrize(
    ("variant", "teraflops"),
    [
        ("A100-40G", 312),
        ("a100-80g", 312),
        ("H100", 989.5),
        ("H100-PCIe", 756.5),
        ("H200", 989.5),
        ("B200", 2250),
        ("L4", 121),
        ("L40S", 362),
        ("A10G", 70),
        ("T4", 65),
        ("V100", 125),
        ("nvidia-h100-80gb", 989.5),
    ],
)
def test_dense_speed_of_a_gpu(variant: str, teraflops: float) -> None:
    resources = ResourceConfig.with_gpu(variant, count=4)
    assert resources.device_flops() == resources.device_flops("fp16") == pytest.approx(teraflops * 1e12)


@pytest.mark.parametrize(
    ("variant", "teraflops"), [("v4-8", 275), ("v5litepod-16", 197), ("v5p-8", 459), ("v6e-256", 918)]
)
def test_dense_speed_of_a_tpu_chip(variant: str, teraflops: float) -> None:
    assert ResourceConfig.with_tpu(variant, slice_count=2).device_flops("bf16") == pytest.approx(teraflops * 1e12)


def test_speed_of_everything_together() -> None:
    assert ResourceConfig.with_tpu("v4-128", slice_count=2).total_flops() == pytest.approx(128 * 275e12)
    assert ResourceConfig.with_gpu("H100", count=8, replicas=2).total_flops("fp8") == pytest.approx(16 * 1979e12)


@pytest.mark.parametrize(
    ("resources", "dtype", "message"),
    [
        (ResourceConfig.with_gpu("abacus"), "bf16", "GPU 'abacus'; known GPUs: .*A100-80G.*H100.*V100"),
        (ResourceConfig.with_gpu(), "bf16", "GPU 'auto'; known GPUs: "),
        (ResourceConfig.with_gpu("a100"), "fp8", "GPU 'a100' in 'fp8'; known: bf16"),
        (ResourceConfig.with_tpu("v4-8"), "fp8", "TPU v4 in 'fp8'; known: bf16"),
    ],
)
def test_an_unknown_speed_says_what_is_known(resources: ResourceConfig, dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"no peak FLOP/s known for (a )?{message}"):
        resources.device_flops(dtype)
    with pytest.raises(ValueError, match="no peak FLOP/s known"):
        resources.total_flops(dtype)


def test_a_cpu_has_no_speed_but_a_token_total() -> None:
    with pytest.raises(NotImplementedError, match=r"no peak FLOP/s known for a CPU in 'bf16'; .*H100.*v4-N"):
        ResourceConfig.with_cpu().device_flops()
    assert ResourceConfig.with_cpu(cpu=64).total_flops() == 100e9


def test_what_a_process_on_a_device_finds_in_its_environment() -> None:
    assert CpuConfig().default_env_vars() == {"JAX_PLATFORMS": "cpu"}
    assert GpuConfig("H100").default_env_vars() == {"JAX_PLATFORMS": ""}
    assert TpuConfig("v4-8").default_env_vars() == {"JAX_PLATFORMS": ""}
    vector_memory = "--xla_tpu_scoped_vmem_limit_kib"
    assert TpuConfig("v5p-8").default_env_vars()["LIBTPU_INIT_ARGS"] == f"{vector_memory}=50000"
    assert TpuConfig("v6e-4").default_env_vars()["LIBTPU_INIT_ARGS"] == f"{vector_memory}=98304"
