"""How a Slurm cluster is configured, as its controller tells everybody: `scontrol show config`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from marin_rules.clusters.slurm.commands import run_command

_LINE = re.compile(r"^(?P<name>\w+)\s*= (?P<value>.*?)\s*$", re.MULTILINE)
_MOST_TASKS = re.compile(r"\bmax_array_tasks=(\d+)")


def read_configuration() -> Mapping[str, str]:
    """The settings by their names. Raises `ClusterError`."""
    return {match["name"]: match["value"] for match in _LINE.finditer(run_command("scontrol", "show", "config"))}


@dataclass(frozen=True)
class Limits:
    """What a cluster says about job arrays, and about jobs that have ended."""

    most_elements: int
    """The indices of an array's elements are below this (`MaxArraySize`); 0 where there are no arrays."""

    most_tasks: int
    """How many elements an array may have (`max_array_tasks`)."""

    listed_seconds: float
    """How long, at least, a job is listed after its end (`MinJobAge`)."""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Limits:
        most_elements = _number(settings.get("MaxArraySize", "")) or 0
        most_tasks = _MOST_TASKS.search(settings.get("SchedulerParameters", ""))
        listed = _number(settings.get("MinJobAge", ""))
        return cls(
            most_elements,
            min(most_elements, int(most_tasks[1])) if most_tasks else most_elements,
            math.inf if listed == 0 else listed or 0.0,  # Zero means forever; an absent value means no time at all.
        )


def _number(text: str) -> int | None:
    """Of `1001`, or `300 sec`."""
    word = text.partition(" ")[0]
    return int(word) if word.isdecimal() else None
