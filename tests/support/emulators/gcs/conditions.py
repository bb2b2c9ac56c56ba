"""Preconditions on generations and metagenerations, of the object acted on and of the source of a copy.

An absent object has generation 0. Only writes meet absent objects here: a read, patch or deletion of one is a 404
whatever its conditions (Google documents neither that nor 412).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from support.emulators.gcs.errors import GcsError


class Versioned(Protocol):
    """An object or a bucket."""

    generation: int
    metageneration: int


def check(current: Versioned | None, query: Mapping[str, str], *, prefix: str = "if", reading: bool = False) -> None:
    """Raise 412, or 304 for a read that would find nothing new, unless all conditions hold."""
    generation = current.generation if current else 0
    metageneration = current.metageneration if current else 0
    for aspect, actual in (("Generation", generation), ("Metageneration", metageneration)):
        wanted = query.get(f"{prefix}{aspect}Match")
        if wanted is not None and _number(wanted) != actual:
            raise GcsError(412)
        unwanted = query.get(f"{prefix}{aspect}NotMatch")
        if unwanted is not None and _number(unwanted) == actual:
            raise GcsError(304 if reading else 412)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise GcsError(400, f"Invalid generation: {text}") from None
