"""Marin's experiment model on Snakemake: steps with hash-named outputs, each run once, here or on a cluster.

Exported names are imported on first use, so a command or a job that needs none of them starts sooner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Imported eagerly, because the module has the same name: imported later, it would replace the function in this package.
from marin_rules.remote import remote

if TYPE_CHECKING:
    from marin_rules.completion import declare_complete
    from marin_rules.configs import (
        InputNameEvent,
        VersionedEvent,
        collect_dependencies_and_version,
        instantiate_config,
        resolve_local_placeholders,
        unwrap_versioned_value,
        upstream_steps,
        walk_config,
    )
    from marin_rules.driver.executor import Executor, compute_output_path, materialize
    from marin_rules.driver.main import ExecutorMainConfig, executor_main
    from marin_rules.driver.step_runner import StepRunner
    from marin_rules.errors import ExperimentError, MarinRulesError, PlanError, SettingsError
    from marin_rules.handwritten import SnakemakeRule
    from marin_rules.log_setup import configure_logging
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
    from marin_rules.plans.step_spec import StepSpec, resolve_executor_step
    from marin_rules.process import ThisProcess, this_process
    from marin_rules.remote import RemoteCallable
    from marin_rules.resources import (
        ANY_REGION,
        CpuConfig,
        GpuConfig,
        ResourceConfig,
        TpuConfig,
        TpuTopology,
        tpu_topology,
    )
    from marin_rules.shards import shards_of_this_task
    from marin_rules.state.artifact_registry import (
        ArtifactAlreadyExistsError,
        ArtifactEntry,
        ArtifactNotFoundError,
        ArtifactRegistry,
        ArtifactRegistryError,
        FilesystemArtifactRegistry,
        InvalidArtifactIdError,
        get_default_registry,
        set_default_registry,
        use_default_registry,
    )
    from marin_rules.state.artifacts import Artifact, PathMetadata, PathsMetadata
    from marin_rules.state.failures import PreviousTaskFailedError
    from marin_rules.state.info import ExecutorInfo, ExecutorStepInfo
    from marin_rules.state.status import STATUS_DEP_FAILED, STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
    from marin_rules.steps import ExecutorStep, get_executor_step, output_path_of
    from marin_rules.storage.budget import TransferBudgetExceeded, mirror_budget
    from marin_rules.storage.leases.lease import LeaseLostError
    from marin_rules.storage.metadata import machine_region
    from marin_rules.storage.opening import open_url, url_to_fs
    from marin_rules.storage.prefix import marin_prefix, marin_region
    from marin_rules.storage.temporary import marin_temp_bucket

__all__ = [
    "ANY_REGION",
    "STATUS_DEP_FAILED",
    "STATUS_FAILED",
    "STATUS_RUNNING",
    "STATUS_SUCCESS",
    "THIS_OUTPUT_PATH",
    "Artifact",
    "ArtifactAlreadyExistsError",
    "ArtifactEntry",
    "ArtifactNotFoundError",
    "ArtifactRegistry",
    "ArtifactRegistryError",
    "CpuConfig",
    "Executor",
    "ExecutorInfo",
    "ExecutorMainConfig",
    "ExecutorStep",
    "ExecutorStepInfo",
    "ExperimentError",
    "FilesystemArtifactRegistry",
    "GpuConfig",
    "InputName",
    "InputNameEvent",
    "InvalidArtifactIdError",
    "LeaseLostError",
    "MarinRulesError",
    "MirroredValue",
    "OutputName",
    "PathMetadata",
    "PathsMetadata",
    "PlanError",
    "PreviousTaskFailedError",
    "RemoteCallable",
    "ResourceConfig",
    "SettingsError",
    "SnakemakeRule",
    "StepRunner",
    "StepSpec",
    "ThisProcess",
    "TpuConfig",
    "TpuTopology",
    "TransferBudgetExceeded",
    "VersionedEvent",
    "VersionedValue",
    "collect_dependencies_and_version",
    "compute_output_path",
    "configure_logging",
    "declare_complete",
    "ensure_versioned",
    "executor_main",
    "get_default_registry",
    "get_executor_step",
    "instantiate_config",
    "machine_region",
    "marin_prefix",
    "marin_region",
    "marin_temp_bucket",
    "materialize",
    "mirror_budget",
    "mirrored",
    "open_url",
    "output_path_of",
    "remote",
    "resolve_executor_step",
    "resolve_local_placeholders",
    "set_default_registry",
    "shards_of_this_task",
    "this_output_path",
    "this_process",
    "tpu_topology",
    "unwrap_versioned_value",
    "upstream_steps",
    "url_to_fs",
    "use_default_registry",
    "versioned",
    "walk_config",
]

_EXPORTS = {
    "completion": ["declare_complete"],
    "configs": [
        "InputNameEvent",
        "VersionedEvent",
        "collect_dependencies_and_version",
        "instantiate_config",
        "resolve_local_placeholders",
        "unwrap_versioned_value",
        "upstream_steps",
        "walk_config",
    ],
    "driver.executor": ["Executor", "compute_output_path", "materialize"],
    "driver.main": ["ExecutorMainConfig", "executor_main"],
    "driver.step_runner": ["StepRunner"],
    "errors": ["ExperimentError", "MarinRulesError", "PlanError", "SettingsError"],
    "handwritten": ["SnakemakeRule"],
    "log_setup": ["configure_logging"],
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
    "plans.step_spec": ["StepSpec", "resolve_executor_step"],
    "process": ["ThisProcess", "this_process"],
    "remote": ["RemoteCallable"],
    "resources": ["ANY_REGION", "CpuConfig", "GpuConfig", "ResourceConfig", "TpuConfig", "TpuTopology", "tpu_topology"],
    "shards": ["shards_of_this_task"],
    "state.artifact_registry": [
        "ArtifactAlreadyExistsError",
        "ArtifactEntry",
        "ArtifactNotFoundError",
        "ArtifactRegistry",
        "ArtifactRegistryError",
        "FilesystemArtifactRegistry",
        "InvalidArtifactIdError",
        "get_default_registry",
        "set_default_registry",
        "use_default_registry",
    ],
    "state.artifacts": ["Artifact", "PathMetadata", "PathsMetadata"],
    "state.failures": ["PreviousTaskFailedError"],
    "state.info": ["ExecutorInfo", "ExecutorStepInfo"],
    "state.status": ["STATUS_DEP_FAILED", "STATUS_FAILED", "STATUS_RUNNING", "STATUS_SUCCESS"],
    "steps": ["ExecutorStep", "get_executor_step", "output_path_of"],
    "storage.budget": ["TransferBudgetExceeded", "mirror_budget"],
    "storage.leases.lease": ["LeaseLostError"],
    "storage.metadata": ["machine_region"],
    "storage.opening": ["open_url", "url_to_fs"],
    "storage.prefix": ["marin_prefix", "marin_region"],
    "storage.temporary": ["marin_temp_bucket"],
}
"""Module -> the names exported from it. The imports above say the same to type checkers and editors."""

_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

if not TYPE_CHECKING:  # Otherwise a misspelt name would pass a type check.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
