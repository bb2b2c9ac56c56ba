"""The life of a run: what happens before its first job and after its last one, whoever runs the jobs.

lifecycle.warm_up()                     as soon as it is known that steps will run on this machine
lifecycle.start(assessment, statuses)   before the first job: the plan is written, the run registered
lifecycle.nothing_to_run()              instead of it, when everything is done already
lifecycle.finish(success=...)           after the last job
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping

from marin_rules.clusters.allocation import DRIVER_JOB_VARIABLE, driver_job
from marin_rules.driver.environments import SoftwareFolder
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.plan_file import write_plan
from marin_rules.plans.stores import check_leases
from marin_rules.state.assessment import IDLE, Assessment, StatusOrError
from marin_rules.state.info import experiment_info_path, read_info, write_experiment_info
from marin_rules.state.run_presence import RunPresence
from marin_rules.state.status import Status, parse_status, read_status, status_bytes, status_path
from marin_rules.state.step_lease import open_lease
from marin_rules.storage.explain import StorageError
from marin_rules.storage.files import read_bytes, remove_tree
from marin_rules.storage.leases.lease import LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.store import ChangedError
from marin_rules.storage.prefix import claim_prefix
from marin_rules.worker.variables import exported, passed_on
from marin_rules.worker.warm.client import WarmServer
from marin_rules.worker.warm.dispatcher import Dispatcher


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_cold(error: OSError) -> None:
    _say(f"marin-rules: workers are not kept warm, each step starts a Python of its own: {error}")


class RunLifecycle:
    """Starts and ends the run of one plan."""

    def __init__(self, plan: FrozenPlan, software: SoftwareFolder) -> None:
        self._plan = plan
        self._software = software
        self._assessment: Assessment | None = None
        self._warm: WarmServer | None = None
        self.dispatcher: Dispatcher | None = None
        """Hands steps to warm workers, while there are any."""

        self._presence = RunPresence(plan)

    def warm_up(self) -> None:
        """Get workers ready for steps on this machine, while the run is still being prepared. This only saves time."""
        if self._warm is None:
            try:
                self._warm = WarmServer()
            except OSError as error:
                _say_cold(error)

    def start(
        self,
        assessment: Assessment,
        statuses: Mapping[str, StatusOrError],
        *,
        uses_our_files: Callable[[FrozenStep], bool] = lambda step: True,
    ) -> None:
        """Make everything ready for jobs. Whatever is missing is reported before anything is written.

        `statuses` are those of all output paths, as assessed. Environments are built here for steps whose jobs
        use the driver's files.
        """
        self._assessment = assessment
        run = self._plan.run
        check_leases(step.output_path for step in assessment.scheduled)
        self._software.ensure(filter(uses_our_files, assessment.scheduled), say=_say)
        again = (step for step in assessment.scheduled if statuses[step.output_path] is Status.SUCCESS)
        self._plan.forced = tuple(step.index for step in again)
        stopped = [step for step in assessment.scheduled if statuses[step.output_path] is Status.CANCELLED]
        self._plan.resumed = {step.index: attempt for step in stopped if (attempt := self._attempt_before(step))}
        self._plan.anew = tuple(verdict.step.index for verdict in assessment.verdicts if verdict.anew)
        claim_prefix(run.prefix)
        write_plan(self._plan, run.plan_path)
        write_experiment_info(self._plan, Owner.current().worker_id)
        # For the jobs on this machine: Snakemake starts them from this process, with its environment.
        os.environ.update(exported(self._plan.variables) or passed_on())
        os.environ[DRIVER_JOB_VARIABLE] = driver_job()
        self._presence.begin()
        if self._warm is not None:
            try:
                self._warm.serve(run.plan_path, self._plan.digest)
                self.dispatcher = Dispatcher(self._warm)
            except OSError as error:
                _say_cold(error)

    def _attempt_before(self, step: FrozenStep) -> int | None:
        """The number of the last attempt at a step, if an earlier driver of this very run had started it."""
        attempt = (read_info(step.output_path) or {}).get("run", {})
        return attempt.get("attempt") if attempt.get("id") == self._plan.run.id else None

    def nothing_to_run(self) -> None:
        """Even an experiment whose steps are all done is recorded, once, by a user who may write there."""
        with contextlib.suppress(StorageError):
            if read_bytes(experiment_info_path(self._plan)) is None:
                write_experiment_info(self._plan, Owner.current().worker_id)

    def finish(self, *, success: bool, goes_on: bool = False) -> None:
        """Leave the registry; a run that did everything leaves nothing but its data.

        `goes_on`: this driver ends, and another one will continue the run, which stays registered for the sake of its
        jobs.
        """
        self._presence.end(forgets=success or not goes_on)
        if self.dispatcher is not None:
            self.dispatcher.close()
            self.dispatcher = None
        if self._warm is not None:
            self._warm.stop()
        if not success:
            if not goes_on:
                self._mark_dependents()
        else:
            with contextlib.suppress(OSError):  # It is no longer read.
                remove_tree(self._plan.run.directory)

    def _mark_dependents(self) -> None:
        """Steps that did not run because something they depend on failed get DEP_FAILED."""
        if self._assessment is None:
            return
        owner = Owner.current()
        failed: set[int] = set()
        for verdict in self._assessment.verdicts:
            step = verdict.step
            if verdict.state in IDLE:
                continue
            status = read_status(step.output_path)
            if status is Status.FAILED:
                failed.add(step.index)
            elif status is not Status.SUCCESS and not failed.isdisjoint(step.dependencies):
                failed.add(step.index)
                if status not in (Status.RUNNING, Status.DEP_FAILED):
                    self._mark(step.output_path, owner)

    @staticmethod
    def _mark(output_path: str, owner: Owner) -> None:
        lease = open_lease(output_path, owner)
        if lease.try_acquire() is not None:
            return  # Another worker is running it right now.
        try:
            path = status_path(output_path)
            data = lease.read(path)
            if data is None or parse_status(data, path) is not Status.SUCCESS:
                lease.commit(path, status_bytes(Status.DEP_FAILED, output_path))
        except (LeaseLostError, ChangedError):
            pass
        finally:
            lease.release()
