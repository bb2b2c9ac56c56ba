"""What commands print besides their result: a log as it is, and a message to the person who waits."""

from __future__ import annotations

import sys

from marin_rules.views.terminal import printable


def write(data: bytes) -> None:
    """Pass a log on, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """On standard error: standard output is for programs that read it."""
    sys.stderr.write(printable(f"marin-rules: {text}\n"))
