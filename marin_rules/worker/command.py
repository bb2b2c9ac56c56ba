"""The program that every job of a step starts."""

from __future__ import annotations

from pathlib import Path


def run_step_command() -> Path:
    """Where that program is."""
    return Path(__file__).resolve().parent / "run-step"
