"""`marin-rules run STEP`: run one step of an experiment, and what it needs, with Snakemake."""

from __future__ import annotations

import argparse
import json
import os
import sys

from marin_rules.commands.step_arguments import add_step, experiment_of, prefix_of
from marin_rules.errors import SettingsError
from marin_rules.plans.step_names import matching
from marin_rules.project import project_folder
from marin_rules.state.written_steps import written_steps


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    add_step(parser)
    parser.add_argument(
        "--experiment", metavar="FILE", help="the experiment; by default the one that `snakemake` would use"
    )
    parser.add_argument("--again", action="store_true", help="although it is done")
    parser.epilog = "Everything after `--` is passed to snakemake: `marin-rules run STEP -- -n`."
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    prefix = prefix_of(options)
    found = matching(written_steps(prefix), options.step, prefix)
    experiment = experiment_of(options) or next((step.experiment for step in found if step.experiment), None)
    if experiment is None:
        raise SettingsError(f"which experiment has the step {options.step}? Add --experiment FILE.")
    config = [f"experiment={experiment}", f"prefix={prefix}", f"only={json.dumps([options.step])}"]
    config += ["again=true"] if options.again else []
    project = project_folder()
    words = [sys.executable, "-P", "-m", "snakemake", "--snakefile", str(project / "Snakefile")]
    words += ["--workflow-profile", str(project / "profiles" / "default"), *options.passed_on, "--config", *config]
    sys.stdout.flush()
    os.execv(words[0], words)
