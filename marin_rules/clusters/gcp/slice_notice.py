"""What the worker of a TPU step is waiting for, for those who look at its job: Batch only knows that the job runs.

One small object in the bucket, beside the messages of worker and hosts. It is for people: a store that does not answer,
or a notice that cannot be read, counts as none. Others may write to the bucket: no more of what they leave there is
read than a worker would have written, and nothing that would affect a terminal.
"""

from __future__ import annotations

import json
from contextlib import suppress

from marin_rules.storage.objects.open import open_objects

_LARGEST_BYTES = 16_384
_LONGEST = 1000
"""Characters of a reason: Google's own are a few hundred."""


class SliceNotice:
    """The word of a step's worker in one job."""

    def __init__(self, place: str, job: str) -> None:
        """`place` is the folder of the step, in which the workers of all its jobs leave their notices."""
        self._url = f"{place}/waits.json"
        self._job = job
        self._said: str | None = None

    def say(self, reason: str) -> None:
        """Why the step has no slice; empty once it has one."""
        if reason == self._said:
            return
        data = json.dumps({"job": self._job, "reason": _shown(reason)}).encode()
        with suppress(OSError):
            open_objects(self._url).put(self._url, data)
            self._said = reason

    def read(self) -> str:
        """What was said last, in this very job."""
        try:
            data = open_objects(self._url).read_part(self._url, 0, _LARGEST_BYTES)
            fields = json.loads(data or b"{}")
            return _shown(str(fields["reason"])) if fields.get("job") == self._job else ""
        except (OSError, ValueError, AttributeError, KeyError, RecursionError):
            return ""


def _shown(reason: str) -> str:
    """A line that a terminal can show."""
    return "".join(letter if letter.isprintable() else " " for letter in reason[:_LONGEST])
