"""Runs Slurm's own commands: with a time limit, and with an error that says what to do when they fail.

A controller that restarts, or that is busy, fails or hangs for a while. Whoever calls decides whether to try again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from marin_rules.errors import MarinRulesError

TIMEOUT_SECONDS = 30.0
"""How long a command may take: Slurm itself gives up on a silent controller after ten seconds."""


_PASSING = (
    "unable to contact slurm controller",
    "unable to contact the controller",
    "socket timed out",
    "connection refused",
    "connect failure",
    "connection timed out",
    "zero bytes were transmitted",
    "transport endpoint is not connected",
    "temporarily unavailable",
    "temporarily unable",
    "in standby mode",
    "submitjob",
    "slurm_load_jobs error",
)
"""What Slurm says when it is busy, restarts, or has as many of the user's jobs as it takes: it passes."""


class SlurmError(MarinRulesError):
    """A command of Slurm failed."""


class SlurmBusyError(SlurmError):
    """Slurm gave no answer, or asked to try again later."""


def has_slurm() -> bool:
    """Whether Slurm's commands are on this machine."""
    return shutil.which("squeue") is not None


def run_command(
    *words: str,
    stdin: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command prints."""
    try:
        answer = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=None if environment is None else dict(environment),
            # Ctrl-C in a terminal is for the driver, which decides what is to be ended, and how.
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise SlurmError(f"{words[0]} is not on this machine: start the run where Slurm's commands are") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmBusyError(f"{words[0]} gave no answer for {timeout:.0f} s") from error
    if answer.returncode != 0:
        message = _message(answer.stderr)
        kind = SlurmBusyError if any(sign in message.lower() for sign in _PASSING) else SlurmError
        raise kind(f"{words[0]} failed: {message or f'exit code {answer.returncode}'}")
    return answer.stdout


def _message(text: str) -> str:
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[:4])


def user_name() -> str:
    """Whose jobs are ours, in the words of squeue and scancel."""
    return str(os.getuid())
