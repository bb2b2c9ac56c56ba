"""What a run would do, shown without an engine: the plan is judged by what is stored, and the result is the table.

It says what `snakemake -n` says about the same plan. Snakemake is started only if it knows more than we do: for
hand-written rules, which are checked where they are, and for a profile that may send steps elsewhere.
"""

from __future__ import annotations

import os
import sys

from marin_rules.driver.destination import destination_here
from marin_rules.driver.environments import SoftwareFolder
from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.settings.locations import config_file
from marin_rules.settings.ownership import check_not_planted
from marin_rules.state.assessment import Assessment
from marin_rules.state.stored_states import assess_stored, stored_statuses
from marin_rules.state.table import table
from marin_rules.storage.explain import StorageError
from marin_rules.storage.files import check_directory

_PROFILE_VARIABLE = "SNAKEMAKE_PROFILE"
"""Names the profile that Snakemake uses if none is given."""

_OWN_CONFIG = os.path.join("config", "config.yaml")


def needs_engine(plan: FrozenPlan) -> bool:
    """Whether only Snakemake can tell what a run would do."""
    has_rules = bool(plan.run.rule_files) or any(step.rule is not None for step in plan.steps)
    return has_rules or os.environ.get(_PROFILE_VARIABLE, "none") != "none"


def show(plan: FrozenPlan) -> None:
    """Print the table of steps on standard error. What is wrong with the experiment or its settings is raised."""
    _check_configuration()
    lines = [f"experiment {plan.run.caller_path}, prefix {plan.run.prefix}"]
    lines += [f"warning: {warning}" for warning in plan.warnings]
    print("\n".join(lines), file=sys.stderr, flush=True)
    assessment = assess_stored(plan, stored_statuses(plan), plan.forced)
    text = table(
        assessment,
        dry_run=True,
        colour=_takes_colour(),
        destination=lambda step: destination_here(plan, step),
    )
    print(f"\n{text}\n", file=sys.stderr, flush=True)
    if (trouble := trouble_ahead(plan, assessment)) is not None:
        print(f"warning: {trouble}", file=sys.stderr, flush=True)
    software = SoftwareFolder(plan, deploys_conda=False)
    obstacles = (software.obstacle(step) for step in assessment.scheduled)
    if (why := assessment.without_function or next(filter(None, obstacles), None)) is not None:
        print(f"warning: a run would stop before its first step: {why}", file=sys.stderr, flush=True)


def trouble_ahead(plan: FrozenPlan, assessment: Assessment) -> str | None:
    """What would stop a run before its first step. Not an error: someone who may only read a prefix may ask what is
    done."""
    if not assessment.scheduled or plan.unseen:
        return None
    try:
        check_directory(plan.run.directory)
    except StorageError as error:
        return f"a run would stop before its first step: {error}"
    return None


def _check_configuration() -> None:
    """A run uses the configuration of its working directory, and would stop at errors in it."""
    check_not_planted(".snakemake", os.getcwd(), "Snakemake's folder")
    file = config_file()
    check_not_planted(file, os.getcwd(), "the configuration")
    if file != _OWN_CONFIG:
        return  # The project's own is valid.
    import yaml

    from marin_rules.settings.run_settings import read_settings

    try:
        with open(file, encoding="utf-8") as stream:
            settings = yaml.safe_load(stream) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{os.path.abspath(file)} is not YAML: {error}") from error
    if not isinstance(settings, dict):
        raise SettingsError(f"{os.path.abspath(file)} has no keys: each setting is a line `key: value`")
    read_settings(settings)


def _takes_colour() -> bool:
    stream = sys.stderr
    return stream.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ
