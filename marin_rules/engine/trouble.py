"""What stops a run, for a person who can fix it: one line, without a traceback.

Snakemake adds its own to any error raised in a Snakefile. The console shows the line alone.
"""

from __future__ import annotations

from collections.abc import Callable

from snakemake_interface_common.exceptions import WorkflowError

from marin_rules.errors import MarinRulesError

# A global: Snakemake makes the console itself, and the Snakefile cannot reach it.
_told: str | None = None


def guarded[T](action: Callable[[], T]) -> T:
    """Run our own code in the Snakefile; its errors reach Snakemake as Snakemake's."""
    global _told
    try:
        return action()
    except (MarinRulesError, OSError) as error:
        _told = str(error)
        raise WorkflowError(_told) from None


def told_in(message: str) -> str | None:
    """The line that one of Snakemake's messages wraps, None if it is another message."""
    return _told if _told and _told in message else None
