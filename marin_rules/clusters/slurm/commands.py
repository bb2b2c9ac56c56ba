"""Runs Slurm's own commands: with a time limit, and with an error that says what to do when they fail.

A controller that is restarting or busy fails or hangs for a while. The caller decides whether to try again.

What people have set for their own lists (`SQUEUE_PARTITION`, `SCANCEL_STATE`) is kept from the commands: jobs hidden by
one of these variables would be taken for lost, and those protected by one for cancelled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from marin_rules.clusters.protocol import BusyError, ClusterError, FullError, RefusedError
from marin_rules.clusters.slurm.refusals import Refusal, kind_of
from marin_rules.parentage import ending_with_us

TIMEOUT_SECONDS = 30.0
"""How long a command may take: Slurm itself gives up on a silent controller after ten seconds."""

_FOR_PEOPLE = ("SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_", "SQUEUE_")
"""The beginnings of variables that choose what a command shows, and how."""


def has_slurm() -> bool:
    """Whether Slurm's commands are on this machine."""
    return shutil.which("squeue") is not None


def run_command(
    *words: str,
    stdin: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    environment: Mapping[str, str] | None = None,
    ends_with_us: bool = False,
) -> str:
    """The output of a command; bytes that are not UTF-8 become replacement characters.

    If it `ends_with_us`, a command that still waits for the controller when this process is killed is killed, too.
    """
    program = shutil.which(words[0])  # As it is found here: the environment may be that of a job.
    if program is None:
        raise RefusedError(f"{words[0]} is not on this machine: start the run where Slurm's commands are")
    try:
        answer = subprocess.run(
            ending_with_us(program, words) if ends_with_us else [program, *words[1:]],
            # Bytes: Slurm repeats what the user's other programs passed to it (comments, names), in any encoding.
            input=None if stdin is None else os.fsencode(stdin),
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            env=own_environment() if environment is None else dict(environment),
            # Ctrl-C in a terminal is for the driver, which decides what is to be ended, and how.
            start_new_session=True,
        )
    except OSError as error:  # No memory, no processes left, no permission.
        raise ClusterError(f"{words[0]} could not be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise BusyError(f"{words[0]} gave no answer for {timeout:.0f} s") from error
    if answer.returncode != 0:
        message = _message(_text(answer.stderr))
        raise _ERRORS[kind_of(message)](f"{words[0]} failed: {message or f'exit code {answer.returncode}'}")
    return _text(answer.stdout)


_ERRORS = {
    Refusal.PASSING: BusyError,
    Refusal.FULL: FullError,
    Refusal.UNKNOWN: ClusterError,
    Refusal.LASTING: RefusedError,
}


def own_environment() -> dict[str, str]:
    """This process's variables, without those that would have a command leave out some jobs."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOR_PEOPLE)}


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _message(text: str) -> str:
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[:4])


def user_name() -> str:
    """Whose jobs are ours, as arguments of squeue and scancel."""
    return str(os.getuid())
