"""How an experiment file hands its steps to Snakemake.

The file needs nothing but its usual `executor_main(steps=[...])`. Under Snakemake the file is executed like a script,
and that call stores the steps here instead of starting a run.
"""

from __future__ import annotations

import difflib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from marin_rules import compat
from marin_rules.errors import ExperimentError, MarinRulesError
from marin_rules.placeholders import InputName
from marin_rules.plans.code_after import line_after_executor_main
from marin_rules.plans.run import python_path
from marin_rules.plans.search_path import hides_python_module, search
from marin_rules.steps import ExecutorStep
from marin_rules.storage.prefix import PREFIX_VARIABLE


@dataclass
class ExperimentFile:
    """What an experiment file asked for."""

    path: str
    steps: list[ExecutorStep[Any] | InputName] = field(default_factory=list)
    description: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    """Settings that the file passes in code; flags and configuration win over them."""

    has_called: bool = False
    """Whether the file handed over steps at all, even an empty list."""

    line_after: int | None = None
    """Where the file continues after `executor_main`: code that has already run, before any step."""

    module: ModuleType | None = None
    """Keeps the globals of the file's functions alive."""


_current: ExperimentFile | None = None
"""The one that is being executed. A global: the file calls `executor_main` itself, and passes nothing along."""


def current_experiment_file() -> ExperimentFile | None:
    """Where `executor_main` leaves its steps; None when the file was started directly."""
    return _current


def load_experiment(path: str, *, is_for_marin: bool = False, prefix: str | None = None) -> ExperimentFile:
    """Execute an experiment file and take its steps.

    One that is written for Marin finds our counterparts of Marin's modules. `prefix` is what the file finds in
    MARIN_PREFIX: StepSpecs look up their prefix while it is executed.
    """
    if not os.path.isfile(path):
        raise ExperimentError(_not_found(path))
    module = ModuleType("__main__")
    module.__file__ = os.path.abspath(path)
    experiment = ExperimentFile(path=path, module=module)
    try:
        with open(path, "rb") as file:
            source = file.read()
        code = compile(source, module.__file__, "exec")
        experiment.line_after = line_after_executor_main(source)
        if is_for_marin:
            compat.install()
        with _as_main(module, experiment), _with_prefix(prefix):
            exec(code, module.__dict__)
    except SystemExit as exit:
        if exit.code not in (None, 0):
            raise ExperimentError(f"the experiment {path} ended itself with exit code {exit.code}") from exit
    except Exception as error:
        raise ExperimentError(_failed(path, module.__file__, error)) from error
    if not experiment.has_called:
        raise ExperimentError(
            f"the experiment {path} has no steps: it must call executor_main(steps=[...]) when it is run as a script"
            ' (if __name__ == "__main__": executor_main(steps=[...])), or StepRunner().run([...]).'
        )
    return experiment


@contextmanager
def _as_main(module: ModuleType, experiment: ExperimentFile) -> Iterator[None]:
    """Appear to the file as `python file` would: it is `__main__`, without arguments; its own modules are found."""
    global _current
    saved_main, saved_argv = sys.modules["__main__"], sys.argv
    sys.modules["__main__"], sys.argv = module, [str(module.__file__)]
    search(python_path(str(module.__file__)))
    _current = experiment
    try:
        yield
    finally:
        _current = None
        sys.modules["__main__"], sys.argv = saved_main, saved_argv


@contextmanager
def _with_prefix(prefix: str | None) -> Iterator[None]:
    """Let the file find the prefix of the run; the one in the user's environment applies only if no other was
    chosen."""
    if prefix is None:
        yield
        return
    before = os.environ.get(PREFIX_VARIABLE)
    os.environ[PREFIX_VARIABLE] = prefix
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(PREFIX_VARIABLE, None)
        else:
            os.environ[PREFIX_VARIABLE] = before


def _not_found(path: str) -> str:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"there is no experiment file {path}: the folder {folder} does not exist (looked in {os.getcwd()})"
    files = [name for name in sorted(os.listdir(folder)) if name.endswith(".py")]
    close = difflib.get_close_matches(os.path.basename(path), files, n=1, cutoff=0.5)
    hint = f"Did you mean {os.path.join(folder, close[0])}?" if close else f"Files there: {', '.join(files) or 'none'}."
    return f"there is no experiment file {path}. {hint}"


def _failed(path: str, file: str, error: Exception) -> str:
    """The error, the line of the experiment and that of an imported file it came from; the whole stack is the cause."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"the experiment {path} is not valid Python: line {error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_the_user(frame.filename)]
    lines = [frame.lineno for frame in frames if frame.filename == file]
    origin = ""
    if isinstance(error, SyntaxError) and error.filename and _is_of_the_user(error.filename):
        origin = f"{error.filename}, line {error.lineno}"
    elif frames and frames[-1].filename != file:
        origin = f"{frames[-1].filename}, line {frames[-1].lineno}"
    lines_and_files = [*([f"line {lines[-1]}"] if lines else []), *([f"in {origin}"] if origin else [])]
    where = f" ({', '.join(lines_and_files)})" if lines_and_files else ""
    if isinstance(error, MarinRulesError):
        return f"the experiment {path}{where}: {error}"
    python = "python -m marin_rules.compat" if compat.is_installed() else "python"
    said = str(error).rstrip(".")
    return (
        f"the experiment {path} failed while it was executed{where}: {type(error).__name__}:"
        f" {said if said.endswith(('?', '!')) else f'{said}.'}"
        f"{_renaming_advice(file, error)}{_compat_advice(error)} Run `{python} {path} --dry_run` to see the whole"
        " traceback."
    )


def _is_of_the_user(filename: str) -> bool:
    """Whether a file belongs to neither Python, nor an installed package, nor us."""
    folders = [sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib")]
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.isfile(filename) and not os.path.realpath(filename).startswith(
        tuple(os.path.realpath(folder) + os.sep for folder in (*folders, ours))
    )


def _compat_advice(error: Exception) -> str:
    """Advice for a file that imports Marin although the run was not told so."""
    from marin_rules.compat.counterparts import PACKAGES

    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    if name.partition(".")[0] not in PACKAGES or compat.is_installed():
        return ""
    return " It is written for Marin: add compat=true to --config, or let `marin-rules migrate` rewrite its imports."


def _renaming_advice(file: str, error: Exception) -> str:
    """Advice for a file of the user's that was not imported because Python has a module of that name."""
    name = (error.name or "") if isinstance(error, ImportError) else ""
    if not hides_python_module(name):
        return ""
    candidates = (os.path.join(folder, f"{name.partition('.')[0]}.py") for folder in python_path(file))
    found = next((candidate for candidate in candidates if os.path.isfile(candidate)), None)
    if found is None:
        return ""
    return f" {found} has the name of a module of Python's own, which takes precedence: rename it."
