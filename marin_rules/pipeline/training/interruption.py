"""A stop signal while a model is trained: the step at hand is finished, a checkpoint is written, and then it ends.

Ctrl-C, a time limit, a preemption and `marin-rules jobs stop` all reach the step as SIGTERM, and leave it some seconds.
Only in between two steps is there a state that can be saved, and only until it is saved for the last time is there a
need: before the first step of a process and after the last checkpoint a signal ends it at once, as if this were not
here. Of several processes that train together, one alone may get the signal, as when its machine is taken away: then
all of them stop.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from marin_rules.pipeline.training.errors import TrainingError


class StopSignal:
    """Whether this process has been asked to stop since it began to listen."""

    def __init__(self) -> None:
        self.is_set = False
        self._before: Any = None
        self._listens = False

    def listen(self) -> None:
        """From now on a signal is only noted. Outside the main thread Python cannot handle signals."""
        if self._listens or threading.current_thread() is not threading.main_thread():
            return
        self._before = signal.signal(signal.SIGTERM, self._note)
        self._listens = True

    def ignore(self) -> None:
        """From now on a signal does what it did before."""
        if self._listens:
            signal.signal(signal.SIGTERM, self._before)
            self._listens = False

    def end_process(self) -> None:
        """Give in to the signal: the process ends, unless the caller of the training handles it as well."""
        self.ignore()
        os.kill(os.getpid(), signal.SIGTERM)
        raise TrainingError("training was stopped by SIGTERM; the next run resumes from the checkpoint it has written")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_set = True
