"""Drivers that `marin-rules submit` has started, and the small experiment that they run: a step, and one after it.

The first, `far`, asks for a machine, so that on a cluster it is a job of its own; `near` runs beside the driver. Each
writes down its attempts, and waits at the gate if there is a file `far waits` or `near waits`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.lab import REPOSITORY, Lab, Result, Running

PROGRAM = Path(sys.executable).with_name("marin-rules")

FAR_AND_NEAR = """
    import os
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH
        after: str | None = None

    def attempt(name, config):
        with open(os.path.join(config.output_path, "attempts"), "a") as file:
            print(os.environ.get("SLURM_JOB_ID", "here"), file=file)
        if os.path.exists(f"{name} waits"):
            open("gate").read()

    def far(config):
        attempt("far", config)

    def near(config):
        attempt("near", config)
        print("came to the end, token", len(os.environ.get("TOKEN", "")))

    first = ExecutorStep("far", remote(far, resources=ResourceConfig(ram="300m")), Config())
    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("near", near, Config(after=first / "x"))])
    """


class Drivers:
    """Submits drivers and asks for them, as a user does."""

    def __init__(
        self, lab: Lab, variables: Mapping[str, str], *, options: Sequence[str] = (), config: Sequence[str] = ()
    ) -> None:
        """`options` and `config`: what each run of Snakemake gets, beside the experiment and the prefix."""
        self._lab = lab
        self._options = options
        self._config = config
        self.variables = variables

    def start(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Running:
        return self._lab.start([PROGRAM, *words], env={**self.variables, **(env or {})})

    def run(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Result:
        return self.start(*words, env=env).wait()

    def snakemake(self, experiment: Path, *more: str) -> list[str | Path]:
        """The command that is submitted. What comes behind it are further settings."""
        words: list[str | Path] = ["snakemake", "--snakefile", REPOSITORY / "Snakefile", *self._options, *more]
        return [*words, "--config", f"experiment={experiment}", f"prefix={self._lab.prefix}", *self._config]

    def submit(self, *command: str | Path, options: Sequence[str] = (), env: Mapping[str, str] | None = None) -> str:
        """Submit a command; returns the driver's id."""
        ran = self.run("submit", "--no-wait", *options, "--", *command, env=env)
        assert ran.code == 0, ran.output
        return self.id_in(ran.output)

    @staticmethod
    def id_in(output: str) -> str:
        return next(line for line in output.splitlines() if re.fullmatch(r"\w+-\d{8}-\d{6}-\w{6}", line))

    def wait(self, driver: str, timeout: float = 150.0) -> Result:
        return self.start("jobs", "wait", driver).wait(timeout)

    def listing(self) -> str:
        return self.run("jobs", "list").output

    def log(self, driver: str) -> str:
        return self.run("jobs", "logs", driver).output

    def printed(self, driver: str) -> str:
        """What a driver has printed so far, read from its file: to wait for something, no process is started."""
        return (self.folder / driver / "log").read_text(errors="replace")

    @property
    def folder(self) -> Path:
        """Where the records of drivers are."""
        return self._lab.folder / "state" / "marin-rules" / "drivers"

    def attempts(self, step: str) -> list[str]:
        """The Slurm job of each attempt of a step, in order; `here` for one outside of a job."""
        return [word for path in self._lab.prefix.glob(f"{step}-*/attempts") for word in path.read_text().split()]

    def engine(self) -> int:
        """The process of a driver that runs Snakemake."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"snakemake" in words and f"prefix={self._lab.prefix}".encode() in words and b"submit" not in words:
                    return int(folder.name)
        raise AssertionError("no engine")


def shut_gate(lab: Lab, step: str) -> None:
    """Let that step wait, until `lab.open_gate()`."""
    (lab.folder / f"{step} waits").touch()
