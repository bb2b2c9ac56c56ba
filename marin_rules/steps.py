"""A step of an experiment: a name, a function, and the config it is called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from marin_rules.errors import PlanError
from marin_rules.placeholders import MARK, InputName
from marin_rules.resources import ResourceConfig
from marin_rules.spec_identity import SpecIdentity


class Spec(Protocol):
    """A StepSpec, as far as a plan has to know: see `marin_rules.plans.step_spec`."""

    @property
    def identity(self) -> SpecIdentity: ...

    @property
    def override_output_path(self) -> str | None: ...


@dataclass(frozen=True, eq=False)
class ExecutorStep[ConfigT]:
    """One node of an experiment. Two step objects are never equal; equal *versions* run once."""

    name: str
    """What the step is called, and the start of its output path; slashes make folders."""

    fn: Callable[[Any], Any] | None
    """Called with the config once every placeholder in it is resolved."""

    config: ConfigT
    """A dataclass (or plain data) that may refer to other steps."""

    description: str | None = None
    """For people; never part of the version."""

    override_output_path: str | None = None
    """Use this output path instead of `<prefix>/<name>-<hash>`; a relative one is taken below the prefix."""

    resources: ResourceConfig | None = None
    """What the step needs to run; wins over what `remote()` gives its function. Either makes the step remote."""

    pip_dependency_groups: Sequence[str] | None = None
    """What to install where the step runs, as in `remote()`, whose own groups win. Never part of the version."""

    conda: str | None = None
    """A conda environment file for `snakemake --sdm conda`; wins over what `remote()` gives its function."""

    report: Sequence[str] = ()
    """Pictures, tables and HTML pages below the output path (glob patterns) to show in the report."""

    tasks: int | None = None
    """Call the function this many times, once per task (see `this_process`); wins over what `remote()` gives its
    function. Tasks run independently of each other, on machines of their own where there are any. Never part of the
    version."""

    spec: Spec | None = None
    """The StepSpec that this step stands for: its identity, and not the version, decides which steps are one."""

    def cd(self, name: str) -> InputName:
        """The path `name` below this step's output path."""
        return InputName(self, name=name)

    def __truediv__(self, name: str) -> InputName:
        return self.cd(name)

    def with_output_path(self, output_path: str) -> ExecutorStep[ConfigT]:
        """The same step with a given output path."""
        return replace(self, override_output_path=output_path)

    def as_input_name(self) -> InputName:
        """The step's output path, to be put in another step's config."""
        return InputName(step=self, name=None)

    def __repr__(self) -> str:
        return f"{MARK}step {self.name!r}>"


def output_path_of(step: ExecutorStep[Any], name: str | None = None) -> InputName:
    """Stands for the output path of `step`, or for `name` below it."""
    return InputName(step=step, name=name)


def get_executor_step(run: ExecutorStep[Any] | InputName) -> ExecutorStep[Any]:
    """The step behind a step or a path in its output."""
    if isinstance(run, ExecutorStep):
        return run
    if not isinstance(run, InputName):
        raise ValueError(f"expected a step or a path in one, got {type(run).__name__}: {run!r}")
    if run.step is None:
        raise ValueError(f"{run.name!r} is a hard-coded path: no step makes it")
    if not isinstance(run.step, ExecutorStep):
        name = getattr(run.step, "name", run.step)
        raise PlanError(
            f"a path refers to {name!r}, which is a {type(run.step).__name__}, not an ExecutorStep. For a StepSpec,"
            " write spec.as_executor_step() in its place."
        )
    return run.step
