"""Slurm's commands as the code under test finds them on its PATH: they find the cluster, are counted and can be broken.

Each is a shell script in front of the real program. It sets SLURM_CONF, for some tools take it from the environment
before they call Slurm. Jobs have the same scripts on their PATH.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

NAMES = (
    "sacct",
    "sacctmgr",
    "salloc",
    "sbatch",
    "scancel",
    "scontrol",
    "sinfo",
    "squeue",
    "srun",
    "sstat",
)

Breakage = Literal["fails", "hangs"]

_NO_CONTROLLER = "Unable to contact slurm controller (connect failure)"
_MESSAGES = {
    "sacct": "sacct: error: Problem talking to the database: Connection refused",
    "sbatch": f"sbatch: error: Batch job submission failed: {_NO_CONTROLLER}",
    "scancel": f"scancel: error: slurm_kill_job2() failed {_NO_CONTROLLER}",
    "scontrol": f"slurm_load_jobs error: {_NO_CONTROLLER}",
    "squeue": f"slurm_load_jobs error: {_NO_CONTROLLER}",
}
"""What the real programs say; the others say much the same."""

# A call is written as the number of its words and then the words, each with a zero byte after it. A command that hangs
# sleeps in short naps: whoever kills it and waits for the end of its output waits for the nap, too.
_SCRIPT = """\
#!/bin/sh
printf '%s\\0' "$#" "$@" >> {calls}
while [ -e {hangs} ]; do sleep 0.1; done
if [ -e {fails} ]; then
    echo {message} >&2
    exit 1
fi
export SLURM_CONF={configuration}
exec {program} "$@"
"""


class Commands:
    """The scripts, in a folder of their own."""

    def __init__(self, folder: Path, configuration: Path) -> None:
        self.folder = folder
        self._notes = folder / ".notes"
        self._notes.mkdir(parents=True)
        for name in NAMES:
            program = shutil.which(name)
            if program is None:
                continue
            message = _MESSAGES.get(name, f"{name}: error: {_NO_CONTROLLER}")
            words = {
                "calls": self._notes / f"{name}.calls",
                "hangs": self._notes / f"{name}.hangs",
                "fails": self._notes / f"{name}.fails",
                "message": message,
                "configuration": configuration,
                "program": program,
            }
            script = folder / name
            script.write_text(_SCRIPT.format_map({key: shlex.quote(str(word)) for key, word in words.items()}))
            script.chmod(0o755)

    @contextlib.contextmanager
    def broken(self, name: str, how: Breakage) -> Iterator[None]:
        """For a while a command fails as without a controller, or hangs; those that hang go on when it is over."""
        assert (self.folder / name).exists(), f"no command {name}"
        mark = self._notes / f"{name}.{how}"
        mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of each call so far, in order."""
        path = self._notes / f"{name}.calls"
        words = iter(path.read_text().split("\0")[:-1] if path.exists() else [])
        return [[next(words) for _ in range(int(count))] for count in words]

    def reset(self) -> None:
        """Mend what is broken, forget the calls."""
        for note in self._notes.iterdir():
            note.unlink()
