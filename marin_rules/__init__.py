"""Marin's experiment model on Snakemake: steps with hash-named outputs, each run once, here or on a cluster."""

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
from marin_rules.remote import RemoteCallable, remote
from marin_rules.resources import CpuConfig, GpuConfig, ResourceConfig, TpuConfig
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
    "this_output_path",
    "unwrap_versioned_value",
    "upstream_steps",
    "versioned",
    "walk_config",
]
