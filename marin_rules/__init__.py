"""Marin's experiment model on Snakemake: steps with hash-named outputs, each run once, here or on a cluster.

What is exported here is imported when it is first used: a command or a job that needs none of it starts sooner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# At once, because the module has the same name: imported later, it would take the function's place in this package.
from marin_rules.remote import remote

if TYPE_CHECKING:
    from marin_rules.completion import declare_complete
    from marin_rules.configs import (
        collect_dependencies_and_version,
        instantiate_config,
        resolve_local_placeholders,
        unwrap_versioned_value,
        upstream_steps,
        walk_config,
    )
    from marin_rules.driver.executor import Executor, compute_output_path, materialize
    from marin_rules.driver.main import ExecutorMainConfig, executor_main
    from marin_rules.errors import ExperimentError, MarinRulesError, PlanError, SettingsError
    from marin_rules.handwritten import SnakemakeRule
    from marin_rules.placeholders import (
        THIS_OUTPUT_PATH,
        InputName,
        MirroredValue,
        OutputName,
        VersionedValue,
        ensure_versioned,
        mirrored,
        this_output_path,
        versioned,
    )
    from marin_rules.process import ThisProcess, this_process
    from marin_rules.remote import RemoteCallable
    from marin_rules.resources import CpuConfig, GpuConfig, ResourceConfig, TpuConfig
    from marin_rules.shards import shards_of_this_task
    from marin_rules.steps import ExecutorStep, get_executor_step, output_path_of
    from marin_rules.storage.budget import mirror_budget
    from marin_rules.storage.prefix import marin_prefix, marin_region
    from marin_rules.storage.temporary import marin_temp_bucket

__all__ = [
    "THIS_OUTPUT_PATH",
    "CpuConfig",
    "Executor",
    "ExecutorMainConfig",
    "ExecutorStep",
    "ExperimentError",
    "GpuConfig",
    "InputName",
    "MarinRulesError",
    "MirroredValue",
    "OutputName",
    "PlanError",
    "RemoteCallable",
    "ResourceConfig",
    "SettingsError",
    "SnakemakeRule",
    "ThisProcess",
    "TpuConfig",
    "VersionedValue",
    "collect_dependencies_and_version",
    "compute_output_path",
    "declare_complete",
    "ensure_versioned",
    "executor_main",
    "get_executor_step",
    "instantiate_config",
    "marin_prefix",
    "marin_region",
    "marin_temp_bucket",
    "materialize",
    "mirror_budget",
    "mirrored",
    "output_path_of",
    "remote",
    "resolve_local_placeholders",
    "shards_of_this_task",
    "this_output_path",
    "this_process",
    "unwrap_versioned_value",
    "upstream_steps",
    "versioned",
    "walk_config",
]

_EXPORTS = {
    "completion": ["declare_complete"],
    "configs": [
        "collect_dependencies_and_version",
        "instantiate_config",
        "resolve_local_placeholders",
        "unwrap_versioned_value",
        "upstream_steps",
        "walk_config",
    ],
    "driver.executor": ["Executor", "compute_output_path", "materialize"],
    "driver.main": ["ExecutorMainConfig", "executor_main"],
    "errors": ["ExperimentError", "MarinRulesError", "PlanError", "SettingsError"],
    "handwritten": ["SnakemakeRule"],
    "placeholders": [
        "THIS_OUTPUT_PATH",
        "InputName",
        "MirroredValue",
        "OutputName",
        "VersionedValue",
        "ensure_versioned",
        "mirrored",
        "this_output_path",
        "versioned",
    ],
    "process": ["ThisProcess", "this_process"],
    "remote": ["RemoteCallable"],
    "resources": ["CpuConfig", "GpuConfig", "ResourceConfig", "TpuConfig"],
    "shards": ["shards_of_this_task"],
    "steps": ["ExecutorStep", "get_executor_step", "output_path_of"],
    "storage.budget": ["mirror_budget"],
    "storage.prefix": ["marin_prefix", "marin_region"],
    "storage.temporary": ["marin_temp_bucket"],
}
"""Module -> what is exported of it. The imports above say the same to type checkers and editors."""

_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

if not TYPE_CHECKING:  # Else a misspelt name would pass a type check.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
