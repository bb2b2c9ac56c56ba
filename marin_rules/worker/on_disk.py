"""What a step has written is on the disk before its SUCCESS is: that outlives a power cut, so its data have to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from marin_rules.storage.flush import flush_folder
from marin_rules.worker.step_call import Outcome

_BOOKS = ".executor_"
"""What workers write beside the data begins so, and each of them sees to that itself."""


def brought_to_disk(outcome: Outcome, output_path: str) -> Outcome:
    """Wait for the data of a step whose function has returned."""
    try:
        flush_folder(output_path, leave_out=_BOOKS)
    except OSError as error:
        return Outcome(
            error=f"its function returned, but what it had written could not be brought to the disk: {error}"
        )
    return outcome


@contextlib.contextmanager
def said_if_slow(say: Callable[[str], None], seconds: float) -> Iterator[None]:
    """Say once that the disk is waited for, if that takes so long: nothing else is heard of the step meanwhile, and
    a signal to stop does not end it, for its work is done."""
    reminder = threading.Timer(
        seconds, say, ("its function has returned; the disk has yet to take what it has written",)
    )
    reminder.daemon = True
    reminder.start()
    try:
        yield
    finally:
        reminder.cancel()
        reminder.join()
