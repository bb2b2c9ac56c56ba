"""Steps that do nothing and may run elsewhere: an experiment in a folder of its own, and the command that runs it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ROOT

ON_SLURM = ("--profile", str(ROOT / "profiles" / "slurm"))
"""Options that send the steps to Slurm."""


def snakemake(experiment: Path, prefix: str, *options: str) -> list[str]:
    """`snakemake` with the project's Snakefile and an experiment."""
    workflow = ["--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", str(ROOT / "profiles" / "default")]
    config = ["--config", f"experiment={experiment}", f"prefix={prefix}"]
    return [sys.executable, "-m", "snakemake", *workflow, *options, *config]


class RemoteSteps:
    """The steps of `workflows/remote.py`, each with the environment that it asks for."""

    def __init__(self, folder: Path, count: int, groups: Sequence[str] = ()) -> None:
        self.folder = folder
        self.count = count
        self.prefix = folder / "marin"
        self._experiment = folder / "experiment.py"
        folder.mkdir()
        shutil.copy(ROOT / "benchmarks" / "workflows" / "remote.py", self._experiment)
        (folder / "steps.json").write_text(json.dumps([list(groups)] * count))

    def command(self, *options: str) -> list[str]:
        """`snakemake` with the project's Snakefile and this experiment."""
        return snakemake(self._experiment, str(self.prefix), *options)

    def forget(self) -> None:
        """Let all steps be undone."""
        shutil.rmtree(self.prefix / "step", ignore_errors=True)

    def statuses(self) -> list[str]:
        """The status of each step that has one."""
        return [path.read_text() for path in self.prefix.glob("step/*/.executor_status")]

    @property
    def all_done(self) -> str:
        """What a run says when it has done all steps."""
        return f"  {self.count}/{self.count}\n"
