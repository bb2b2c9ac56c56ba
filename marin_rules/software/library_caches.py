"""Where the libraries of a step's environment keep what they can rebuild: variables that are set for the step.

jax recompiles a model in every process unless it has a folder for compiled code; with one, a short training run
takes little more than half the time. The folder is private, since compiled code is executed, and it is kept between
attempts, steps and runs:

    <environments>/caches-<user>/jax-<machine>      compiled for machines with the same processor
    <environments>/caches-<user>/huggingface        for a user who has no Hugging Face folder of their own

What is already set, for the step or for the driver, stays as it is. A step in any other environment is left alone.
`MARIN_PREFIX`, by which Levanter finds a place for its own files, is set for every step (see `worker.step_data`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import MutableMapping

from marin_rules.settings.ownership import Circle, check_own_folder
from marin_rules.software.manifest import read_manifest
from marin_rules.storage.private_files import make_private_folder

_ALL_IS_WORTH_KEEPING = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""By default jax keeps only what took a second to compile. A step has hundreds of smaller pieces."""


def set_library_caches(variables: MutableMapping[str, str], environment: str = sys.prefix) -> None:
    """Set the variables that the libraries in this environment of a step read, unless they are already set."""
    manifest = read_manifest(environment)
    if manifest is None:
        return
    folder = os.path.join(os.path.dirname(environment), f"caches-{os.getuid()}")
    if "jax" in manifest.packages and "JAX_COMPILATION_CACHE_DIR" not in variables:
        variables["JAX_COMPILATION_CACHE_DIR"] = _private(folder, f"jax-{_machine()}")
        for name, value in _ALL_IS_WORTH_KEEPING.items():
            variables.setdefault(name, value)
    if "huggingface-hub" in manifest.packages and not _has_huggingface(variables):
        variables["HF_HOME"] = _private(folder, "huggingface")


def _has_huggingface(variables: MutableMapping[str, str]) -> bool:
    """Whether the user has a folder with models and a token, in its usual place or elsewhere."""
    caches = variables.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return "HF_HOME" in variables or os.path.isdir(os.path.join(caches, "huggingface"))


def _private(folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    for each in (folder, path):
        make_private_folder(each)
        check_own_folder(each, Circle.own())
    return path


def _machine() -> str:
    """Distinguishes kinds of processors: code compiled for one may end another's process with an illegal instruction,
    and jobs on different nodes may share this folder."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    features = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return hashlib.sha256("\n".join([platform.machine(), *features]).encode()).hexdigest()[:8]
