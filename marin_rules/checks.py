"""What a run will need, checked before it starts: whether it is there, and what to type if it is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The outcome of a check."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "not checked"
    """It could not be checked: it may be there or not."""


@dataclass(frozen=True)
class Check:
    """One thing that a run will need."""

    what: str
    """In a few words: `API batch.googleapis.com`."""

    verdict: Verdict
    detail: str = ""
    """What was found, or why nothing could be."""

    command: str = ""
    """What to type, or which page to open, to get it."""


@dataclass(frozen=True)
class Unanswered:
    """Stands for a fact that could not be obtained."""

    why: str
