"""What the worker of a TPU step waits for, for whoever looks at its job: Batch knows no more than that the job runs.

One small object in the bucket, beside the words of worker and hosts. It is for people: a store that does not answer, or
a word that cannot be read, is none.
"""

from __future__ import annotations

import json
from contextlib import suppress

from marin_rules.storage.objects.open import open_objects


class SliceNotice:
    """The word of a step's worker in one job."""

    def __init__(self, place: str, job: str) -> None:
        """`place` is the folder of the step, in which the workers of all its jobs leave their word."""
        self._url = f"{place}/waits.json"
        self._job = job
        self._said: str | None = None

    def say(self, reason: str) -> None:
        """Why the step has no slice; empty once it has one."""
        if reason == self._said:
            return
        data = json.dumps({"job": self._job, "reason": reason}).encode()
        with suppress(OSError):
            open_objects(self._url).put(self._url, data)
            self._said = reason

    def read(self) -> str:
        """What was said last, in this very job."""
        try:
            found = open_objects(self._url).read(self._url)
            fields = {} if found is None else json.loads(found.data)
            return str(fields["reason"]) if fields.get("job") == self._job else ""
        except (OSError, ValueError, AttributeError, KeyError):
            return ""
