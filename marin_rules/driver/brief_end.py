"""Programs that end with the message of an error instead of its traceback, if nothing catches it.

The error is raised like any other, so a script can handle it. The frames above it are this package's own, and mean
nothing to the reader of the message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

type _Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class _BriefEnd:
    """Replaces `sys.excepthook`: handles one error, and leaves all others to the previous hook."""

    def __init__(self, others: _Hook) -> None:
        self.others = others
        self.error: BaseException | None = None
        self.message = ""

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is self.error:
            print(self.message, file=sys.stderr)
        else:
            self.others(kind, error, trace)


def end_with_message(error: BaseException, message: str) -> None:
    """Should `error` end this program, then with `message` alone."""
    if not isinstance(sys.excepthook, _BriefEnd):
        sys.excepthook = _BriefEnd(sys.excepthook)
    sys.excepthook.error, sys.excepthook.message = error, message
