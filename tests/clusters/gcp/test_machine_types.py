"""Which machine a step gets on Google Cloud."""

from __future__ import annotations

import pytest

from marin_rules.clusters.gcp.machine_types import (
    GPU_NAMES,
    boot_disk_of,
    gpu_machine,
    gpu_names,
    largest,
    plain_machine,
)

GIGABYTE = 1024


SIZES = {
    # Google's page on prices of virtual machines
    "c4-standard": {2: 7, 4: 15, 8: 30, 16: 60, 24: 90, 32: 120, 48: 180, 96: 360, 144: 540, 192: 720, 288: 1080},
    "c4-highmem": {2: 15, 4: 31, 8: 62, 16: 124, 24: 186, 32: 248, 48: 372, 96: 744, 144: 1116, 192: 1488, 288: 2232},
    "c4-highcpu": {2: 4, 4: 8, 8: 16, 16: 32, 24: 48, 32: 64, 48: 96, 96: 192, 144: 288, 192: 384, 288: 576},
    # Google's page on general-purpose machines
    "n4-standard": {2: 8, 4: 16, 8: 32, 16: 64, 32: 128, 48: 192, 64: 256, 80: 320},
    "n4-highcpu": {2: 4, 4: 8, 8: 16, 16: 32, 32: 64, 48: 96, 64: 128, 80: 160},
    "n4-highmem": {2: 16, 4: 32, 8: 64, 16: 128, 32: 256, 48: 384, 64: 512, 80: 640},
    # Red Hat's list of the machines that OpenShift runs on
    "e2-standard": {4: 16, 8: 32, 16: 64, 32: 128},
    "e2-highmem": {4: 32, 8: 64, 16: 128},
    "e2-highcpu": {8: 8, 16: 16, 32: 32},
    "n2-standard": {4: 16, 8: 32, 16: 64, 32: 128, 48: 192, 64: 256, 80: 320, 96: 384, 128: 512},
    "n2-highmem": {4: 32, 8: 64, 16: 128, 32: 256, 48: 384, 64: 512, 80: 640, 96: 768, 128: 864},
    "n2-highcpu": {8: 8, 16: 16, 32: 32, 48: 48, 64: 64, 80: 80, 96: 96},
}
"""Gigabytes by cores, as others have written them down."""

GPU_SIZES = {
    # The same list of Red Hat's
    "L4": {
        "g2-standard-4": (4, 16),
        "g2-standard-8": (8, 32),
        "g2-standard-12": (12, 48),
        "g2-standard-16": (16, 64),
        "g2-standard-24": (24, 96),
        "g2-standard-32": (32, 128),
        "g2-standard-48": (48, 192),
        "g2-standard-96": (96, 384),
    },
    "A100-40G": {
        "a2-highgpu-1g": (12, 85),
        "a2-highgpu-2g": (24, 170),
        "a2-highgpu-4g": (48, 340),
        "a2-highgpu-8g": (96, 680),
    },
    "A100-80G": {
        "a2-ultragpu-1g": (12, 170),
        "a2-ultragpu-2g": (24, 340),
        "a2-ultragpu-4g": (48, 680),
        "a2-ultragpu-8g": (96, 1360),
    },
    "H100-80G": {
        "a3-highgpu-1g": (26, 234),
        "a3-highgpu-2g": (52, 468),
        "a3-highgpu-4g": (104, 936),
        "a3-highgpu-8g": (208, 1872),
    },
    "H100-MEGA-80G": {"a3-megagpu-8g": (208, 1872)},
}


@pytest.mark.parametrize("family", SIZES)
def test_a_machine_has_what_its_maker_says_and_no_more(family: str) -> None:
    series = [family.partition("-")[0]]
    for cpus, gigabytes in SIZES[family].items():
        name, memory = f"{family}-{cpus}", gigabytes * GIGABYTE
        exact = plain_machine(cpus, memory, series)
        assert exact is not None
        assert exact.name == name
        more = plain_machine(cpus, memory + 1, series), plain_machine(cpus + 1, memory, series)
        assert all(machine is None or machine.name != name for machine in more)


@pytest.mark.parametrize("gpu", GPU_SIZES)
def test_a_machine_with_gpus_has_what_its_maker_says_and_no_more(gpu: str) -> None:
    gpus = {"24": 2, "48": 4, "96": 8}
    for name, (cpus, gigabytes) in GPU_SIZES[gpu].items():
        size = name.rpartition("-")[2]
        count = int(size.removesuffix("g")) if size.endswith("g") else gpus.get(size, 1)
        exact = gpu_machine(gpu, count, cpus, gigabytes * GIGABYTE)
        assert exact is not None
        assert (exact.name, exact.gpus) == (name, count)
        more = gpu_machine(gpu, count, cpus, gigabytes * GIGABYTE + 1), gpu_machine(gpu, count, cpus + 1, 1)
        assert all(machine is None or machine.name != name for machine in more)


@pytest.mark.parametrize(
    ("cpus", "gigabytes", "expected"),
    [
        (1, 1, "e2-highcpu-2"),
        (1, 4, "e2-standard-2"),
        (2, 16, "e2-highmem-2"),
        (4, 16, "e2-standard-4"),
        (4, 17, "e2-highmem-4"),
        (3, 40, "e2-highmem-8"),
        (16, 16, "e2-highcpu-16"),
        (32, 128, "e2-standard-32"),
        (16, 129, "n2-highmem-32"),
        (33, 64, "n2-highcpu-64"),
        (33, 65, "n2-standard-48"),
        (96, 700, "n2-highmem-96"),
        (128, 864, "n2-highmem-128"),
    ],
)
def test_the_smallest_plain_machine_is_taken(cpus: int, gigabytes: int, expected: str) -> None:
    machine = plain_machine(cpus, gigabytes * GIGABYTE)
    assert machine is not None
    assert machine.name == expected


@pytest.mark.parametrize(("cpus", "gigabytes"), [(129, 1), (1, 865)])
def test_nothing_is_taken_if_no_machine_is_large_enough(cpus: int, gigabytes: int) -> None:
    assert plain_machine(cpus, gigabytes * GIGABYTE) is None


@pytest.mark.parametrize(
    ("series", "expected", "disk"),
    [("n4", "n4-standard-8", "hyperdisk-balanced"), ("c4", "c4-highmem-8", "hyperdisk-balanced")],
)
def test_a_series_can_be_chosen_and_brings_its_boot_disk(series: str, expected: str, disk: str) -> None:
    machine = plain_machine(8, 32 * GIGABYTE, [series])
    assert machine is not None
    assert (machine.name, machine.boot_disk) == (expected, disk)


@pytest.mark.parametrize(
    ("gpu", "gpus", "cpus", "gigabytes", "expected"),
    [
        ("L4", 1, 4, 16, "g2-standard-4"),
        ("L4", 1, 4, 20, "g2-standard-8"),
        ("L4", 1, 24, 100, "g2-standard-32"),
        ("L4", 2, 4, 16, "g2-standard-24"),
        ("L4", 3, 4, 16, "g2-standard-48"),
        ("A100-40G", 1, 1, 1, "a2-highgpu-1g"),
        ("A100-40G", 16, 1, 1, "a2-megagpu-16g"),
        ("A100-80G", 8, 1, 1000, "a2-ultragpu-8g"),
        ("H100-80G", 1, 8, 64, "a3-highgpu-1g"),
        ("H100-80G", 8, 8, 64, "a3-highgpu-8g"),
        ("H100-MEGA-80G", 1, 8, 64, "a3-megagpu-8g"),
        ("H200-141G", 8, 8, 64, "a3-ultragpu-8g"),
        ("B200", 8, 8, 64, "a4-highgpu-8g"),
        ("T4", 1, 4, 15, "n1-standard-4"),
        ("T4", 1, 4, 26, "n1-highmem-4"),
        ("V100", 8, 4, 16, "n1-highmem-4"),
        ("V100", 1, 16, 16, "n1-standard-16"),
    ],
)
def test_the_smallest_machine_with_gpus_is_taken(gpu: str, gpus: int, cpus: int, gigabytes: int, expected: str) -> None:
    machine = gpu_machine(gpu, gpus, cpus, gigabytes * GIGABYTE)
    assert machine is not None
    assert machine.name == expected
    assert machine.attached == (gpu in ("T4", "V100"))


@pytest.mark.parametrize(
    ("gpu", "gpus", "cpus", "gigabytes"), [("L4", 9, 1, 1), ("L4", 1, 97, 1), ("V100", 1, 97, 1), ("B200", 8, 1, 4000)]
)
def test_no_machine_has_more_than_google_offers(gpu: str, gpus: int, cpus: int, gigabytes: int) -> None:
    assert gpu_machine(gpu, gpus, cpus, gigabytes * GIGABYTE) is None


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("L4", ["L4"]),
        ("nvidia-l4", ["L4"]),
        ("a100-80gb", ["A100-80G"]),
        ("A100", ["A100-40G", "A100-80G"]),
        ("H100", ["H100-80G", "H100-MEGA-80G"]),
        ("tesla-t4", ["T4"]),
        ("MI300X", []),
        ("L40S", []),
    ],
)
def test_gpus_are_found_by_the_names_that_people_use(variant: str, expected: list[str]) -> None:
    assert gpu_names(variant) == expected


def test_the_largest_machine_has_the_most_gpus_or_memory() -> None:
    assert largest("L4").name == "g2-standard-96"
    assert largest().name == "n2-highmem-128"
    assert {largest(name).gpus for name in GPU_NAMES} == {4, 8, 16}


@pytest.mark.parametrize(
    ("name", "disk"),
    [
        ("n4-standard-4", "hyperdisk-balanced"),
        ("c4d-standard-8", "hyperdisk-balanced"),
        ("a3-ultragpu-8g", "hyperdisk-balanced"),
        ("a3-highgpu-8g", "pd-balanced"),
        ("n2d-standard-8", "pd-balanced"),
    ],
)
def test_the_boot_disk_of_a_type_that_a_profile_names(name: str, disk: str) -> None:
    assert boot_disk_of(name) == disk
