"""Stand-ins for what Snakemake gives to a Snakefile: its workflow object, jobs, and the storage of targets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from snakemake_interface_executor_plugins.settings import SharedFSUsage


def wildcards(step: str) -> SimpleNamespace:
    return SimpleNamespace(step=step)


def job(rule: str, step: str | None = None, **details: Any) -> SimpleNamespace:
    """A job of a rule; without a step it is one that is none of ours."""
    named = SimpleNamespace() if step is None else wildcards(step)
    return SimpleNamespace(rule=SimpleNamespace(name=rule), wildcards=named, **details)


def storage(query: str, *, retrieve: bool) -> str:
    """Targets are their queries, as far as rules can tell."""
    assert not retrieve, "data of steps never pass through Snakemake"
    return f"storage/{query}"


class FakeDag:
    def __init__(self, jobs: Iterable[SimpleNamespace] = (), finished: Iterable[SimpleNamespace] = ()) -> None:
        self.jobs = list(jobs)
        self.done = list(finished)
        self.forcefiles: set[str] = set()
        self.ignore_incomplete = False

    def needrun_jobs(self, exclude_finished: bool = True) -> list[SimpleNamespace]:
        return [item for item in self.jobs if not (exclude_finished and item in self.done)]

    def finished(self, item: SimpleNamespace) -> bool:
        return item in self.done


@dataclass
class FakeWorkflow:
    """Snakemake's workflow object as it is for `snakemake` without flags, in the words that `Invocation` reads."""

    dag: FakeDag = field(default_factory=FakeDag)
    rules: list[SimpleNamespace] = field(default_factory=list)
    touch: bool = False
    dryrun: bool = False
    local_exec: bool = True
    is_main_process: bool = True
    execution_settings: Any = field(default_factory=SimpleNamespace)
    executor_settings: Any = None
    _localrules: set[str] = field(default_factory=set)
    global_resources: dict[str, Any] = field(
        default_factory=lambda: {"_nodes": SimpleNamespace(value=None), "_cores": SimpleNamespace(value=2)}
    )
    resource_settings: Any = field(
        default_factory=lambda: SimpleNamespace(
            nodes=None, cores=2, overwrite_threads={}, overwrite_resources={}, default_resources=None
        )
    )
    dag_settings: Any = field(
        default_factory=lambda: SimpleNamespace(
            until=(), omit_from=(), forcerun=(), forceall=False, allowed_rules=(), batch=None
        )
    )
    deployment_settings: Any = field(default_factory=lambda: SimpleNamespace(deployment_method=set()))
    storage_settings: Any = field(default_factory=lambda: SimpleNamespace(shared_fs_usage=SharedFSUsage.all()))
    scheduling_settings: Any = field(
        default_factory=lambda: SimpleNamespace(max_jobs_per_timespan=None, prioritytargets=())
    )
    output_settings: Any = field(
        default_factory=lambda: SimpleNamespace(
            printshellcmds=False, verbose=False, debug_dag=False, log_handler_settings={"marin": None}
        )
    )

    def register_resource(self, name: str, amount: int) -> None:
        self.global_resources[name] = amount
