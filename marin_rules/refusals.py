"""What a plan refuses in a single step although Marin accepts it: anything that would silently go wrong in a run.

Pure, like the plan. Every message names the step and the field, and says what to write instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import Enum
from os import PathLike
from typing import Any
from urllib.parse import urlparse

from marin_rules.configs import Dependencies, climbs, field_names, is_of_marin, is_spec, marins_own
from marin_rules.errors import PlanError
from marin_rules.functions import check_function, function_name, mark_in_partial
from marin_rules.handwritten import SnakemakeRule
from marin_rules.machines import resources_of, tasks_of
from marin_rules.placeholders import MARK, InputName
from marin_rules.remote import RemoteCallable
from marin_rules.resources import ResourceConfig, TpuConfig, check_resources
from marin_rules.steps import ExecutorStep
from marin_rules.swallowed import Search, swallowed_text
from marin_rules.tasks import check_tasks

type Step = ExecutorStep[Any]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ELLIPSIS = re.compile(r"\.\.\.|\u2026|(?<!\S)\.\.(?!\S)")  # The last is how pandas writes it in a narrow column.
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

_PATTERN_TEXT_LENGTH = 200
"""Python silently cuts the text of a compiled regular expression here."""


_HOME = "would be below a folder named '~': it was not expanded to a home directory. Write the path out."

_NO_STORES = {
    "file": "is not a path that a function can open. Write '{}'.",
    "local": "is not a path that a function can open. Write '{}'.",
    "memory": "ends with the process that writes it. Use a folder or a bucket.",
}

_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 3_900
"""The limits of file systems; some of a path's 4,096 bytes are left for the files in the folder."""


def check_length(step: Step, output_path: str) -> None:
    """Refuse a path that no local file system can hold; an object store takes any name."""
    if len(output_path) <= _MAX_NAME_BYTES // 4 or "://" in output_path:
        return
    size, longest = max((len(part.encode()), part) for part in output_path.split("/"))
    if size > _MAX_NAME_BYTES:
        what = f"a folder of its output path, {longest[:20]!r}..., has a name of {size} bytes, and file systems take"
        raise PlanError(f"{_short(step)}: {what} {_MAX_NAME_BYTES}. Shorten the name, or divide it with slashes.")
    if len(output_path.encode()) > _MAX_PATH_BYTES:
        raise PlanError(f"{_short(step)}: its output path has {len(output_path.encode())} bytes. Shorten the name.")


def _short(step: Step) -> str:
    return f"step {step.name!r}" if len(step.name) <= 60 else f"step {step.name[:60]!r}..."


def check_steps(steps: Any) -> list[ExecutorStep[Any] | InputName]:
    """The steps that were asked for, if that is what they are: StepSpecs as steps, without hard-coded paths."""
    if isinstance(steps, ExecutorStep | InputName) or is_spec(steps):
        raise PlanError("steps is a single step, not a list of them: write steps=[step]")
    if isinstance(steps, str | dict) or not isinstance(steps, Iterable):
        raise PlanError(f"steps is {_kind(steps)}, not a list of steps: write steps=[step, ...]")
    checked: list[ExecutorStep[Any] | InputName] = []
    for position, item in enumerate(steps):
        if is_of_marin(type(item)):
            raise PlanError(f"steps[{position}] is {marins_own(type(item))}.")
        if is_spec(item):
            checked.append(item.as_executor_step())
        elif not isinstance(item, ExecutorStep | InputName):
            hint = ": write *steps in place of it" if isinstance(item, list | tuple) else ""
            raise PlanError(f"steps[{position}] is {_kind(item)}, neither an ExecutorStep nor a StepSpec{hint}")
        elif not isinstance(item, InputName) or item.step is not None:
            checked.append(item)
    return checked


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"the function {value.__qualname__}"
    text = repr(value) if isinstance(value, str | int | float) else ""
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}{f' ({text[:60]})' if text else ''}"


class StepChecks:
    """Checks the steps of one plan; what several of them share is checked once."""

    def __init__(self) -> None:
        self._functions: set[int] = set()
        self._search = Search()
        self.warnings: list[str] = []

    def check(self, step: Step) -> None:
        """Refuse what is wrong with a step apart from its config."""
        _check_name(step)
        where = f"step {step.name!r}"
        _check_override(step, where)
        if step.fn is not None and id(step.fn) not in self._functions:
            check_function(step.fn, where)
            self._search.check_function(step.fn, where)
            if (marked := mark_in_partial(step.fn)) is not None:
                self.warnings.append(
                    f"{where}: {function_name(marked)} is remote(...), but is inside a functools.partial: the step runs"
                    " without the machines, variables and packages that it asks for. Mark the partial instead, as in"
                    f" remote(functools.partial({marked.__name__}.fn, ...), resources={marked.__name__}.resources)"
                )
            self._functions.add(id(step.fn))
        if step.resources is not None and not isinstance(step.resources, ResourceConfig):
            raise PlanError(
                f"{where}: resources is {_kind(step.resources)}, not a ResourceConfig: use ResourceConfig.with_cpu,"
                " with_gpu or with_tpu"
            )
        _check_resources(step, where)
        if step.conda is not None and not isinstance(step.conda, str):
            raise PlanError(f"{where}: conda is {_kind(step.conda)}, not the path of an environment file")
        groups = step.pip_dependency_groups
        if groups is not None and (isinstance(groups, str) or not all(isinstance(group, str) for group in groups)):
            raise PlanError(f"{where}: pip_dependency_groups={groups!r} must be a list of names, such as ['cpu']")
        if step.description is not None and not isinstance(step.description, str):
            raise PlanError(f"{where}: description is {_kind(step.description)}, not a string")
        _check_tasks(step, where)
        if step.report:
            _check_report(step.report, where)

    def check_config(self, step: Step, collected: Dependencies) -> None:
        """Refuse references that would be lost, or resolve to something other than they say."""
        for field, reference in collected.references:
            _check_reference(step, field, reference)
        for field, value in collected.versioned:
            _check_versioned(step, field, value)
        for field, value in collected.leaves:
            where = f"step {step.name!r}{f', {field}' if field else ''}"
            if is_spec(value):
                self.warnings.append(
                    f"{where}: the StepSpec {value.name!r} is not a dependency there, and may not be done when the"
                    " function is called. Write as_executor_step() after it to wait for it and to get its path"
                )
            else:
                self._search.check_value(value, where)


def _check_name(step: Step) -> None:
    if not isinstance(step.name, str) or not step.name.strip("/ "):
        raise PlanError(f"a step with function {function_name(step.fn)} has no name: give it one, such as 'data/raw'")
    where = f"step {step.name!r}"
    if MARK in step.name:
        raise PlanError(f"{where}: its name was made from a step or placeholder. Write out what it stands for.")
    if not step.name.isprintable():
        raise PlanError(f"{where}: the name holds a control character, or one that cannot be shown")
    if step.name.startswith("/"):
        raise PlanError(
            f"{where}: the name starts with a slash, so the step would write outside the prefix. Remove it, or use"
            " override_output_path for a path of your own."
        )
    if climbs(step.name):
        raise PlanError(f"{where}: the name climbs with '..' and could leave the prefix. Use a plain name.")


def _check_override(step: Step, where: str) -> None:
    override = step.override_output_path
    if override is None:
        return
    if not isinstance(override, str):
        raise PlanError(f"{where}: override_output_path is {_kind(override)}, not a string")
    if MARK in override:
        raise PlanError(f"{where}: override_output_path: {swallowed_text(override)}")
    if override.startswith("~"):
        raise PlanError(f"{where}: override_output_path {override!r} {_HOME}")
    scheme, separator, rest = override.partition("://")
    if separator and scheme in _NO_STORES:
        raise PlanError(f"{where}: override_output_path {override!r} {_NO_STORES[scheme].format(rest)}")
    if not override.strip("/ ") or _leaves_prefix(override):
        raise PlanError(
            f"{where}: override_output_path {override!r} is neither a path below the prefix nor an absolute path or URL"
        )


def _check_resources(step: Step, where: str) -> None:
    resources = resources_of(step)
    if resources is None:
        return
    try:
        check_resources(resources)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{where}: resources: {error}") from error


def _check_tasks(step: Step, where: str) -> None:
    try:
        check_tasks(step.tasks)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{where}: {error}") from error
    if tasks_of(step) is None:
        return
    fn = step.fn.fn if isinstance(step.fn, RemoteCallable) else step.fn
    if isinstance(fn, SnakemakeRule):
        raise PlanError(
            f"{where}: tasks are calls of a Python function, and the rule {fn.name} is not one. Let a function start"
            " the rule's command for the files of its task, or write a step of its own for each part."
        )
    resources = resources_of(step)
    if resources is not None and resources.replicas > 1:
        raise PlanError(
            f"{where}: tasks={tasks_of(step)} and replicas={resources.replicas} do not go together. Tasks are"
            " independent of each other, with a machine each; replicas are machines that run one function together."
            " Choose one."
        )
    if resources is not None and isinstance(resources.device, TpuConfig):
        raise PlanError(
            f"{where}: tasks={tasks_of(step)} and a TPU {resources.device.variant} do not go together: a slice is made"
            " for one function that runs on all of its hosts. Leave out tasks, or write a step for each part."
        )


def _check_report(report: Sequence[str], where: str) -> None:
    if isinstance(report, str) or not isinstance(report, Iterable):
        raise PlanError(f"{where}: report={report!r} must be a list of names or patterns")
    for pattern in report:
        if not isinstance(pattern, str) or not pattern or climbs(pattern):
            raise PlanError(f"{where}: report={pattern!r} must name files below the step's output path")


def _check_reference(step: Step, field: str, reference: InputName) -> None:
    name = reference.name or ""
    where = f"step {step.name!r}, {field}"
    if MARK in name:
        raise PlanError(f"{where}: {swallowed_text(name)}")
    if reference.step is None:
        if not name:
            raise PlanError(f"{where}: a hard-coded path is empty")
        if name.startswith("~"):
            raise PlanError(f"{where}: the hard-coded path {name!r} {_HOME}")
        if _leaves_prefix(name):
            raise PlanError(f"{where}: the hard-coded path {name!r} climbs out of the prefix")
    elif climbs(name) or "://" in name:
        raise PlanError(
            f"{where}: {name!r} is not below the output path it is taken from. Use a path"
            " without a leading slash and '..', or InputName.hardcoded(path) for one of your own."
        )


def _items(field: str, value: Any) -> Iterable[tuple[str, Any]]:
    names = field_names(type(value))
    if names is not None:
        return ((f"{field}.{name}", getattr(value, name)) for name in names)
    if isinstance(value, dict):
        return ((f"{field}.{key}", item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return ((f"{field}[{i}]", item) for i, item in enumerate(value))
    return ((field, item) for item in value) if isinstance(value, set | frozenset) else ()


def _check_versioned(step: Step, field: str, value: Any) -> None:
    """A versioned value is hashed by its JSON: what has none that is the same in every run is refused."""
    pending: list[tuple[str, Any]] = [(field, value)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, str):
            if MARK in item:
                raise PlanError(f"step {step.name!r}, {where}: {swallowed_text(item)}")
            continue
        if isinstance(item, int | float) or item is None:
            continue
        if isinstance(item, ExecutorStep | InputName):
            raise PlanError(
                f"step {step.name!r}, {where}: a step is inside versioned(...). It would be hashed by its memory"
                " address and never run. Put it outside: references are always versioned."
            )
        if isinstance(item, set | frozenset) and len(item) > 1:
            raise PlanError(f"step {step.name!r}, {where}: a versioned set has no stable order. Use a sorted list.")
        if isinstance(item, Enum):
            pending.append((where, item.value))
            continue
        is_container = isinstance(item, dict | list | tuple | set | frozenset) or field_names(type(item)) is not None
        if is_container:
            pending.extend(_items(where, item))
        elif not isinstance(item, timedelta | PathLike | bytes | bytearray):
            _check_text(f"step {step.name!r}, {where}", item)


def _check_text(where: str, value: Any) -> None:
    """Refuse a value without JSON whose text, which is hashed in its place, does not say all of it."""
    text = str(value)
    shown = " ".join(text.split())
    shown = shown if len(shown) <= 80 else f"{shown[:40]} [...] {shown[-30:]}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if MARK in text:
        raise PlanError(f"{where}: a step or placeholder is inside the versioned {kind}. Put it outside.")
    if _ADDRESS.search(text):
        raise PlanError(
            f"{where}: the versioned value {shown} would be hashed by its memory"
            " address, which differs in every run. Version a name or a number that stands for it."
        )
    what = "abbreviated" if _is_cut(value, text) else "rounded" if _is_rounded(value, text) else None
    if what is not None:
        raise PlanError(
            f"{where}: the versioned {kind} would be hashed by its text, which is {what} ({shown}): values that differ"
            " in what is left out would share a path. Version a list of the numbers, a hash of the data or the name of"
            " their file; or str(...) of it, if the text is all that matters."
        )


def _is_cut(value: Any, text: str) -> bool:
    if isinstance(value, re.Pattern):
        return len(repr(value.pattern)) > _PATTERN_TEXT_LENGTH
    return _ELLIPSIS.search(text) is not None


def _is_rounded(value: Any, text: str) -> bool:
    """Whether an array holds a number that its text does not show to the last digit."""
    to_list = getattr(value, "tolist", None) or getattr(getattr(value, "values", None), "tolist", None)
    if isinstance(value, type) or not callable(to_list):
        return False
    floats = [item for item in _flat(to_list()) if isinstance(item, float)]
    if not floats:
        return False
    shown = [float(number) for number in _NUMBER.findall(text)]
    numpy: Any = sys.modules.get("numpy")
    dtype = getattr(value, "dtype", None)
    if numpy is not None and isinstance(dtype, numpy.dtype):
        shown = numpy.array(shown).astype(dtype).tolist()  # 0.1 is another number in 32 bits.
    known = {*shown, float("inf"), float("-inf")}
    return any(item == item and item not in known for item in floats)


def _flat(values: Any) -> list[Any]:
    found: list[Any] = []
    pending = [values]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        else:
            found.append(item)
    return found


def _leaves_prefix(path: str) -> bool:
    """Whether a path is relative, but not to a place below the prefix."""
    if path.startswith("/") or "://" in path:
        return False
    # Marin treats anything before a colon as a scheme, and the path as one of its own.
    return climbs(path) or bool(urlparse(path).scheme)
