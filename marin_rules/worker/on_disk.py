"""A step's data is on disk before its SUCCESS is: SUCCESS survives a power cut, so the data must, too."""

from __future__ import annotations

from marin_rules.storage.flush import flush_folder
from marin_rules.worker.step_call import Outcome

_BOOKS = ".executor_"
"""The prefix of files that workers write beside the data, and flush themselves."""


def brought_to_disk(outcome: Outcome, output_path: str) -> Outcome:
    """Wait for the data of a step whose function has returned."""
    try:
        flush_folder(output_path, leave_out=_BOOKS)
    except OSError as error:
        return Outcome(error=f"its function returned, but what it had written could not be flushed to disk: {error}")
    return outcome
