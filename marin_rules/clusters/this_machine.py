"""What this machine has: cores, memory, GPUs. Determined only when steps run here.

Without psutil: it ignores the limits of containers, and `os` has the other numbers without an import.
"""

from __future__ import annotations

import os
import re
from functools import cache

from marin_rules.machines import MachineRequest
from marin_rules.units import memory_text

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Names the GPUs that a process may use; its value here is what can be shared among steps."""

_DEVICE = re.compile(r"nvidia(\d+)")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@cache
def memory_mb() -> int:
    """Memory of this machine, or of the container that we are in."""
    amounts = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                amounts.append(int(file.read()))
        except (OSError, ValueError):  # There is none, or it says "max".
            continue
    return min(amounts) >> 20


def gpus() -> tuple[str, ...]:
    """Names of the GPUs here, as `CUDA_VISIBLE_DEVICES` spells them."""
    visible = os.environ.get(GPU_VARIABLE)
    if visible is not None:
        return named_gpus(visible)
    try:
        devices = (_DEVICE.fullmatch(name) for name in os.listdir("/dev"))
    except OSError:
        return ()
    return tuple(str(number) for number in sorted(int(device[1]) for device in devices if device))


def named_gpus(value: str) -> tuple[str, ...]:
    """The GPUs that a value of `CUDA_VISIBLE_DEVICES` names."""
    names = (name.strip() for name in value.split(","))
    return tuple(name for name in names if name and name not in ("-1", "NoDevFiles"))


def lacking(request: MachineRequest) -> str | None:
    """What is asked for but missing on this machine, in words; a step runs here anyway."""
    lacks = []
    if request.gpus > len(gpus()):
        lacks.append(f"{request.gpus} GPUs" if request.gpus > 1 else "GPU")
    if request.tpus:
        lacks.append(f"TPU {request.tpus[0]}")
    if request.cpu > (os.cpu_count() or 1):
        lacks.append(f"{request.cpu} cores")
    if request.memory_mb > memory_mb():
        lacks.append(f"{memory_text(request.memory_mb)} of memory")
    if request.replicas > 1:
        lacks.append(f"{request.replicas} machines")
    return f"without the {' and '.join(lacks)} it asks for" if lacks else None
