"""Marin's names in this package: for each of its modules, the names that `marin_rules` also has. Only a table.

The finder serves modules from it, `marin-rules migrate` rewrites imports by it, and docs/from-marin.md shows it. A name
is called the same in both unless `RENAMED` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PACKAGES = ("marin", "fray", "rigging")
"""The top-level packages of Marin that are taken over."""

_PLACEHOLDERS = (
    "THIS_OUTPUT_PATH",
    "ExecutorStep",
    "InputName",
    "InputNameEvent",
    "MirroredValue",
    "OutputName",
    "VersionedEvent",
    "VersionedValue",
    "ensure_versioned",
    "get_executor_step",
    "instantiate_config",
    "mirrored",
    "output_path_of",
    "resolve_local_placeholders",
    "this_output_path",
    "unwrap_versioned_value",
    "upstream_steps",
    "versioned",
    "walk_config",
)
_EXECUTOR = (
    *_PLACEHOLDERS,
    "Executor",
    "ExecutorInfo",
    "ExecutorMainConfig",
    "ExecutorStepInfo",
    "StepRunner",
    "StepSpec",
    "collect_dependencies_and_version",
    "compute_output_path",
    "executor_main",
    "materialize",
    "resolve_executor_step",
)
_STATUSES = ("PreviousTaskFailedError", "STATUS_DEP_FAILED", "STATUS_FAILED", "STATUS_RUNNING", "STATUS_SUCCESS")
_REMOTE = ("RemoteCallable", "remote")
_ARTIFACTS = ("Artifact", "PathMetadata", "PathsMetadata")
_REGISTRY = (
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
)
_DEVICES = (
    "ANY_REGION",
    "CpuConfig",
    "GpuConfig",
    "ResourceConfig",
    "TpuConfig",
    "TpuTopologyInfo",
    "get_tpu_topology",
)

COUNTERPARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "marin.execution": (*_EXECUTOR, *_STATUSES, *_ARTIFACTS),
        "marin.execution.artifact": _ARTIFACTS,
        "marin.execution.artifact_registry": _REGISTRY,
        "marin.execution.dag": _PLACEHOLDERS,
        "marin.execution.executor": _EXECUTOR,
        "marin.execution.executor_step_status": _STATUSES,
        "marin.execution.remote": _REMOTE,
        "marin.execution.step_model": ("StepSpec",),
        "marin.execution.step_runner": ("StepRunner", "resolve_executor_step", *_STATUSES),
        "marin.execution.step_spec": ("StepSpec",),
        "marin.execution.types": _PLACEHOLDERS,
        "fray": _DEVICES,
        "fray.cluster": _DEVICES,
        "fray.cluster.base": _DEVICES,
        "fray.types": _DEVICES,
        "fray.v1.cluster": _DEVICES,
        "fray.v1.cluster.base": _DEVICES,
        "fray.v2": _DEVICES,
        "fray.v2.types": _DEVICES,
        "rigging.filesystem": (
            "TransferBudgetExceeded",
            "marin_prefix",
            "marin_region",
            "marin_temp_bucket",
            "mirror_budget",
            "open_url",
            "region_from_metadata",
            "url_to_fs",
        ),
        "rigging.log_setup": ("configure_logging",),
    }
)
"""Module of Marin -> the names in it that this package has."""

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "TpuTopologyInfo": "TpuTopology",
        "get_tpu_topology": "tpu_topology",
        "region_from_metadata": "machine_region",
    }
)
"""Names that are different here."""

_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "fray": (
            "jobs are not submitted by hand: mark the function with remote(...) and let a step run it, or start"
            " processes inside the step's function"
        ),
        "fray.types.Entrypoint": "mark the function with remote(...), and let a step run it",
        "fray.types.JobRequest": "mark the function with remote(...), and let a step run it",
        "fray.types.create_environment": "give env_vars= and pip_dependency_groups= to remote(...)",
        "fray.types.TPU_TOPOLOGIES": "use tpu_topology(name), or marin_rules.resources.TPU_TOPOLOGIES, by name",
        "marin": (
            "Marin's step functions are not part of marin-rules: write the function in your own repository, with the"
            " libraries that it needs imported inside"
        ),
        "marin.execution": "it is internal to Marin's executor: the engine does this for every step",
        "marin.execution.lazy": "lazy steps came after Marin's June 2026 version: write an ExecutorStep or a StepSpec",
        "marin.resources": "use ResourceConfig.with_tpu(...) of marin_rules",
        "rigging": "use fsspec, which knows gs://, s3:// and mirror:// inside steps, and the helpers of marin_rules",
        "rigging.distributed_lock": "the worker of a step holds its lease: a step's function needs no lock",
    }
)
"""What to use instead of a module or a name that has no counterpart, the longest that fits."""


def counterpart(module: str, name: str) -> str | None:
    """What a name of one of Marin's modules is called in `marin_rules`; None if it has no counterpart."""
    return RENAMED.get(name, name) if name in COUNTERPARTS.get(module, ()) else None


def advice(what: str) -> str:
    """What to use instead of a module, or of a name of a module, that has no counterpart."""
    parts = what.split(".")
    found = (_ADVICE.get(".".join(parts[:count])) for count in range(len(parts), 0, -1))
    return next((text for text in found if text is not None), "")
