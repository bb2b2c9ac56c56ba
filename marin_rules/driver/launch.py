"""The launch of a step on a cluster: what its job executes, and everything that the job is given.

One `Launcher` a run, one `Launch` a job:

    launcher.check(steps, groups)      refuses what cannot be sent; a dry run does so, too
    launcher.draft(step, cores=4)      what its job will be given, before anything is sent
    launcher.prepare(steps)            before the first job: checks again, and sends the code ahead
    launch = launcher.for_step(step, cores=4, command=..., folder=..., log=...)
    launch.script              lines of bash, the body of a batch script
    launch.variables           every variable that the job starts with, beside those that the cluster itself sets
    launch.folder, launch.log  where it starts, and what it prints to: of the driver's, if its node has them

Where nodes share the driver's files, the job runs the step's worker from them, with the driver's Python or the one of
the step's environment. Where they do not (`jobs: shared: false` in the cluster's file), everything it needs is below
the prefix: the plan, with the user's modules in it, and the package as an archive; its script is the `bootstrap` that
fetches both. The job is given their digests, and runs nothing else.

The values of variables may be secrets: a cluster hands them over in the job's environment, never in its script, on a
command line or in a log.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from marin_rules.driver.job_variables import chosen_variables
from marin_rules.driver.node_python import node_python
from marin_rules.driver.node_start import check_prefix, log_there, start_lines
from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.settings.cluster_file import find_cluster_file
from marin_rules.settings.job_settings import JobSettings
from marin_rules.software import bootstrap
from marin_rules.software.code_archive import CodeArchive, package_files, publish
from marin_rules.worker.module_start import START_VARIABLE, modules_of
from marin_rules.worker.variables import for_job_elsewhere, one_by_one

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables that tell libraries how many cores a job has: otherwise they would take all cores of a node."""

_WORKER = "marin_rules.worker"

_EXITS = {
    bootstrap.EXIT_DAMAGED: "what it fetched is not what this run has sent",
    bootstrap.EXIT_NOT_OURS: "others could put their code into the scratch folder of its node",
    bootstrap.EXIT_UNREACHABLE: "its node could not fetch the code from the prefix",
    bootstrap.EXIT_WRONG_PYTHON: "the Python of its node cannot run steps of this run",
    127: "its node does not have the Python that the cluster's file names, or uv",
}

_NO_GROUPS = (
    "jobs of several steps need the driver's files, which the cluster's nodes do not share (jobs: shared: false): leave"
    " out --groups and `group:`"
)


@dataclass(frozen=True)
class Launch:
    """What the job of a step executes, and the variables that it finds."""

    script: str
    """Lines of bash."""

    variables: Mapping[str, str] = field(repr=False)
    """Names and values, some of them secret."""

    folder: str
    """Where it starts."""

    log: str
    """The file that it prints to, `JOB` for the job's id."""


class Launcher:
    """Makes the launches of one run."""

    def __init__(
        self,
        plan: FrozenPlan,
        settings: JobSettings | None = None,
        cluster: str | None = None,
        *,
        has_no_disk: bool = False,
    ) -> None:
        """`has_no_disk`: the machines of this kind of cluster have nothing in common but a bucket."""
        self._has_no_disk = has_no_disk
        self._plan = plan
        self._settings = settings or JobSettings()
        self._cluster = cluster
        self._archive: CodeArchive | None = None

    @property
    def shared(self) -> bool:
        """Whether nodes see the driver's files."""
        return self._settings.shared

    @property
    def meeting_place(self) -> str:
        """Where the machines of a job can leave messages for each other."""
        return os.path.join(self._plan.run.directory, "meetings")

    def check(self, steps: Iterable[FrozenStep], groups: Iterable[str] = ()) -> None:
        """Refuse steps that cannot be launched, as far as is known yet, and `groups` of several; sends nothing."""
        if self._settings.shared:
            return
        run = self._plan.run
        check_prefix((run.prefix, run.executor_info_base_path), has_no_disk=self._has_no_disk)
        for step in steps:
            self._check(step)
        if names := ", ".join(sorted(groups)):
            raise SettingsError(f"group {names}: {_NO_GROUPS}")

    def prepare(self, steps: Iterable[FrozenStep], say: Callable[[str], None]) -> None:
        """Make sure that these steps can be launched, before the first of them is."""
        if self._settings.shared:
            return
        self.check(steps)
        files = package_files()
        if self._cluster is not None:  # Jobs need it for regions and buckets, and expect it in the project's files.
            files[f"config/clusters/{self._cluster}.yaml"] = find_cluster_file(self._cluster).read_bytes()
        self._archive = CodeArchive.of(files)
        publish(self._archive, self._plan.run.executor_info_base_path, say)

    def for_step(
        self, step: FrozenStep, arguments: Sequence[str] = (), *, cores: int, command: str, folder: str, log: str
    ) -> Launch:
        """The launch of a step whose job has `cores`; `arguments` are further ones for its worker.

        With the driver's own files `command` would start the step, in `folder`, and `log` would be the job's log.
        """
        if self._settings.shared:
            whole = " ".join([command, *arguments])
            return self.for_group([step.variables], cores=cores, command=whole, folder=folder, log=log)
        assert self._archive is not None, "prepare comes before the first launch"
        return self._elsewhere(step, arguments, cores, self._archive)

    def draft(self, step: FrozenStep, *, cores: int) -> Launch:
        """A launch to be looked at before the code is sent ahead: as large as that of the step will be, with the same
        variables."""
        if self._settings.shared:
            return self.for_step(step, cores=cores, command="", folder="", log="")
        return self._elsewhere(step, (), cores, CodeArchive(b""))

    def for_group(self, numbers: Iterable[int | None], *, cores: int, command: str, folder: str, log: str) -> Launch:
        """The same for several steps in one job, which Snakemake runs; `numbers` are those of their variables."""
        if not self._settings.shared:
            raise SettingsError(_NO_GROUPS)
        return Launch(command, self._variables(numbers, cores), folder, log)

    def _elsewhere(self, step: FrozenStep, arguments: Sequence[str], cores: int, archive: CodeArchive) -> Launch:
        own = one_by_one(step.variables, self._plan.variables)
        variables, start = {**self._variables([], cores), **own}, self._start(archive)
        if step.machines is not None and (step.machines.replicas > 1 or step.machines.tpus):
            variables[START_VARIABLE] = start  # For the other machines, which have nothing yet, either.
        script = f"set -- {shlex.join([*self._worker(step), *arguments])}\n{start}"
        return Launch(script, variables, self._settings.scratch, self.log_there)

    def _variables(self, numbers: Iterable[int | None], cores: int) -> dict[str, str]:
        settings = self._settings
        return {
            **dict.fromkeys(THREADS, str(cores)),
            **chosen_variables(os.environ, shared=settings.shared, more=settings.variables),
            **for_job_elsewhere(numbers, self._plan.variables),
        }

    def explain(self, exit_code: int | None) -> str | None:
        """Why a job never reached its worker, if its exit code says so."""
        return None if self._settings.shared or exit_code is None else _EXITS.get(exit_code)

    @property
    def log_there(self) -> str:
        """What jobs print to on nodes that do not share the driver's files, `JOB` for the job's id."""
        return log_there(self._settings)

    def _worker(self, step: FrozenStep) -> list[str]:
        """The module that runs the step, and its arguments."""
        what = ("--digest", self._plan.digest, "--plan", self._plan.run.plan_path, "--step", step.key)
        return [*modules_of(step, _WORKER), *what]

    def _start(self, archive: CodeArchive) -> str:
        """Bash that starts the module of its arguments on a node that has nothing yet."""
        run, settings = self._plan.run, self._settings
        version = run.python_version
        python = node_python(settings, run.prefix, version)
        place = archive.path_below(run.executor_info_base_path)
        return start_lines(python, place, archive.digest, version, settings.scratch)

    def _check(self, step: FrozenStep) -> None:
        why = None
        if step.rule is not None:
            why = f"the rule {step.rule} needs the Snakefile and its files"
        elif step.index in self._plan.conda:
            why = "its conda environment was made on this machine"
        if why is not None:
            raise SettingsError(
                f"step {step.name!r} cannot run on nodes that do not share this machine's files (jobs: shared: false):"
                f" {why}. Use a cluster that shares them, or let the step run beside the driver."
            )
