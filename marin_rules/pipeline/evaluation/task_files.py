"""Tasks of lm-eval, found by name and loaded with their data before there is a model.

A task is one that lm-eval ships (its data comes from the Hugging Face hub, or from a cache of it), or one of a folder
of YAML files. Of such a folder, paths in `data_files` are relative to the folder; it may be the output of a step, in a
bucket too. What it would have executed is refused, unless the folder is trusted (`task_code.py`).
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_rules import InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import is_url, join, open_to_read, sizes_below
from marin_rules.pipeline.evaluation.task_code import refuse_code, yaml_files

_NAME = re.compile(r"^(?:task|group|tag):\s*[\"']?([\w.-]+)[\"']?\s*(?:#.*)?$", re.MULTILINE)
_FILE_NAME = re.compile(r"[^/\\\x00-\x1f]{1,150}")
_NEAR = 5
_SAMPLING = (
    *("until", "do_sample", "temperature", "top_p"),
    *("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"),
)


@dataclass(frozen=True)
class EvalTask:
    """A task of lm-eval, or a group of tasks."""

    name: str
    num_fewshot: int | None = None
    """Solved examples in each prompt. None: as many as the task says."""

    folder: str | InputName | None = None
    """Where its YAML is. None: among those that lm-eval ships."""

    alias: str | None = None
    """What it is called in the results, for the same task with several numbers of examples."""

    allow_code: bool = False
    """Whether Python of its folder may be executed (`!function`, say), whoever wrote it. Changes no result."""

    @property
    def label(self) -> str:
        return self.alias or self.name


@dataclass(frozen=True)
class LoadedTask:
    """A task with its data."""

    task: EvalTask
    contents: dict[str, Any]
    """As `TaskManager.load` returns it."""

    def label_of(self, name: str) -> str:
        """What a task or group among the contents is called in the results."""
        return self.task.label if name == self.task.name else f"{self.task.label}.{name}"


def near_matches(name: str, known: Sequence[str]) -> str:
    """The end of a message about a name that is not known."""
    close = difflib.get_close_matches(name, known, _NEAR, cutoff=0.5)
    close += [one for one in known if name.lower() in one.lower() and one not in close][: _NEAR - len(close)]
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"there are {', '.join(sorted(known)[:20])}" + (", ..." if len(known) > 20 else "") if known else ""


def refuse_unknown_here(tasks: Sequence[EvalTask]) -> None:
    """While planning: tasks of folders on this machine. Others are looked for when the step starts."""
    for task in tasks:
        folder = task.folder
        if not isinstance(folder, str) or is_url(folder) or not os.path.isdir(folder):
            continue
        texts = _yaml_texts(folder)
        if not task.allow_code:
            refuse_code(folder, texts)
        names = {name for text in texts.values() for name in _NAME.findall(text)}
        # A tag may also be in a list: a name that appears nowhere means nothing.
        if task.name not in names and not any(_occurs(task.name, text) for text in texts.values()):
            raise DataError(f"no task {task.name!r} in {folder}: {near_matches(task.name, sorted(names))}")


def _occurs(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text) is not None


def _yaml_texts(folder: str) -> dict[str, str]:
    """What is not UTF-8 is no YAML, and is left to lm-eval, which does not read it either."""
    texts = {}
    for name in yaml_files(sizes_below(folder)):
        with open_to_read(join(folder, name)) as file:
            texts[name] = file.read().decode(errors="replace")
    return texts


def refuse_twins(tasks: Sequence[EvalTask]) -> None:
    _refuse_twin_labels([task.label for task in tasks])


def _refuse_twin_labels(labels: Sequence[str]) -> None:
    for label in labels:
        if labels.count(label) > 1:
            raise DataError(f"two tasks are called {label!r}: give one of them an alias")


@contextlib.contextmanager
def loaded_tasks(tasks: Sequence[EvalTask]) -> Iterator[list[LoadedTask]]:
    """All tasks; the first that is unknown, or whose data is not to be had, is refused."""
    refuse_twins(tasks)
    _render_in_sandbox()
    with tempfile.TemporaryDirectory(prefix="evaluation-tasks-") as place:
        managers: dict[str | None, tuple[Any, str]] = {}
        for task in tasks:
            folder = None if task.folder is None else str(task.folder)
            if folder not in managers:
                copy = os.path.join(place, str(len(managers)))
                is_trusted = all(one.allow_code for one in tasks if str(one.folder) == folder)
                managers[folder] = _manager(folder, copy, is_trusted=is_trusted), copy
        for task in tasks:  # All names first: data may take a while.
            manager, _ = managers[None if task.folder is None else str(task.folder)]
            if task.name not in manager.all_tasks:
                where = "in lm-eval" if task.folder is None else f"in {task.folder}"
                raise DataError(f"no task {task.name!r} {where}: {near_matches(task.name, manager.all_tasks)}")
        found = []
        for task in tasks:
            manager, copy = managers[None if task.folder is None else str(task.folder)]
            found.append(LoadedTask(task, _load(task, manager, copy)))
            for name in (*found[-1].contents["tasks"], *found[-1].contents.get("groups", {})):
                if not _FILE_NAME.fullmatch(name):
                    raise DataError(f"task {task.name!r} has a part {name!r}, which cannot name a file: rename it")
            for one in found[-1].contents["tasks"].values():
                stated_chance(one)
                _refuse_other_sampling(one)
                _keep_answers_out_of_prompts(one)
        parts = [one.label_of(name) for one in found for name in one.contents["tasks"]]
        groups = [one.label_of(name) for one in found for name in one.contents.get("groups", {})]
        _refuse_twin_labels([*parts, *groups])
        yield found


def stated_chance(task: Any) -> float | None:
    """What a guess gets, if a task says it (`metadata: {chance: 0.5}`)."""
    stated = (task.config.metadata or {}).get("chance")
    if stated is None:
        return None
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 <= stated <= 1:
        raise DataError(f"task {task.config.task!r} states a chance of {stated!r}: use a number from 0 to 1")
    return float(stated)


def _refuse_other_sampling(task: Any) -> None:
    """Whatever else than these changes which text is drawn would be left out."""
    settings = (task.config.generation_kwargs or {}) if task.OUTPUT_TYPE == "generate_until" else {}
    for name, value in settings.items():
        if name not in _SAMPLING and (name, value) != ("num_beams", 1):
            raise DataError(
                f"task {task.config.task!r} has text generated with {name} {value!r}, which Levanter's engine does not"
                f" know: its generation_kwargs can be {', '.join(_SAMPLING)}"
            )


def _keep_answers_out_of_prompts(task: Any) -> None:
    """A task may have no other items to draw examples from than those that it asks. lm-eval leaves out the one that is
    asked only if the task names one split as its `test_split` and its `fewshot_split`; else the prompt may tell the
    answer."""
    wanted = task.config.num_fewshot or 0
    if not wanted or not hasattr(task, "sampler"):
        return
    config, drawn = task.config, task.fewshot_cfg.split
    asked = config.test_split or config.validation_split
    if drawn is None and not task.fewshot_cfg.samples:
        drawn = config.training_split or config.validation_split or config.test_split
    is_same = asked is not None and drawn == asked
    if is_same:
        task.set_config(key="test_split", value=asked)
        task.fewshot_cfg.split = asked
    others = len(task.sampler.df) - is_same
    if others < wanted:
        raise DataError(
            f"task {config.task!r} has {others} items to draw {wanted} examples for a prompt from"
            + (", for it has none beside those that it asks" if is_same else "")
            + ": lower num_fewshot"
        )


def _render_in_sandbox() -> None:
    """Templates of tasks, lm-eval's own too: theirs may call anything that Python can reach."""
    import lm_eval.utils
    from jinja2 import BaseLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    sandbox = SandboxedEnvironment(loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True)
    sandbox.filters |= lm_eval.utils.env.filters
    lm_eval.utils.env = sandbox


def _known_metrics() -> frozenset[str]:
    import lm_eval.api.metrics  # noqa: F401  It registers them.
    from lm_eval.api.registry import metric_registry

    return frozenset(metric_registry.keys())


def _manager(folder: str | None, copy: str, *, is_trusted: bool) -> Any:
    from lm_eval.tasks import TaskManager

    if folder is None:
        return TaskManager()
    os.makedirs(copy)
    names = sizes_below(folder)
    if not yaml_files(names):
        raise DataError(f"no tasks in {folder}: there is no YAML file")
    for name in names:
        target = Path(copy, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_to_read(join(folder, name)) as file:
            target.write_bytes(file.read())
    if not is_trusted:
        refuse_code(folder, _yaml_texts(copy), _known_metrics())
    return TaskManager(include_path=copy, include_defaults=False)


def _load(task: EvalTask, manager: Any, copy: str) -> dict[str, Any]:
    in_folder = contextlib.nullcontext() if task.folder is None else _inside(copy)
    try:
        with in_folder:
            contents: dict[str, Any] = manager.load([task.name])
    except Exception as error:  # Of whatever library the task's data needs.
        advice = "Check its data_files"
        if task.folder is None:
            offline = os.environ.get("HF_HUB_OFFLINE") == "1" or os.environ.get("HF_DATASETS_OFFLINE") == "1"
            advice = "The hub may not be asked (offline): " if offline else "Is the hub reachable from here? Else "
            advice += "put the data into HF_HOME first, or use tasks of a folder"
        raise DataError(f"task {task.name!r} cannot be loaded: {type(error).__name__}: {error}. {advice}") from error
    if not contents["tasks"]:
        raise DataError(f"task {task.name!r} is empty: the group has no tasks")
    if task.num_fewshot is not None:
        for one in contents["tasks"].values():
            one.set_config(key="num_fewshot", value=task.num_fewshot)
    return contents


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Relative paths are those of the folder, and what is made of its data goes with it."""
    import datasets

    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = Path(folder, ".cache")
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        datasets.config.HF_DATASETS_CACHE = before
