"""What the jobs of steps execute on a machine that has the driver's files, and the conda files of their rules."""

from __future__ import annotations

import shlex
import sys

from marin_rules.driver.environments import SoftwareFolder
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.run import python_version
from marin_rules.project import project_folder
from marin_rules.worker.command import run_step_command

CONDA_PYTHON = "conda"
"""What run-step takes for the Python of the conda environment that Snakemake has activated, wherever that is."""


class StepCommands:
    """Answers for the steps of one plan."""

    def __init__(self, plan: FrozenPlan, software: SoftwareFolder, *, deploys_conda: bool) -> None:
        self._plan = plan
        self._software = software
        self._deploys_conda = deploys_conda

    def command(self, step: FrozenStep | None) -> str:
        """With the Python of the step's own environment, or of a conda environment, or with the driver's.

        None stands for any step that asks for nothing of its own. The key of the step follows the command.
        """
        position = None if step is None else self._software.position(step)
        if position is not None:
            return self._run_step(self._software.python(position), self._software.package)
        if self._deploys_conda:
            return self._run_step(CONDA_PYTHON, self._software.package)
        return self._run_step(sys.executable)

    def leased(self, script: str, interpreter: str) -> str:
        """The command of a hand-written rule: its script, run under the step's lease."""
        run_step = _literal(self._run_step(sys.executable))
        command = f"{run_step} {{wildcards.step}} --log={{log}} --script {_literal(shlex.quote(interpreter))}"
        return f"{command} <<'END_OF_SCRIPT'\n{script}\nEND_OF_SCRIPT\n"

    def _run_step(self, python: str, package: str = "-") -> str:
        command = ["source", str(run_step_command()), python, package]
        return shlex.join([*command, "--digest", self._plan.digest, "--plan", self._plan.run.plan_path, "--step"])


def is_plain(step: FrozenStep) -> bool:
    """Whether a step does not ask for an environment of its own."""
    return step.conda_file is None and step.software is None


def conda_file(step: FrozenStep | None) -> str | None:
    """The conda file for `--sdm conda`: a step's own, or the project's; None if the step's environment is made by uv.

    None stands for any step that asks for nothing of its own.
    """
    if step is not None and not is_plain(step):
        return step.conda_file
    return project_conda_file(f"steps-{python_version()}.yaml")


def project_conda_file(name: str) -> str:
    """The path of one of the project's own conda files."""
    return str(project_folder() / "envs" / name)


def _literal(text: str) -> str:
    """Text that stays the same when Snakemake fills in the placeholders of a command."""
    return text.replace("{", "{{").replace("}", "}}")
