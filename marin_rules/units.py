"""Times as people and files write them."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """A moment as it stands in info files: local time with its offset, to the second."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(timespec="seconds")
