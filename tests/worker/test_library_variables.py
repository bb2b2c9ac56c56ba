"""What libraries are told of the processes of a step."""

from collections.abc import Mapping

import pytest

from marin_rules.process import ThisProcess
from marin_rules.worker.library_variables import (
    add_library_variables,
    forget_library_variables,
    leave_outer_step,
    library_variables,
)

SECOND_OF_TWO = ThisProcess(rank=1, count=2, coordinator_address="gpu1:61234")
ITS_VARIABLES = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "gpu1",
    "MASTER_PORT": "61234",
    "JAX_COORDINATOR_ADDRESS": "gpu1:61234",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "1",
}


@pytest.mark.parametrize(
    ("process", "gpus", "wanted"),
    [
        (ThisProcess(), 8, {}),
        (SECOND_OF_TWO, 0, ITS_VARIABLES),
        (SECOND_OF_TWO, 3, ITS_VARIABLES | {"JAX_LOCAL_DEVICE_IDS": "0,1,2"}),
        (
            # Processes that share a machine share out its GPUs themselves.
            ThisProcess(rank=1, count=2, local_rank=1, local_count=2, coordinator_address="127.0.0.1:61234"),
            2,
            ITS_VARIABLES
            | {
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "JAX_COORDINATOR_ADDRESS": "127.0.0.1:61234",
            },
        ),
        (
            ThisProcess(rank=1, count=2, coordinator_address="[fe80::1]:61234"),
            0,
            ITS_VARIABLES | {"MASTER_ADDR": "fe80::1", "JAX_COORDINATOR_ADDRESS": "[fe80::1]:61234"},
        ),
    ],
)
def test_the_conventions_of_torchrun_and_jax(process: ThisProcess, gpus: int, wanted: Mapping[str, str]) -> None:
    assert library_variables(process, gpus) == wanted


def test_what_the_step_was_given_wins() -> None:
    seen = {"HOME": "/home/me", **SECOND_OF_TWO.to_variables(), "MASTER_PORT": "29500"}
    add_library_variables(seen)
    assert seen == {**SECOND_OF_TWO.to_variables(), **ITS_VARIABLES, "HOME": "/home/me", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(("visible", "devices"), [("4,7", "0,1"), ("GPU-1a2b", "0"), ("", None), ("NoDevFiles", None)])
def test_jax_takes_all_gpus_that_the_process_was_given(visible: str, devices: str | None) -> None:
    """They are numbered among those that are visible."""
    seen = {"HOME": "/home/me", **SECOND_OF_TWO.to_variables(), "CUDA_VISIBLE_DEVICES": visible}
    add_library_variables(seen)
    assert seen.get("JAX_LOCAL_DEVICE_IDS") == devices


def test_a_process_alone_gets_nothing_and_loses_nothing() -> None:
    seen = {"HOME": "/home/me", **ThisProcess().to_variables(), "WORLD_SIZE": "of my own"}
    before = dict(seen)
    add_library_variables(seen)
    assert seen == before


def test_several_processes_forget_what_the_driver_had() -> None:
    seen = {"HOME": "/home/me", **ITS_VARIABLES, "JAX_LOCAL_DEVICE_IDS": "0"}
    forget_library_variables(seen)
    assert seen == {"HOME": "/home/me"}


def test_a_run_inside_a_rank_is_not_that_rank() -> None:
    own = {"HOME": "/home/me", "CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_RANK": "of my own"}
    seen = {**own, **SECOND_OF_TWO.to_variables()}
    add_library_variables(seen)
    leave_outer_step(seen)
    assert seen == own


def test_damaged_variables_of_an_outer_step_are_removed() -> None:
    seen = {"HOME": "/home/me", "MARIN_PROCESS_RANK": "x", "RANK": "1"}
    leave_outer_step(seen)
    assert seen == {"HOME": "/home/me", "RANK": "1"}
