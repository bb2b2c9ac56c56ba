"""`executor_main`: the last line of every experiment file.

Started as a script, it reads its flags and runs the steps through the engine. Under Snakemake it hands them over.
Errors are raised as Marin raises them; if nothing catches them, the program ends with one line instead of a traceback.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, overload

from marin_rules.driver import submitted_plan
from marin_rules.driver.brief_end import end_with_message
from marin_rules.driver.engine_process import EngineError, StepsFailedError, run_in_engine
from marin_rules.driver.executor import Executor
from marin_rules.driver.stop_signals import RunStopped
from marin_rules.errors import MarinRulesError, SettingsError
from marin_rules.log_setup import configure_logging
from marin_rules.placeholders import InputName
from marin_rules.plans.code_after import line_after_executor_main
from marin_rules.plans.experiment_file import current_experiment_file
from marin_rules.plans.run import INFO_FOLDER, caller_of_this_process
from marin_rules.plans.step_spec import StepSpec
from marin_rules.refusals import check_steps
from marin_rules.state.failures import PreviousTaskFailedError
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

    max_concurrent: int | None = None
    """How many steps run at the same time; by default all that are ready, and on this machine as many as it has
    cores."""

    force: list[str] | None = None
    """Regular expressions for step names: these steps, and all that depend on them, run again even if they are done."""


type Steps = Sequence[ExecutorStep[Any] | InputName | StepSpec]

_DRY_RUN = "--dry_run"


def asks_for_dry_run(arguments: Sequence[str]) -> bool:
    """Whether a command line says so: `--dry_run`, `--dry_run true` or `--dry_run=true`."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        flag, separator, value = word.partition("=")
        if flag == _DRY_RUN:
            return (value if separator else following).lower() not in ("false", "no", "off", "0")
    return False


def run_experiment(
    config: ExecutorMainConfig | None,
    steps: Any,
    description: str | None = None,
    max_concurrent: int | None = None,
) -> None:
    """Run the steps of an experiment, or hand them over, depending on what this process is for.

    `--dry_run` on the command line is heeded, even where a config is given or a StepRunner is used, which read no
    flags: whoever passes it wants nothing to run.
    """
    if _is_being_imported_by_a_spawned_child():
        return
    experiment = current_experiment_file()
    if experiment is None:
        config = config or ExecutorMainConfig()
        with _told_briefly():
            dry_run = config.dry_run or asks_for_dry_run(sys.argv[1:])
            _run(replace(config, dry_run=dry_run), steps, description, max_concurrent)
        return
    experiment.steps.extend(check_steps(steps))
    experiment.has_called = True
    experiment.description = description or experiment.description
    if config is not None:
        experiment.defaults |= {key: value for key, value in vars(config).items() if value is not None}


@overload
def executor_main(steps: Steps, description: str | None = None, /, *, max_concurrent: int | None = None) -> None: ...


@overload
def executor_main(steps: Steps, /, *, description: str | None = None, max_concurrent: int | None = None) -> None: ...


@overload
def executor_main(
    config: ExecutorMainConfig | None = None,
    steps: Steps = (),
    description: str | None = None,
    max_concurrent: int | None = None,
) -> None: ...


# Marin's has what takes no flags as `__wrapped__`, and scripts with flags of their own call that.
@functools.wraps(run_experiment, assigned=(), updated=())
def executor_main(
    config: Any = None, steps: Any = (), description: str | None = None, max_concurrent: int | None = None
) -> None:
    """Run `steps` as the flags say. `config` in place of flags is for calls from Python.

    The config may be left out, as in Marin: `executor_main(steps, description)`. Raises what `Executor.run` raises.
    """
    if config is not None and not isinstance(config, ExecutorMainConfig):
        if steps and not isinstance(steps, str):
            raise SettingsError("executor_main takes the steps as one list: executor_main([...], 'a description')")
        config, steps, description = None, config, steps or description
    if config is not None or _is_only_executed_for_its_steps():
        run_experiment(config, steps, description, max_concurrent)
        return
    configure_logging()
    try:
        run_experiment(_parse_flags(), steps, description, max_concurrent)
    except KeyboardInterrupt as stop:
        sys.exit(128 + (stop.number if isinstance(stop, RunStopped) else signal.SIGINT))


@contextmanager
def _told_briefly() -> Iterator[None]:
    """Should what is raised inside the block end the program, then with one line."""
    try:
        yield
    except (MarinRulesError, StepsFailedError, PreviousTaskFailedError, EngineError, OSError) as error:
        told = f"{error}: see their logs above" if type(error) is StepsFailedError else f"error: {error}"
        end_with_message(error, told)
        raise


def _is_only_executed_for_its_steps() -> bool:
    return current_experiment_file() is not None or _is_being_imported_by_a_spawned_child()


def _is_being_imported_by_a_spawned_child() -> bool:
    """Whether `multiprocessing` executes the experiment file only for its functions, in a child of a step."""
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and getattr(multiprocessing.current_process(), "_inheriting", False)


_SPELLING = """A list is written as '["^a$", "^b"]'. See --help."""


@_told_briefly()
def _parse_flags() -> ExecutorMainConfig:
    import draccus  # Only a script needs these, and they take a while to import.
    import yaml

    try:
        return draccus.parse(config_class=ExecutorMainConfig, args=_with_values(sys.argv[1:]))
    except draccus.utils.DecodingError as error:
        raise SettingsError(f"flag {' '.join(str(error).split())}. {_SPELLING}") from error
    except yaml.MarkedYAMLError as error:
        text = error.problem_mark.buffer.rstrip("\0") if error.problem_mark and error.problem_mark.buffer else "a value"
        raise SettingsError(f"flags: {text!r} cannot be read ({error.problem}). {_SPELLING}") from error


def _with_values(arguments: list[str]) -> list[str]:
    """Let a bare `--dry_run` mean true, and `--help` ask for help whatever else is given.

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
    steps: Any,
    description: str | None,
    max_concurrent: int | None,
) -> None:
    steps = check_steps(steps)
    if not steps:
        print("nothing to do: no steps were given", file=sys.stderr)
        return
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
    """Make the plan for a driver that is started later; show what it would do, but run nothing."""
    if config.dry_run:
        raise SettingsError(submitted_plan.NO_DRY_RUN)
    if most is not None and most < 1:
        raise SettingsError(f"max_concurrent must be at least 1, not {most}")
    file = caller_of_this_process()
    line = line_after_executor_main(read_bytes(file) or b"") if os.path.isfile(file) else None
    if line is not None:
        raise SettingsError(
            f"{file} continues after executor_main (line {line}), and that code cannot be submitted: only steps are run"
            " later. Make it a step, or put it before executor_main."
        )
    plan = executor.prepare(
        steps, run_only=config.run_only, force=config.force, force_run_failed=config.force_run_failed
    )
    submitted_plan.hand_plan_over(plan, max_concurrent=most)
    run_in_engine(plan, dry_run=True)
