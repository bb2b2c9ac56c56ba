"""The filter of a list of jobs: comparisons of labels, joined by AND. We use nothing else that Batch may take."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from support.emulators.rpc.errors import invalid

_COMPARISON = re.compile(r'\s*labels\.(?:"([^"]+)"|([a-z][\w-]*))\s*=\s*"([^"]*)"\s*')


def matcher(text: str) -> Callable[[Any], bool]:
    """Whether a job is wanted."""
    wanted: dict[str, str] = {}
    for part in re.split(r"\bAND\b", text) if text.strip() else ():
        comparison = _COMPARISON.fullmatch(part)
        if comparison is None:
            raise invalid(f"Invalid list filter: {text}")
        wanted[comparison[1] or comparison[2]] = comparison[3]
    return lambda job: all(job.labels.get(key) == value for key, value in wanted.items())
