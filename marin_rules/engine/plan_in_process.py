"""The plan of this process, which Snakemake's rules, storage provider and console all share.

Snakemake creates its plug-ins itself and tells them nothing about the Snakefile, so they meet here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from marin_rules.clusters.estimates import Estimate, refusal
from marin_rules.clusters.protocol import Site
from marin_rules.driver.launch import Launcher
from marin_rules.engine.cut import Cut, left_out
from marin_rules.engine.names import SEPARATOR, Kind, kind_of, rule_names
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.assessment import IDLE, Assessment, State, StatusOrError
from marin_rules.state.info import read_info
from marin_rules.state.status import Status, read_status, read_statuses
from marin_rules.state.stored_states import assess_stored, stored_statuses
from marin_rules.units import parse_timestamp
from marin_rules.urls import is_url
from marin_rules.views.results import results
from marin_rules.worker.warm.dispatcher import Dispatcher


@dataclass(eq=False)
class PlanInProcess:
    """A plan, the names Snakemake knows its steps by, and what is known of their states."""

    plan: FrozenPlan
    rule_of: dict[Kind, str] = field(init=False)
    """Kind of step -> rule."""

    assessment: Assessment | None = None
    destination: Callable[[FrozenStep], str | None] = lambda step: None
    """Where a step will run, for people."""

    estimate: Callable[[FrozenStep], Estimate | None] = lambda step: None
    """What a step may cost; None for one that costs nothing."""

    refusal: Callable[[FrozenStep], str | None] = lambda step: None
    """Why the cluster would not accept the job of a step; None if it may."""

    unbuildable: Callable[[FrozenStep], str | None] = lambda step: None
    """Why the Python environment of a step cannot be built; None if it is there or may be."""

    max_usd: float | None = None
    """The most that the steps of this run may cost, in US dollars."""

    sends_away: bool = False
    """Steps that ask for machines run elsewhere."""

    site: Site | None = None
    """The cluster that steps run on; None on this machine."""

    sent_rules: frozenset[str] = frozenset()
    """Hand-written rules whose steps do, too."""

    cut: Cut = field(default_factory=Cut)
    """What the command line leaves out."""

    dispatcher: Dispatcher | None = None
    """Hands steps to warm workers while there are any."""

    live: bool = False
    """Steps are running: states that are not final are read again each time."""

    def __post_init__(self) -> None:
        self.rule_of = rule_names(self.plan.steps)
        self.launcher = Launcher(self.plan)
        self._statuses: dict[str, StatusOrError] = {}
        self.gone: frozenset[str] = frozenset()
        """Output paths of results that were done and are no longer there."""
        self._finished_at: dict[str, float] = {}
        self._asked_again: frozenset[int] = frozenset()
        """Steps to be done again, including those that the command line leaves out."""
        self._left_out: dict[int, str] = {}
        self._assessed_at = 0.0

    def step(self, key: str) -> FrozenStep:
        return self.plan.by_key[key]

    def rule(self, step: FrozenStep) -> str:
        return step.rule or self.rule_of[kind_of(step)]

    def variables_of(self, job: Any) -> list[int | None]:
        """Which sets of variables the steps of one of Snakemake's jobs take, groups included."""
        jobs = job.jobs if job.is_group() else [job]
        keys = [getattr(single.wildcards, "step", None) for single in jobs]
        return [self.plan.by_key[key].variables for key in keys if key in self.plan.by_key]

    @cached_property
    def remote_rules(self) -> frozenset[str]:
        """Rules whose steps ask for machines of their own."""
        return frozenset(rule for (_, is_remote), rule in self.rule_of.items() if is_remote)

    def is_remote(self, step: FrozenStep) -> bool:
        """Whether a step runs elsewhere than the driver in this run."""
        return self.sends_away and (step.machines is not None or step.rule in self.sent_rules)

    def uses_our_files(self, step: FrozenStep) -> bool:
        """Whether a step runs where the driver's files are, its Python environments among them."""
        return self.launcher.shared or not self.is_remote(step)

    def statuses(self) -> dict[str, StatusOrError]:
        """All statuses, read in bulk the first time."""
        if not self._statuses:
            self._statuses = stored_statuses(self.plan)
        return self._statuses

    def is_done(self, key: str) -> bool:
        """Whether a step is finished, as of now; a finished one stays so."""
        step = self.plan.by_key.get(key)
        if step is None:
            return False
        if self._statuses.get(step.output_path) is Status.SUCCESS:
            return True
        if not self.live:
            return self.statuses()[step.output_path] is Status.SUCCESS
        status = read_status(step.output_path)
        self._statuses[step.output_path] = status
        if status is Status.SUCCESS:
            self._finished_at[key] = time.time()
        return status is Status.SUCCESS

    def finished_at(self, key: str) -> float:
        """When a step was seen to finish in this run; 0 for steps done before."""
        if key not in self._finished_at and self._has_run_again(self.plan.by_key[key]):
            self._finished_at[key] = time.time()
        return self._finished_at.get(key, 0.0)

    def _has_run_again(self, step: FrozenStep) -> bool:
        """Whether a step that this run does again, although it was done before, is finished: by this run, or by
        another one that did it meanwhile."""
        if not self.live or self.assessment is None or self.assessment[step.index].state in IDLE:
            return False
        run = (read_info(step.output_path) or {}).get("run", {})
        if "finished" not in run:
            return False
        finished = parse_timestamp(str(run["finished"]))  # To the second.
        return run.get("id") == self.plan.run.id or finished >= int(self._assessed_at)

    def is_done_by_this_run(self, step: FrozenStep) -> bool:
        """Whether a step is finished, and was so by a worker of this run."""
        if self.statuses()[step.output_path] is not Status.SUCCESS:
            return False
        run = (read_info(step.output_path) or {}).get("run", {})
        return "finished" in run and run.get("id") == self.plan.run.id

    def look_for_results_again(self) -> bool:
        """Whether all results that were done are still there: they may have been deleted or moved during a long run.

        Only on file systems, where this costs nothing.
        """
        done = [
            step.output_path
            for step in self.plan.steps
            if step.root and self._statuses.get(step.output_path) is Status.SUCCESS and not is_url(step.output_path)
        ]
        self.gone = frozenset(path for path, status in read_statuses(done).items() if status is None)
        self._statuses |= dict.fromkeys(self.gone)
        return not self.gone

    def results(self) -> str:
        """The outcome of the steps that were asked for, for people."""
        return results(self.plan, self._is_built, self._left_out, self.gone)

    def _is_built(self, step: FrozenStep) -> bool:
        """Whether a step is finished, and was so by this run or during it if it was to be done again."""
        was_asked_again = step.index in self._asked_again
        return self.is_done(step.key) and (not was_asked_again or self._has_run_again(step))

    def _names(self, step: FrozenStep) -> tuple[str, str]:
        """What the command line may call a step."""
        return (rule := self.rule(step)), f"{step.key}{SEPARATOR}{rule}"

    def _all_names(self) -> set[str]:
        return {name for step in self.plan.steps for name in self._names(step)}

    @property
    def knows_cut(self) -> bool:
        """Whether the command line leaves something out, all of that are steps, and so is all that Snakemake runs."""
        names_any = bool(self.cut.until or self.cut.omit_from)
        return names_any and not self.plan.run.rule_files and self.cut.is_among(self._all_names())

    def estimates(self) -> list[Estimate]:
        """What the steps that this run is about to run may cost. Known once the DAG is built."""
        verdicts = () if self.assessment is None else self.assessment.verdicts
        found = (self.estimate(verdict.step) for verdict in verdicts if verdict.state is State.RUN)
        return [estimate for estimate in found if estimate is not None]

    def too_expensive(self) -> str | None:
        """Why this run may cost more than it may; None if it may not."""
        return None if self.max_usd is None else refusal(self.estimates(), self.max_usd)

    def obstacle(self) -> str | None:
        """Why this run stops before its first step; None if it does not. Known once the DAG is built."""
        if self.assessment is None:
            return self.too_expensive()
        running = [verdict.step for verdict in self.assessment.verdicts if verdict.state is State.RUN]
        refusals = (self.refusal(step) or self.unbuildable(step) for step in running)
        return self.assessment.without_function or next(filter(None, refusals), None) or self.too_expensive()

    def assess(self, forced: Callable[[FrozenStep], bool]) -> Assessment:
        """Judge every step, once a process."""
        if self.assessment is None:
            steps = self.plan.steps
            statuses = self.statuses()
            self._assessed_at = time.time()
            whole = assess_stored(self.plan, statuses, [step.index for step in steps if forced(step)])
            self._asked_again = frozenset(verdict.step.index for verdict in whole.verdicts if verdict.anew)
            cut = self.cut.among(self._all_names()) if self.cut.until else self.cut
            self._left_out = left_out(whole.scheduled, self._names, cut)
            self.assessment = whole.without(self._left_out)
        return self.assessment


# Globals: Snakemake makes the storage provider, the console and the settings of executors itself, from their classes.
_current: PlanInProcess | None = None
chosen_cluster: str | None = None
"""The cluster of the executor that the user chose, for a run or for a dry run."""


def start(plan: FrozenPlan) -> PlanInProcess:
    """Make `plan` the one of this process."""
    global _current
    _current = PlanInProcess(plan)
    return _current


def current() -> PlanInProcess:
    if _current is None:
        raise RuntimeError("no plan in this process: the Snakefile must load the experiment first")
    return _current


def exists() -> bool:
    return _current is not None
