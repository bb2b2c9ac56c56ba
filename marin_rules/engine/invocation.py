"""What the user asked of Snakemake: the only place that reads the state of its workflow object.

Valid once the DAG is being built (input functions run then); while the Snakefile is parsed it is not known yet.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from snakemake_interface_executor_plugins.settings import SharedFSUsage

from marin_rules.engine import plan_in_process
from marin_rules.engine.cut import Cut
from marin_rules.engine.rule_files import check_rule_file
from marin_rules.errors import SettingsError
from marin_rules.plans.conda import CondaEnvironment

_FOREIGN_EXECUTORS = {
    "snakemake_executor_plugin_slurm": "slurm",
    "snakemake_executor_plugin_drmaa": "slurm",
}
"""Third-party executors, and the clusters that they send jobs to."""

_STATES = "is about files and their dates, which say nothing about steps: `snakemake -n` shows the state of every step"
_DEFAULT_RATE = (100, 1)
"""How many jobs Snakemake starts, and in how many seconds, by default."""

_OUR_CONSOLE = {"marin"}
"""The logger plug-in that reports a run in terms of steps. Any other reports jobs."""

QUESTIONS = {
    "summary": _STATES,
    "detailed_summary": _STATES,
    "list_changes": _STATES,
    "list_input_changes": _STATES,
    "list_params_changes": _STATES,
    "list_untracked": "knows no file of a step: everything below the prefix belongs to steps",
    "archive": "knows no file of a step, and would archive none",
    "delete_all_output": "deletes nothing that steps have written: `marin-rules delete STEP` does, step by step",
    "delete_temp_output": "deletes nothing: steps write no temporary output that Snakemake knows of",
}
"""Flags of Snakemake that are refused, and why."""


class Invocation:
    """A view of Snakemake's `workflow` object."""

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow
        self._resources: dict[str, Mapping[str, Any]] | None = None

    @property
    def executes(self) -> bool:
        """A run or a dry run; False for reports, graphs, summaries, lints and the like."""
        return self._workflow.execution_settings is not None

    @property
    def rules(self) -> frozenset[str]:
        """The names of all rules that are known by now."""
        return frozenset(rule.name for rule in self._workflow.rules)

    def check_rule_file(self, path: str) -> None:
        check_rule_file(path, self._workflow)

    def check(self) -> None:
        """Snakemake takes any number of jobs, and runs something for a negative one."""
        if self._workflow.touch:
            raise SettingsError("--touch would mark steps as done that are not: only a step's own run makes it done")
        settings = self._workflow.resource_settings
        for number in (settings.nodes, settings.cores):
            if isinstance(number, int) and number < 1:
                raise SettingsError(f"the number of jobs (-j, --cores) must be at least 1, not {number}")

    def trust_statuses(self) -> None:
        """Forget Snakemake's marks of jobs that it did not see end: a step's status is written last, and decides.

        Profiles can only do this for runs. A report would stop at a step that ended after its driver was killed.
        """
        self._workflow.dag.ignore_incomplete = True

    @property
    def cluster(self) -> str | None:
        """The cluster that jobs go to, or would in a dry run of our own executor; None if there is none."""
        return plan_in_process.chosen_cluster or self._foreign_cluster

    @property
    def _foreign_cluster(self) -> str | None:
        return _FOREIGN_EXECUTORS.get(type(self._workflow.executor_settings).__module__)

    @property
    def runs_here(self) -> bool:
        """All jobs run on this machine, or would in a dry run."""
        return bool(self._workflow.local_exec) and self.cluster is None

    def count_cores(self) -> None:
        """Let `-j N` mean `--cores N`, as it does for local runs without a profile: otherwise no cores are counted."""
        resources = self._workflow.global_resources
        if resources["_nodes"].value is not None:
            resources["_cores"], resources["_nodes"] = resources["_nodes"].value, None

    @property
    def cores(self) -> int:
        """How many cores there are for jobs on this machine."""
        found = self._workflow.global_resources["_cores"].value
        return found if isinstance(found, int) else os.cpu_count() or 1

    def limit(self, resource: str, amount: int) -> None:
        """Share a resource among jobs that run at the same time, unless the user has set a limit already."""
        if resource not in self._workflow.global_resources:
            self._workflow.register_resource(resource, amount)

    def lift_default_rate(self) -> None:
        """Let jobs start as soon as they are ready, unless the user has limited how many start in which time.

        The limit is for clusters, and it makes every run wait for a timer of a second that was started with its last
        jobs. To be called before Snakemake makes its scheduler.
        """
        settings = self._workflow.scheduling_settings
        rate = settings.max_jobs_per_timespan
        if rate is not None and (rate.max_jobs, rate.timespan) == _DEFAULT_RATE:
            settings.max_jobs_per_timespan = None

    def resources_of(self, step: str) -> Mapping[str, Any]:
        """What the job of a step gets, after all that profiles and flags change. Known once the DAG is built."""
        if self._resources is None:
            jobs = self._workflow.dag.needrun_jobs(exclude_finished=False)
            self._resources = {job.wildcards.step: job.resources for job in jobs if hasattr(job.wildcards, "step")}
        return self._resources.get(step, {})

    @property
    def has_foreign_executor(self) -> bool:
        """Jobs are sent by a third-party executor, which may know other resources than ours."""
        return self._foreign_cluster is not None

    @property
    def resources_named(self) -> dict[str, frozenset[str]]:
        """The resources of jobs that profiles and the command line set: flag -> names."""
        settings = self._workflow.resource_settings
        of_rules = [name for given in settings.overwrite_resources.values() for name in given]
        return {
            "--set-resources": frozenset(map(str, of_rules)),
            "--default-resources": frozenset(map(str, settings.default_resources or ())),
        }

    def stays_here(self, rule: str) -> bool:
        """Whether the jobs of a rule run beside the driver, wherever others are sent."""
        return rule in self._workflow._localrules

    def group_of(self, rule: str) -> str | None:
        """The group (`--groups`, `group:`) in which jobs of a rule become one job of several; None for none."""
        return next((known.group for known in self._workflow.rules if known.name == rule), None)

    @property
    def dry_run(self) -> bool:
        return bool(self._workflow.dryrun)

    @property
    def snakefile(self) -> str:
        """The file that this process was started with."""
        return os.path.abspath(str(self._workflow.main_snakefile))

    @property
    def asks_for_dry_run(self) -> bool:
        """Whether the user's own arguments do: in those of a submission, the first `-n` is ours."""
        return _has_dry_run(sys.argv[2:])

    @property
    def will_be_dry_run(self) -> bool:
        """The same as `dry_run`, while the Snakefile is read and Snakemake does not say so yet. Takes its time."""
        return _has_dry_run(sys.argv[1:])

    @property
    def asks_for_jobs(self) -> bool:
        """Whether a dry run shows or checks Snakemake's jobs, and not only the table of steps.

        The table needs no job, and Snakemake takes several times as long to make them as we take to plan the steps.
        """
        workflow = self._workflow
        output, dag, resources = workflow.output_settings, workflow.dag_settings, workflow.resource_settings
        return bool(
            output.printshellcmds
            or output.verbose
            or output.debug_dag
            or set(output.log_handler_settings) != _OUR_CONSOLE
            or dag.allowed_rules
            or dag.batch
            or workflow.scheduling_settings.prioritytargets
            or workflow.deployment_settings.deployment_method
            or resources.overwrite_threads
            or resources.overwrite_resources
            or not self.runs_here
        )

    @property
    def cut(self) -> Cut:
        """What the command line leaves out of the experiment."""
        settings = self._workflow.dag_settings
        return Cut(
            until=frozenset(map(str, settings.until or ())),
            omit_from=frozenset(map(str, settings.omit_from or ())),
        )

    def take_cut_over(self) -> None:
        """Let Snakemake leave nothing out: it gets the targets that are left. To be called while the DAG is built.

        After a job of a rule in `--until` it starts nothing that needs it, not even another job of that rule, and then
        ends with an error.
        """
        dag, settings = self._workflow.dag, self._workflow.dag_settings
        for names in (dag.untilrules, dag.untilfiles):
            names.difference_update(map(str, settings.until or ()))
        for names in (dag.omitrules, dag.omitfiles):
            names.difference_update(map(str, settings.omit_from or ()))

    def is_over(self, is_done: Callable[[str], bool]) -> bool:
        """Whether all jobs of the run have ended well, whatever Snakemake says of the run.

        Told to stop, it leaves even the rule `all` undone, and does not look at jobs that end at that moment. For steps
        `is_done` decides.
        """
        dag = self._workflow.dag
        left = [job for job in dag.needrun_jobs() if job.rule.name != "all" and not dag.finished(job)]
        return all(hasattr(job.wildcards, "step") and is_done(job.wildcards.step) for job in left)

    @property
    def deploys_conda(self) -> bool:
        """Rules run in their conda environments (`--sdm conda`). Known from the beginning."""
        return any(method.name == "CONDA" for method in self._workflow.deployment_settings.deployment_method)

    def conda_environments(self) -> dict[str, CondaEnvironment]:
        """The conda environments of the jobs to run, by their steps. Known once Snakemake has made them."""
        shared = SharedFSUsage.SOFTWARE_DEPLOYMENT in self._workflow.storage_settings.shared_fs_usage
        found = {}
        for job in self._workflow.dag.needrun_jobs(exclude_finished=False):
            environment = job.conda_env if hasattr(job.wildcards, "step") else None
            if environment is None:
                continue
            is_named = environment.name is not None
            path = os.path.abspath(environment.address) if not is_named and (shared or job.is_local) else ""
            file = "" if environment.is_externally_managed else environment.file.get_path_or_uri(secret_free=True)
            found[job.wildcards.step] = CondaEnvironment(path, file)
        return found

    @property
    def is_driver(self) -> bool:
        """False in a process that Snakemake started for one job."""
        return bool(self._workflow.is_main_process)

    @property
    def forces_all(self) -> bool:
        return bool(self._workflow.dag_settings.forceall)

    def force(self, targets: Iterable[str]) -> None:
        """Run the jobs of these targets although the targets exist. To be called while the DAG is built."""
        self._workflow.dag.forcefiles.update(map(str, targets))

    @property
    def named(self) -> dict[str, frozenset[str]]:
        """What the command line names where Snakemake wants rules: flag -> names."""
        settings = self._workflow.dag_settings
        flags = {"-R": settings.forcerun, "--until": settings.until, "--omit-from": settings.omit_from}
        return {flag: frozenset(map(str, names or ())) for flag, names in flags.items()}

    @property
    def targets(self) -> frozenset[str]:
        """What the command line asks for besides the flags, while the Snakefile is read. Slow."""
        return frozenset(_options(sys.argv[1:]).targets or ())

    def check_question(self) -> None:
        """Refuse what Snakemake would answer wrongly in terms of files: a step is not one of its files."""
        options = _options(sys.argv[1:])
        for name, advice in QUESTIONS.items():
            if getattr(options, name, None):
                raise SettingsError(f"--{name.replace('_', '-')} {advice}")

    @property
    def forced_rules(self) -> frozenset[str]:
        """Rules named with -R/--forcerun."""
        settings = self._workflow.dag_settings
        return frozenset(str(name) for name in (settings.forcerun or ()))


def _has_dry_run(words: list[str]) -> bool:
    return bool(_options(words).dryrun)


def _options(words: list[str]) -> Any:
    from snakemake.cli import get_argument_parser

    return get_argument_parser().parse_known_args(words)[0]
