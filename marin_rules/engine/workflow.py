"""The helper that the Snakefile's rules call: targets, inputs and commands of steps.

marin = load(workflow, config)        executes the experiment, or takes the frozen plan it was started with
output: marin.target("train")         the target of whichever step the rule `train` runs
input:  marin.inputs                  the targets a step waits for
params: command=marin.command(rule)   what the job executes, followed by `{wildcards.step}`
threads: marin.threads(rule)          cores of a step, and what else it asks of its machine:
resources: **marin.resources(rule)
"""

from __future__ import annotations

import gc
import getpass
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from snakemake.logging import logger

from marin_rules.driver import submitted_plan
from marin_rules.driver.environments import SoftwareFolder
from marin_rules.driver.launch import Launcher
from marin_rules.driver.run_lifecycle import RunLifecycle
from marin_rules.engine import plan_in_process
from marin_rules.engine.console import ALL_DONE
from marin_rules.engine.given_plan import give_plan, plan_for, was_given
from marin_rules.engine.interrupts import INTERRUPTS
from marin_rules.engine.invocation import Invocation
from marin_rules.engine.job_resources import STEP_SLOT, JobResources
from marin_rules.engine.local_executor import use_warm_workers
from marin_rules.engine.names import check_rule_names, check_targets
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.engine.report import ReportItem, report_items
from marin_rules.engine.rule_files import check_rules_of_steps
from marin_rules.engine.step_commands import StepCommands, conda_file, is_plain, project_conda_file
from marin_rules.engine.targets import Targets
from marin_rules.engine.trouble import guarded
from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.search_path import search
from marin_rules.project import project_folder
from marin_rules.settings.job_settings import read_job_settings
from marin_rules.settings.locations import config_file
from marin_rules.settings.ownership import check_not_planted
from marin_rules.settings.profiles import foreign_profile
from marin_rules.settings.run_settings import Settings, read_settings
from marin_rules.state.assessment import IDLE, Assessment, State


def load(workflow: Any, config: Mapping[str, Any], storage: Any) -> MarinWorkflow:
    """Plan the experiment that the configuration names, or take the plan that was made for this run."""
    # Plans and DAGs live as long as the process. With Python's defaults a quarter of the time of a large dry run is
    # spent looking for garbage among them.
    gc.set_threshold(200_000, 50, 100)
    name_the_user()
    # An experiment file may configure logging for itself: Snakemake's messages are not meant for its handlers.
    logging.getLogger("snakemake.logging").propagate = False
    invocation = Invocation(workflow)
    settings, plan = guarded(lambda: _settings_and_plan(config, invocation))
    in_process = plan_in_process.start(plan)
    if invocation.is_driver:
        INTERRUPTS.install()
        use_warm_workers()
        if (remark := foreign_profile(sys.argv[1:])) is not None:
            logger.warning(remark)
        if not plan.run.rule_files:  # Whose rules may have any name.
            guarded(lambda: check_targets(invocation.targets, plan.steps, in_process.rule))
    in_process.live = not invocation.is_driver  # A process for one job is there because something runs.
    in_process.max_usd = settings.max_usd
    return MarinWorkflow(in_process, invocation, storage, settings.max_concurrent)


def _settings_and_plan(config: Mapping[str, Any], invocation: Invocation) -> tuple[Settings, FrozenPlan]:
    settings = read_settings(config)
    check_not_planted(".snakemake", os.getcwd(), "Snakemake's folder")
    check_not_planted(config_file(), os.getcwd(), "the configuration")
    is_kept = submitted_plan.is_wanted()
    return settings, plan_for(settings, may_be_unseen=lambda: not is_kept and invocation.will_be_dry_run)


def name_the_user() -> None:
    """A user may have none, as in containers: Snakemake records it, and would fail."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())


class MarinWorkflow:
    """What the rules need to know about the plan."""

    def __init__(
        self, in_process: PlanInProcess, invocation: Invocation, storage: Any, max_concurrent: int | None = None
    ) -> None:
        self._max_concurrent = max_concurrent
        self.in_process = in_process
        self.plan = in_process.plan
        self._asked_again = frozenset(in_process.plan.forced) if invocation.is_driver else frozenset()
        self._may_have_begun = invocation.is_driver and was_given()
        self.invocation = invocation
        self._software = SoftwareFolder(in_process.plan, deploys_conda=invocation.deploys_conda)
        self._jobs = JobResources(in_process, invocation)
        self._commands = StepCommands(self.plan, self._software, deploys_conda=invocation.deploys_conda)
        self._lifecycle = RunLifecycle(self.plan, self._software)
        self._targets = Targets(in_process, storage)
        # Snakemake inspects an input function at each of its calls, which is quicker for a plain function.
        self.inputs = lambda wildcards: self._inputs(wildcards)
        in_process.destination = self._jobs.destination
        in_process.estimate = self._jobs.estimate
        in_process.refusal = self._jobs.refusal
        in_process.unbuildable = lambda step: self._software.obstacle(step) if in_process.uses_our_files(step) else None

    # -- what is there ---------------------------------------------------------------------------------------

    @property
    def functions(self) -> list[str]:
        """A rule name for each step function."""
        return list(self.in_process.rule_of.values())

    @property
    def rule_files(self) -> Sequence[str]:
        """Hand-written rules that belong to the experiment, about to be included."""
        files = self.plan.run.rule_files
        for file in files:
            guarded(partial(self.invocation.check_rule_file, file))
        return files

    # -- rules -----------------------------------------------------------------------------------------------

    def target(self, rule: str) -> Any:
        """The output of a rule: the target of any of its steps."""
        return self._targets.of_rule(rule)

    def _inputs(self, wildcards: Any) -> list[Any]:
        """What a step waits for: nothing once it is done, otherwise its unfinished dependencies."""
        step = self.in_process.step(wildcards.step)
        if not self.invocation.executes:
            return [self._targets.of(index) for index in step.dependencies]
        verdicts = self._assessment.verdicts
        verdict = verdicts[step.index]
        if verdict.refused:
            return self._all_that_can_run()
        if verdict.state in IDLE:
            return []
        return [self._targets.of(index) for index in step.dependencies if verdicts[index].state not in IDLE]

    def is_local(self, rule: str) -> bool:
        """Whether the steps of a rule run beside the driver, wherever the others are sent."""
        return rule not in self.in_process.remote_rules

    def threads(self, rule: str) -> Any:
        return self._jobs.threads(rule)

    def resources(self, rule: str) -> dict[str, Any]:
        return self._jobs.resources(rule)

    def conda(self, rule: str) -> Any:
        """The conda environment of a rule's steps, for `--sdm conda`; none for steps that have one made by uv."""
        if all(map(is_plain, self._steps_of(rule))):
            return conda_file(None)
        return lambda wildcards: conda_file(self.in_process.step(wildcards.step))

    def command(self, rule: str) -> Any:
        """What the job of a step executes; Snakemake fills the step in.

        A function of the output: what is derived from that is not recorded with the job. To write a record of any other
        parameter Snakemake imports pandas, wherever that is installed, which takes longer than twenty steps.
        """
        if all(map(is_plain, self._steps_of(rule))):
            command = guarded(lambda: self._commands.command(None))
            return lambda wildcards, output: command
        return lambda wildcards, output: guarded(lambda: self._commands.command(self.in_process.step(wildcards.step)))

    def _steps_of(self, rule: str) -> list[FrozenStep]:
        return self._steps_by_rule.get(rule, [])

    @cached_property
    def _steps_by_rule(self) -> dict[str, list[FrozenStep]]:
        found: dict[str, list[FrozenStep]] = {}
        for step in self.plan.steps:
            found.setdefault(self.in_process.rule(step), []).append(step)
        return found

    @property
    def log(self) -> str:
        """Where Snakemake looks for a job's log: a link to the log beside the step's data."""
        return os.path.join(".snakemake", "marin-rules", "logs", "{step}.log")

    def requested(self, wildcards: Any) -> list[Any]:
        """The targets of a run: every unfinished step that nothing else waits for."""
        guarded(self._check_hand_written)
        if not self.invocation.executes:
            guarded(self.invocation.check_question)
            self.invocation.trust_statuses()
            needed = [step for step in self.plan.steps if step.needed]
            return self._targets.of_all(needed)
        # Snakemake has put the folder of every rule file in front of Python's own library.
        search([os.path.dirname(file) for file in self.plan.run.rule_files])
        guarded(self.invocation.check)
        guarded(lambda: check_rule_names(self.invocation.named, self.plan.steps, self.in_process.rule))
        again = (self.plan.steps[index] for index in sorted(self._asked_again))
        self.invocation.force(self._targets.of(step.index) for step in again if not self._is_done_by_this_run(step))
        scheduled = self._assessment.scheduled
        if self.in_process.knows_cut:
            self.invocation.take_cut_over()
        guarded(lambda: self._prepare(scheduled))
        if submitted_plan.is_wanted() and self.invocation.dry_run:
            guarded(self._hand_over)
        if not scheduled or self._is_told_without_jobs:
            return self._nothing_to_run()
        if self.invocation.is_driver and not self.invocation.dry_run and self._starts_jobs_here:
            self._lifecycle.warm_up()
        return self._targets.of_all(scheduled)

    def _hand_over(self) -> None:
        """For a driver that is started later: this process shows what it would do."""
        if submitted_plan.is_plan_wanted():  # Otherwise `python x.py` has already handed over its own.
            if self.invocation.asks_for_dry_run:
                raise SettingsError(submitted_plan.NO_DRY_RUN)
            submitted_plan.hand_plan_over(self.plan)
        submitted_plan.hand_engine_over(snakefile=self.invocation.snakefile, sends_to=self.invocation.cluster)

    @property
    def _is_told_without_jobs(self) -> bool:
        """Whether the answer is the table of steps alone: the one of a dry run in which nothing asks for jobs."""
        if not (self.invocation.dry_run and self.invocation.is_driver):
            return False
        return not (self.plan.run.rule_files or self.invocation.asks_for_jobs)

    def _check_hand_written(self) -> None:
        """Whether each step that a hand-written rule runs has that rule; known once all files are included."""
        by_hand = self.invocation.rules - {*self.functions, "all"}
        run = self.plan.run
        check_rules_of_steps(self.plan.steps, by_hand, run.rule_files, run.caller_path)

    def _prepare(self, scheduled: list[FrozenStep]) -> None:
        """What must be known before Snakemake requests the resources of jobs."""
        self._jobs.check(scheduled)
        if self.in_process.max_usd is not None and self._jobs.site is None and not self.invocation.runs_here:
            raise SettingsError(
                "max_usd cannot be kept: what steps cost with this executor is not known. Choose one of this project's"
                " profiles, or leave out max_usd."
            )
        if self._max_concurrent is not None:
            self.invocation.limit(STEP_SLOT, self._max_concurrent)
        if self.invocation.runs_here:
            self.invocation.lift_default_rate()
        self.in_process.sends_away = not self.invocation.runs_here
        hand_written = {step.rule for step in scheduled if step.rule is not None}
        self.in_process.sent_rules = frozenset(rule for rule in hand_written if not self.invocation.stays_here(rule))
        if self.in_process.sends_away:
            cluster = self.plan.run.cluster
            may_share = self._jobs.may_share_files
            settings = read_job_settings(cluster, may_share=may_share)
            self.in_process.launcher = Launcher(self.plan, settings, cluster, has_no_disk=not may_share)
            sent = [step for step in scheduled if self.in_process.is_remote(step)]
            groups = {group for step in sent if (group := self.invocation.group_of(self.in_process.rule(step)))}
            self.in_process.launcher.check(sent, groups)
        if self._jobs.site is not None:
            self._software.shared = self._jobs.site.environments
            self._software.trust = self._jobs.site.trust
            self.in_process.site = self._jobs.site

    def report_items(self, wildcards: Any) -> list[ReportItem]:
        """Pages and pictures for Snakemake's report; none unless a report is made."""
        return [] if self.invocation.executes else report_items(self.in_process)

    # -- hand-written rules ----------------------------------------------------------------------------------

    @staticmethod
    def environment(name: str) -> str:
        """The path of one of the project's own conda files, wherever the rule's file is."""
        return project_conda_file(name)

    def output_path(self, wildcards: Any) -> str:
        """Where a hand-written rule writes."""
        return self.in_process.step(wildcards.step).output_path

    def config(self, wildcards: Any) -> Any:
        """The step's config as plain data: `{params.config[field]}` in a command."""
        return self.plan.record(self.in_process.step(wildcards.step)).config

    def leased(self, script: str, interpreter: str = "bash -euo pipefail") -> str:
        """A command that runs `script` under the step's lease, in whatever environment the rule has."""
        return self._commands.leased(script, interpreter)

    # -- the run ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Snakemake starts jobs after this: freeze the plan, record the experiment, warm up a worker."""
        guarded(self._check_jobs)
        INTERRUPTS.take_terminate_over()
        give_plan(self.plan.run.plan_path, self.plan.digest)
        if self.invocation.deploys_conda:
            made = self.invocation.conda_environments()
            self.plan.conda = {self.in_process.step(key).index: environment for key, environment in made.items()}
        scheduled = self._assessment.scheduled
        self._targets.hold_folders(scheduled)
        sent = [step for step in scheduled if self.in_process.is_remote(step)]
        guarded(lambda: self.in_process.launcher.prepare(sent, say=logger.warning))
        guarded(self._start_run)
        self.in_process.live = True

    def _check_jobs(self) -> None:
        """Here, because only now does Snakemake know what each job asks for."""
        if (why := self.in_process.obstacle()) is not None:
            raise SettingsError(why)

    def _start_run(self) -> None:
        self._lifecycle.start(
            self._assessment,
            self.in_process.statuses(),
            uses_our_files=self.in_process.uses_our_files,
        )
        self.in_process.dispatcher = self._lifecycle.dispatcher

    def finish(self, *, success: bool) -> None:
        """All jobs have ended. A run that was told to stop, but had already done everything, is a success."""
        whole = success or (INTERRUPTS.came() and self.invocation.is_over(self._is_done_again))
        guarded(lambda: self._lifecycle.finish(success=whole, goes_on=INTERRUPTS.leaves_jobs))
        if whole:
            INTERRUPTS.end()
            still_there = self.in_process.look_for_results_again()
            logger.info(ALL_DONE)
            if not still_there:
                sys.exit(1)
        if whole and not success:
            sys.exit(0)  # Snakemake would call it a failure.

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _starts_jobs_here(self) -> bool:
        if self.invocation.runs_here:
            return True
        return any(self.is_local(self.in_process.rule(step)) for step in self._assessment.scheduled)

    @cached_property
    def _assessment(self) -> Assessment:
        """Known once the DAG is built: only then Snakemake knows what is forced."""
        self.in_process.cut = self.invocation.cut
        return guarded(lambda: self.in_process.assess(self._is_forced))

    def _is_done_again(self, key: str) -> bool:
        """Whether a step was done in this run: the status of a forced one is from an earlier run."""
        return self.in_process.step(key).index not in self.plan.forced and self.in_process.is_done(key)

    def _is_forced(self, step: FrozenStep) -> bool:
        rules = self.invocation.forced_rules
        asked = self.invocation.forces_all or self.in_process.rule(step) in rules or step.index in self._asked_again
        return asked and not self._is_done_by_this_run(step)

    def _is_done_by_this_run(self, step: FrozenStep) -> bool:
        """Whether an earlier driver of this run has done a step: a requeued driver continues where it was."""
        return self._may_have_begun and self.in_process.is_done_by_this_run(step)

    def _nothing_to_run(self) -> list[Any]:
        """A file that exists: Snakemake then finds nothing to do, and starts nothing.

        It is not a step's target: that would put a job into the DAG, for which Snakemake makes a conda environment.
        """
        if not self.invocation.dry_run and self.invocation.is_driver:
            guarded(self._lifecycle.nothing_to_run)
        return [str(project_folder() / "Snakefile")]

    def _all_that_can_run(self) -> list[Any]:
        """A refused step comes last: everything that does not depend on it is done before the run fails."""
        able = (State.RUN, State.ELSEWHERE)
        steps = [verdict.step for verdict in self._assessment.verdicts if verdict.state in able]
        return self._targets.of_ends(steps)
