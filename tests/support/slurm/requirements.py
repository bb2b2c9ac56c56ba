"""What a machine must have for a test cluster, and a clear word where it has not."""

from __future__ import annotations

import os
import shutil

SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where Debian puts daemons; not every shell of root has it on its PATH."""

_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "setpriv")
_ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")


class SlurmUnavailableError(RuntimeError):
    """There can be no cluster on this machine, for a reason that lies in the machine."""


def check_requirements(path: str, *, accounting: bool) -> None:
    """Refuse a machine on which the daemons could not start."""
    if os.geteuid() != 0:
        raise SlurmUnavailableError("a Slurm cluster needs root, for its daemons and for the device files of its GPUs")
    programs = _PROGRAMS + (_ACCOUNTING_PROGRAMS if accounting else ())
    missing = [name for name in programs if shutil.which(name, path=path) is None]
    if missing:
        raise SlurmUnavailableError(f"no {', '.join(missing)} on this machine: run scripts/ensure-slurm")
