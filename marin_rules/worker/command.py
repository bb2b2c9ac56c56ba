"""The program that every job of a step starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def run_step_command() -> Path:
    """Where that program is."""
    return Path(__file__).resolve().parent / "run-step"


def element_arguments(number: int, first_task: int) -> Sequence[str]:
    """The arguments of the worker of an array step in an element of a job array: see `worker.main`."""
    return (f"--round={number}", f"--first-task={first_task}")
