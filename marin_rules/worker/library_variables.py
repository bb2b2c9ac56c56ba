"""The variables by which libraries know the processes of a step, set from what `this_process()` says.

Only a step of several processes has them; in any other a library that sees them would wait for peers. What a user has
given to the step as `env_vars` wins over them, and they win over what the driver happened to have in its environment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, MutableMapping
from dataclasses import fields

from marin_rules.clusters.ranks import split_address
from marin_rules.clusters.this_machine import GPU_VARIABLE, named_gpus
from marin_rules.errors import MarinRulesError
from marin_rules.process import ThisProcess, variable_of

_NAMES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS"),
)


def library_variables(process: ThisProcess, gpu_count: int) -> dict[str, str]:
    """What torchrun sets for each process, and what jax.distributed looks for."""
    if process.count == 1 or process.coordinator_address is None:
        return {}
    host, port = split_address(process.coordinator_address)
    values: dict[str, str | int] = {
        "RANK": process.rank,
        "WORLD_SIZE": process.count,
        "LOCAL_RANK": process.local_rank,
        "LOCAL_WORLD_SIZE": process.local_count,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "JAX_COORDINATOR_ADDRESS": process.coordinator_address,
        "JAX_NUM_PROCESSES": process.count,
        "JAX_PROCESS_ID": process.rank,
    }
    if process.local_count == 1 and gpu_count > 0:
        # In the jobs of some clusters jax takes only the GPU with the number of its local rank, unless told otherwise.
        values["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, range(gpu_count)))
    return {name: str(value) for name, value in values.items()}


def leave_outer_step(variables: MutableMapping[str, str]) -> None:
    """Remove these variables if they describe a process of another step, for a run inside a step."""
    with contextlib.suppress(MarinRulesError):  # Incomplete: not set by a worker.
        outer = ThisProcess.from_variables(variables)
        for name, value in library_variables(outer, _gpu_count(variables)).items():
            if variables.get(name) == value:
                del variables[name]
    for field in fields(ThisProcess):
        variables.pop(variable_of(field.name), None)


def forget_library_variables(variables: MutableMapping[str, str]) -> None:
    """Remove what the driver's environment says about processes, before a step of several gets its own variables."""
    for name in _NAMES:
        variables.pop(name, None)


def add_library_variables(variables: MutableMapping[str, str]) -> None:
    """Tell libraries which process this is, unless the step was given other values."""
    process = ThisProcess.from_variables(variables)
    for name, value in library_variables(process, _gpu_count(variables)).items():
        variables.setdefault(name, value)


def _gpu_count(variables: Mapping[str, str]) -> int:
    """GPUs that the process was given by name; on a machine that shares none out there may be others' to be seen."""
    return len(named_gpus(variables.get(GPU_VARIABLE, "")))
