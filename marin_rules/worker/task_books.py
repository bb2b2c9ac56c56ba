"""The books of one task of an array step: its record, see `state.task_records`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.failures import Failure, record_failure
from marin_rules.state.status import CorruptStatusError, Status
from marin_rules.state.task_records import TaskPlace, TaskRecord
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner
from marin_rules.worker.books import Overwrite
from marin_rules.worker.conclusion import Conclusion

_KEPT_FACTS = ("worker_id", "host", "user", "gpus", "started", "finished", "seconds", "error")


class TaskBooks:
    """See `books.Books`."""

    def __init__(
        self,
        plan: FrozenPlan,
        step: FrozenStep,
        place: TaskPlace,
        owner: Owner,
        *,
        label: str,
        patiently: Callable[..., Any],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_over` says whether the task's round is obsolete. Called while holding the lease: from then on no other
        round can begin, because that waits until no task is running."""
        self.label = label
        self.lease: Lease = place.open_lease(owner)
        self.status_path = place.record_path
        self.log_path = place.log_path
        self.attempts = 0
        self.record: TaskRecord | None = None
        """As last seen or written here."""

        self.failure = ""
        self.exception: str | None = None
        """Why it failed, in words and, if possible, pickled."""

        self._plan = plan
        self._step = step
        self._place = place
        self._owner = owner
        self._patiently = patiently
        self._is_over = is_over
        self._facts: dict[str, Any] = {}

    def is_done(self, *, waited: bool) -> bool:
        self.record = self._place.read()
        return self.record is not None and self.record.is_done

    def take(self, *, waited: bool) -> bool:
        path = self.status_path
        data = self._patiently(lambda: self.lease.read(path))
        try:
            self.record = None if data is None else TaskRecord.parse(data, path)
        except CorruptStatusError:  # It says nothing, so the task is not done.
            self.record = None
        if (self.record is not None and self.record.is_done) or self._patiently(self._is_over):
            return False
        if self.record is not None and self.record.status is Status.FAILED and waited:
            raise MarinRulesError(
                f"task {self._place.task} failed in the other run that had it ({self.record.error}); {self.log_path}"
                " says why. Start the experiment again to run it once more."
            )
        self.attempts = 0 if self.record is None else self.record.attempt
        running = TaskRecord(Status.RUNNING, {"worker_id": self._owner.worker_id, "attempt": self.attempts + 1})
        self._patiently(lambda: self.lease.commit(path, running.to_bytes(), durable=False))
        return True

    def begin(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def note_start(self) -> None:
        """Nothing: since it was taken up the record says that it runs, and the lease says who runs it."""

    def write_down(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        """Nothing: everything is in the record."""

    def close(self, conclusion: Conclusion, overwrite: Overwrite) -> None:
        facts = self._facts
        clusters = {name: value for name, value in facts.items() if isinstance(value, dict) and "job_id" in value}
        fields = {"attempt": self.attempts + 1, "run": facts["id"], **clusters}
        fields |= {name: facts[name] for name in _KEPT_FACTS if name in facts}
        artifact = conclusion.outcome.artifact
        if conclusion.status is Status.SUCCESS and artifact is not None:
            fields["artifact"] = json.loads(artifact)
        self.record = TaskRecord(conclusion.status, fields)
        overwrite(self.status_path, self.record.to_bytes())

    def status(self) -> Status | None:
        record = self._place.read()
        return None if record is None else record.status

    def tell_driver(self, message: str, exception: str | None = None, *, previous: bool = False) -> None:
        self.failure, self.exception = message, exception
        place, step = self._place, self._step
        text = f"task {place.task} of {step.tasks}: {message}"
        record_failure(self._plan.run, step, Failure(step.name, step.output_path, text, previous, exception))
