"""`executor_main`: the last line of every experiment file.

Started as a script, it reads its flags and runs the steps through the engine. Under Snakemake it hands them over.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from marin_rules.driver import submitted_plan
from marin_rules.driver.engine_process import EngineError, StepsFailedError, run_in_engine
from marin_rules.driver.executor import Executor
from marin_rules.driver.stop_signals import RunStopped
from marin_rules.errors import MarinRulesError, SettingsError
from marin_rules.placeholders import InputName
from marin_rules.plans.code_after import line_after_executor_main
from marin_rules.plans.experiment_file import current_experiment_file
from marin_rules.plans.run import INFO_FOLDER, caller_of_this_process
from marin_rules.refusals import check_steps
from marin_rules.steps import ExecutorStep
from marin_rules.storage.files import read_bytes
from marin_rules.storage.prefix import marin_prefix


@dataclass(frozen=True)
class ExecutorMainConfig:
    """The flags of an experiment file."""

    prefix: str | None = None
    """Where data is written; without it $MARIN_PREFIX, then /tmp/marin."""

    executor_info_base_path: str | None = None
    """Where the description of the experiment is written; `<prefix>/experiments` without it."""

    dry_run: bool = False
    """Only show what would run and why; nothing is written."""

    force_run_failed: bool = True
    """false: a step that failed in an earlier run, and whatever depends on it, is refused."""

    run_only: list[str] | None = None
    """Regular expressions for step names: these steps and what they need run, and no others."""

    force: list[str] | None = None
    """Regular expressions for step names: these steps, and all that depend on them, run again even if they are done."""

    max_concurrent: int | None = None
    """How many steps run at the same time; without it as many as there are cores."""


def executor_main(
    config: ExecutorMainConfig | None = None,
    steps: Sequence[ExecutorStep[Any] | InputName] = (),
    description: str | None = None,
    max_concurrent: int | None = None,
) -> None:
    """Run `steps` as the flags say. `config` in place of flags is for calls from Python, and raises what fails."""
    if _is_being_imported_by_a_spawned_child():
        return
    experiment = current_experiment_file()
    if experiment is not None:
        experiment.steps.extend(check_steps(steps))
        experiment.description = description or experiment.description
        if config is not None:
            experiment.defaults |= {key: value for key, value in vars(config).items() if value is not None}
        return
    if config is not None:
        _run(config, steps, description, max_concurrent)
        return
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    try:
        _run(_parse_flags(), steps, description, max_concurrent)
    except (MarinRulesError, StepsFailedError, EngineError, OSError) as error:
        sys.exit(f"error: {error}" if not isinstance(error, StepsFailedError) else f"{error}: see their logs above")
    except KeyboardInterrupt as stop:
        sys.exit(128 + (stop.number if isinstance(stop, RunStopped) else signal.SIGINT))


def _is_being_imported_by_a_spawned_child() -> bool:
    """Whether `multiprocessing` executes the experiment file only for its functions, in a child of a step."""
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and getattr(multiprocessing.current_process(), "_inheriting", False)


_SPELLING = """A list is written as '["^a$", "^b"]'. See --help."""


def _parse_flags() -> ExecutorMainConfig:
    import draccus  # Only a script needs them, and they take a while to import.
    import yaml

    try:
        return draccus.parse(config_class=ExecutorMainConfig, args=_with_values(sys.argv[1:]))
    except draccus.utils.DecodingError as error:
        raise SettingsError(f"flag {' '.join(str(error).split())}. {_SPELLING}") from error
    except yaml.MarkedYAMLError as error:
        text = error.problem_mark.buffer.rstrip("\0") if error.problem_mark and error.problem_mark.buffer else "a value"
        raise SettingsError(f"flags: {text!r} cannot be read ({error.problem}). {_SPELLING}") from error


def _with_values(arguments: list[str]) -> list[str]:
    """Let a bare `--dry_run` mean true, and `--help` ask for help whatever stands beside it.

    While draccus prints its help, it accepts no value for a flag that may be None.
    """
    if not {"-h", "--help"}.isdisjoint(arguments):
        return ["--help"]
    switches = {"--dry_run", "--force_run_failed"}
    result = []
    for position, argument in enumerate(arguments):
        result.append(argument)
        following = arguments[position + 1 : position + 2]
        if argument in switches and (not following or following[0].startswith("--")):
            result.append("true")
    return result


def _run(
    config: ExecutorMainConfig,
    steps: Sequence[ExecutorStep[Any] | InputName],
    description: str | None,
    max_concurrent: int | None,
) -> None:
    steps = check_steps(steps)
    if not steps:
        raise MarinRulesError("executor_main() was given no steps")
    prefix = config.prefix or marin_prefix()
    base = config.executor_info_base_path or os.path.join(prefix, INFO_FOLDER)
    executor = Executor(prefix, base, description)
    most = config.max_concurrent if max_concurrent is None else max_concurrent
    if submitted_plan.is_plan_wanted():
        _hand_over(executor, config, steps, most)
        return
    executor.run(
        steps,
        dry_run=config.dry_run,
        run_only=config.run_only,
        force=config.force,
        force_run_failed=config.force_run_failed,
        max_concurrent=most,
    )


def _hand_over(
    executor: Executor, config: ExecutorMainConfig, steps: Sequence[ExecutorStep[Any] | InputName], most: int | None
) -> None:
    """Make the plan for a driver that is started later; show what it would do, and run nothing."""
    if config.dry_run:
        raise SettingsError(submitted_plan.NO_DRY_RUN)
    if most is not None and most < 1:
        raise SettingsError(f"max_concurrent must be at least 1, not {most}")
    file = caller_of_this_process()
    line = line_after_executor_main(read_bytes(file) or b"") if os.path.isfile(file) else None
    if line is not None:
        raise SettingsError(
            f"{file} goes on after executor_main (line {line}), and that code cannot be submitted: only steps are run"
            " later. Make it a step, or put it before executor_main."
        )
    plan = executor.prepare(
        steps, run_only=config.run_only, force=config.force, force_run_failed=config.force_run_failed
    )
    submitted_plan.hand_plan_over(plan, max_concurrent=most)
    run_in_engine(plan, dry_run=True)
