"""How the helpers beside this file turn the stages in `marin_rules.pipeline` into steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeAliasType, TypedDict, get_args, get_origin, get_type_hints

from marin_rules import (
    ExecutorStep,
    InputName,
    ResourceConfig,
    VersionedValue,
    ensure_versioned,
    output_path_of,
    remote,
)
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.shard_map import ShardSettings

type Data = ExecutorStep[Any] | InputName | str
"""Where data is: a step, a place in its output, or a path."""

PICTURES_AND_TABLES = ("report/*",)
"""What stages write for the report."""


_LEVANTER_GROUPS = {"cpu": "train", "gpu": "train-gpu", "tpu": "train-tpu"}
"""Environments with Levanter, by the device that their JAX is for. They differ in nothing else."""


class Division(TypedDict, total=False):
    """How the work of a stage is divided. None of it changes the result, so none of it changes a path."""

    tasks: int | None
    """How many tasks the work is divided into: an array of jobs on a cluster. None: one job."""

    cpu: int
    """Cores of each task, which works on as many shards at a time. 1 if not given."""

    ram: str
    """Memory of each task, as "16g". "4g" if not given."""


def data_step(
    name: str,
    function: Callable[[Any], Any],
    config: Any,
    *,
    tasks: int | None = None,
    cpu: int = 1,
    ram: str = "4g",
    groups: Sequence[str] = ("data",),
    report: Sequence[str] = (),
) -> ExecutorStep[Any]:
    """A stage that works through data, in an environment of `groups`: a job where there is a cluster, or an array."""
    check_words(name, config)
    resources = ResourceConfig.with_cpu(cpu=cpu, ram=ram)
    called = remote(function, tasks=tasks, resources=resources, pip_dependency_groups=list(groups))
    return ExecutorStep(name, called, config, report=report)


def small_step(
    name: str,
    function: Callable[[Any], Any],
    config: Any,
    *,
    groups: Sequence[str] = ("data",),
    report: Sequence[str] = PICTURES_AND_TABLES,
) -> ExecutorStep[Any]:
    """A stage that takes seconds, or needs the driver's network: it runs beside the driver."""
    check_words(name, config)
    return ExecutorStep(name, function, config, pip_dependency_groups=list(groups) or None, report=report)


def levanter_step(
    name: str,
    function: Callable[[Any], Any],
    config: Any,
    resources: ResourceConfig | None = None,
    *,
    description: str | None = None,
) -> ExecutorStep[Any]:
    """A stage in the environment with Levanter, JAX and lm-eval."""
    resources = resources or ResourceConfig.with_cpu(cpu=2, ram="8g")
    called = remote(function, resources=resources, pip_dependency_groups=[_LEVANTER_GROUPS[resources.device.kind]])
    return ExecutorStep(name, called, config, description=description, report=PICTURES_AND_TABLES)


def check_words(name: str, config: Any) -> None:
    """Refuse a value that a field of the config, or of its parts, does not accept. The step would also refuse it, but
    only after all earlier steps."""
    if not is_dataclass(config) or isinstance(config, ExecutorStep | InputName | type):
        return
    try:
        hints = get_type_hints(type(config))
    except NameError:  # A name that only type checkers import.
        return
    for field in fields(config):
        value, hint = plain(getattr(config, field.name)), hints[field.name]
        check_words(name, value)
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise DataError(f"step {name!r}: {field.name} {value!r} is none of {', '.join(map(str, get_args(hint)))}")


def path_of(data: Data) -> str | InputName:
    return output_path_of(data) if isinstance(data, ExecutorStep) else data


def input_of(data: Data) -> str | InputName:
    """The same, with a plain path in the version: other data under the same name is another step."""
    path = path_of(data)
    return ensure_versioned(path) if isinstance(path, str) else path


def sets_of(argument: str, sets: Mapping[str, Data] | None) -> dict[str, str | InputName]:
    """The inputs by name; a single step in their place is an easy mistake."""
    if not isinstance(sets or {}, Mapping):
        raise DataError(f"{argument}: give each set a name, as in {argument}={{'news': ...}}")
    return {name: input_of(data) for name, data in (sets or {}).items()}


def name_of(data: Data) -> str:
    """A name for steps about this data to be named after."""
    if isinstance(data, ExecutorStep):
        return data.name
    if isinstance(data, InputName) and data.step is not None:
        return "/".join(part for part in (data.step.name, data.name) if part)
    raise ValueError(f"{data!r} has no name of its own: give the evaluation one, as in name='evaluation/my-model'")


def plain(value: Any) -> Any:
    """A value of a step's config, whether it is versioned or not."""
    return value.value if isinstance(value, VersionedValue) else value


def in_processes(division: Division) -> ShardSettings:
    """Shards are worked on by as many processes as there are cores."""
    return ShardSettings(processes=division.get("cpu", 1))
