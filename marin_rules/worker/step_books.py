"""The books of a step: `.executor_status`, `.executor_info`, `.artifact.json` and `.executor_again` beside its data."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.failures import Failure, PreviousTaskFailedError, record_failure
from marin_rules.state.info import check_version, info_bytes, info_path, parse_info, step_info
from marin_rules.state.status import (
    AGAIN_FILE,
    ARTIFACT_FILE,
    Status,
    parse_status,
    read_status,
    status_bytes,
    status_path,
)
from marin_rules.state.step_lease import open_lease
from marin_rules.state.step_log import log_path
from marin_rules.state.task_records import RoundsLeft, begin_round
from marin_rules.storage.files import file_size, read_bytes
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner
from marin_rules.worker.books import Overwrite
from marin_rules.worker.conclusion import Conclusion


class StepBooks:
    """See `books.Books`."""

    def __init__(
        self, plan: FrozenPlan, step: FrozenStep, owner: Owner, *, in_job: bool, patiently: Callable[..., Any]
    ) -> None:
        self.label = step.name
        self.lease: Lease = open_lease(step.output_path, owner)
        self.status_path = status_path(step.output_path)
        self.log_path = log_path(step.output_path)
        self.round = 0
        """For an array step: the round of tasks to do; known once the step is taken up."""

        self._plan = plan
        self._step = step
        self._in_job = in_job
        self._patiently = patiently
        self._forced = step.index in plan.forced
        self._rounds_left = RoundsLeft(owner)
        self._previous: bytes | None = None
        self._info: dict[str, Any] = {}

    @property
    def attempts(self) -> int:
        return int(self._previous_run.get("attempt", 0))

    @property
    def _previous_run(self) -> dict[str, Any]:
        """What the last worker recorded about its attempt; nothing if this is the first."""
        info = {} if self._previous is None else parse_info(self._previous, info_path(self._step.output_path))
        run: dict[str, Any] = info.get("run", {})
        return run

    @property
    def _is_retry(self) -> bool:
        """Whether the last attempt was one of this very run."""
        return bool(self._previous_run.get("id") == self._plan.run.id)

    # -- before the step -------------------------------------------------------------------------------------

    def is_done(self, *, waited: bool) -> bool:
        path = self._step.output_path
        if read_status(path) is not Status.SUCCESS or (self._forced and not waited):
            return False
        check_version(self._plan, self._step, read_bytes(info_path(path)))
        return True

    def take(self, *, waited: bool) -> bool:
        step = self._step
        path = self.status_path
        data = self._patiently(lambda: self.lease.read(path))
        status = None if data is None else parse_status(data, path)
        # Before anything is trusted: the run that had the step may have put another version on the same path.
        self._previous = self._patiently(lambda: self.lease.read(info_path(step.output_path)))
        check_version(self._plan, step, self._previous)
        if status is Status.SUCCESS and (waited or not self._forced):
            return False
        self._refuse(status, waited)
        if step.tasks is not None or self._previous is not None:  # A step that is new was never divided.
            self.round = self._patiently(lambda: self._begin_round(anew=self._is_anew(status)))
        if self._previous is not None and self._is_anew(status):
            self._patiently(lambda: self._note_again(was_done=self._was_done(status)))
        running = status_bytes(Status.RUNNING, step.output_path)
        self._patiently(lambda: self.lease.commit(path, running, durable=False))
        return True

    def _is_anew(self, status: Status | None) -> bool:
        """Whether earlier work is discarded: the step was done, or has no status (somebody removed it), or this run was
        asked to do it again, which it does once: its further attempts continue."""
        return status in (None, Status.SUCCESS) or (self._step.index in self._plan.anew and not self._is_retry)

    def _begin_round(self, *, anew: bool) -> int:
        step = self._step
        return begin_round(self.lease, step.name, step.output_path, step.tasks, anew=anew, left=self._rounds_left)

    def _was_done(self, status: Status | None) -> bool:
        """A step without a status, which somebody has removed or a power cut has lost, may have been half done, whether
        for the first time or once more: then the artifact is of the time before."""
        if status is not None:
            return status is Status.SUCCESS
        last = self._previous_run
        if "started" in last and ("finished" not in last or "error" in last):
            return False
        return self.lease.read(os.path.join(self._step.output_path, ARTIFACT_FILE)) is not None

    def _note_again(self, *, was_done: bool) -> None:
        """Tell functions that keep parts of their work for the next attempt that these no longer count.

        Written before RUNNING: a step that is RUNNING is never started over without the note. The note stays until the
        next one, which repeats when the step was started over after it was done: an attempt that was killed early may
        not have looked.
        """
        path, id = os.path.join(self._step.output_path, AGAIN_FILE), secrets.token_hex(8)
        note = {"id": id, "after_done": id if was_done else _after_done(self.lease.read(path))}
        self.lease.overwrite(path, json.dumps(note).encode() + b"\n")

    def _refuse(self, status: Status | None, waited: bool) -> None:
        """Refuse a step that was stopped or has failed, and must not run again."""
        if status is Status.FAILED and waited:
            has_log = file_size(self.log_path) is not None
            where = f"{self.log_path} says why" if has_log else "its worker left no log, and those of Marin leave none"
            raise MarinRulesError(
                f"the step failed in the other run that had it; {where}."
                " Start the experiment again to run it once more."
            )
        if status is Status.FAILED and not self._plan.run.force_run_failed and not self._is_retry:
            raise PreviousTaskFailedError(
                f"step {self._step.name} failed previously and is not run again (force_run_failed=false); its log:"
                f" {self.log_path}"
            )
        if status is Status.CANCELLED and self._is_retry and not self._is_resumed and not self._in_job:
            raise MarinRulesError("the step was stopped in this run; start the experiment again to run it once more.")

    @property
    def _is_resumed(self) -> bool:
        """Whether the last attempt ended with an earlier driver of this run, which was stopped itself."""
        attempt = self._previous_run.get("attempt")
        return attempt is not None and self._plan.resumed.get(self._step.index) == attempt

    # -- while it runs, and after ----------------------------------------------------------------------------

    def begin(self, facts: dict[str, Any]) -> None:
        self._info = step_info(self._plan, self._step)
        self._info["run"] = facts
        if self._step.tasks is not None:
            facts["tasks"] = self._step.tasks

    def note_start(self) -> None:
        self.lease.overwrite(info_path(self._step.output_path), info_bytes(self._info), durable=False)

    def write_down(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        artifact = conclusion.outcome.artifact
        if conclusion.status is Status.SUCCESS and artifact is not None:
            overwrite(os.path.join(self._step.output_path, ARTIFACT_FILE), artifact.encode() + b"\n")
        # On the disk before the status: a damaged info would have finished work refused.
        overwrite(info_path(self._step.output_path), info_bytes(self._info))

    def close(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        word = status_bytes(conclusion.status, self._step.output_path, again=self._forced)
        overwrite(self.status_path, word)

    def status(self) -> Status | None:
        return read_status(self._step.output_path)

    def tell_driver(self, message: str, exception: str | None = None, *, previous: bool = False) -> None:
        failure = Failure(self._step.name, self._step.output_path, message, previous, exception)
        record_failure(self._plan.run, self._step, failure)


def _after_done(data: bytes | None) -> str | None:
    """From the previous note, which may be damaged: it is data that anyone with access to the prefix could have
    written."""
    try:
        note = json.loads(data or b"")
    except ValueError:
        return None
    found = note.get("after_done") if isinstance(note, dict) else None
    return found if isinstance(found, str) else None
