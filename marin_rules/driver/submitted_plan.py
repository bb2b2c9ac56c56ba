"""How a plan that is made now reaches a driver that runs it later.

`marin-rules submit` starts the user's own command once, as a dry run, with a variable that asks for the plan. So
anything wrong with the command, the experiment or the cluster is reported as in any run, before anything is submitted;
and there is no second code path to a plan.

    <folder>/plan          the frozen plan, in a folder of the user's alone
    the memory of submit   all else, as lines of JSON: values of variables (`env_vars` of steps) never touch a file
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import write_plan

_VARIABLE = "MARIN_RULES_SUBMITTED_PLAN"
"""`<where the rest goes> <folder of the plan>`, in the process that is to make a plan."""

NO_DRY_RUN = "a dry run is not submitted: run the command as it is, without `marin-rules submit`"


@dataclass(frozen=True)
class SubmittedPlan:
    """The result of the user's command."""

    run_id: str
    digest: str
    experiment: str
    prefix: str
    base: str
    """Where the prefix keeps what does not belong to a step: `Run.executor_info_base_path`."""

    plan_path: str
    """Where the run will keep its plan."""

    rule_files: tuple[str, ...]
    cluster: str | None
    """The name of the cluster's file that the run is for."""

    max_concurrent: int | None
    variables: tuple[Mapping[str, str], ...]
    """The sets of variables of steps."""

    snakefile: str | None = None
    sends_to: str | None = None
    """The kind of cluster that steps are sent to; None for none."""


def is_plan_wanted() -> bool:
    """Whether this process should hand its plan over and run nothing, unlike a program that an experiment starts."""
    return os.environ.get(_VARIABLE, "").startswith(f"/proc/{os.getppid()}/")


def is_wanted() -> bool:
    """Whether this process belongs to a submission."""
    return _VARIABLE in os.environ


def hand_plan_over(plan: FrozenPlan, *, max_concurrent: int | None = None) -> None:
    """Called by the process that makes the plan."""
    target, _, folder = os.environ[_VARIABLE].partition(" ")
    write_plan(plan, os.path.join(folder, "plan"))
    run = plan.run
    _write(
        target,
        run_id=run.id,
        digest=plan.digest,
        experiment=run.caller_path,
        prefix=run.prefix,
        base=run.executor_info_base_path,
        plan_path=run.plan_path,
        rule_files=run.rule_files,
        cluster=run.cluster,
        max_concurrent=max_concurrent,
        variables=plan.variables,
    )


def hand_engine_over(*, snakefile: str, sends_to: str | None) -> None:
    """Called by the engine, which alone knows where steps would be sent."""
    target, _, _ = os.environ[_VARIABLE].partition(" ")
    _write(target, snakefile=snakefile, sends_to=sends_to)


def _write(target: str, **facts: Any) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_APPEND)
    try:
        data = (json.dumps(facts) + "\n").encode()
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


class Receiver:
    """The other end, in the process that submits."""

    def __init__(self, descriptor: int, folder: str) -> None:
        self._descriptor = descriptor
        self.variables = {_VARIABLE: f"/proc/{os.getpid()}/fd/{descriptor} {folder}"}
        """What the command that makes the plan is started with."""

    def received(self) -> SubmittedPlan:
        """The plan that was handed over, once the command has ended."""
        size = os.fstat(self._descriptor).st_size
        facts: dict[str, Any] = {}
        for line in os.pread(self._descriptor, size, 0).splitlines():
            facts |= json.loads(line)
        if "run_id" not in facts:
            raise SettingsError(
                "nothing was submitted: the command runs no steps. Make reports, graphs and lists directly,"
                " without `marin-rules submit`."
            )
        texts = {name: tuple(facts[name]) for name in ("rule_files", "variables")}
        return SubmittedPlan(**{**facts, **texts})


@contextmanager
def receiver(folder: str) -> Iterator[Receiver]:
    """While this lasts, one command can hand its plan over into this folder."""
    descriptor = os.memfd_create("marin-rules")
    try:
        yield Receiver(descriptor, folder)
    finally:
        os.close(descriptor)
