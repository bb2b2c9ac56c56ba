"""A step's data is on disk before its SUCCESS is: SUCCESS survives a power cut, so the data must, too."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

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


@contextlib.contextmanager
def said_if_slow(say: Callable[[str], None], seconds: float) -> Iterator[None]:
    """Say once that the step waits for the disk, if that takes longer than this: the step prints nothing else
    meanwhile, and a stop signal does not end it, because its work is done."""
    reminder = threading.Timer(seconds, say, ("its function has returned; waiting for its files to be on disk",))
    reminder.daemon = True
    reminder.start()
    try:
        yield
    finally:
        reminder.cancel()
        reminder.join()
