"""Marks a step's function as one that runs elsewhere, on the machines it asks for.

    @remote(resources=ResourceConfig.with_gpu("H100", count=8))
    def train(config: TrainConfig) -> None: ...

    ExecutorStep(name="train", fn=train, config=...)

The mark is all there is: calling a `RemoteCallable` calls the function, here and now. The engine reads the
mark and acts on it; the resources of an `ExecutorStep` win over those given here.

Values of `env_vars` may be secrets. They are in no repr and no error message, but they are in
pickles: keep those where the secrets may be.

Pickling follows the function: by name where a module can be imported to find it, and by value (which needs
cloudpickle) for a function of `__main__`, a local one, or one of a module registered with cloudpickle's
`register_pickle_by_value`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, SupportsIndex, overload

from marin_rules.resources import ResourceConfig
from marin_rules.tasks import check_tasks


@dataclass(frozen=True, repr=False)
class RemoteCallable[**P, R]:
    """A function with what it needs to run elsewhere. Change a detail with `dataclasses.replace`."""

    fn: Callable[P, R]
    """The function itself."""

    resources: ResourceConfig = field(default_factory=ResourceConfig.with_cpu, hash=False)
    """The machines it asks for."""

    env_vars: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Environment variables to set where it runs; values are never shown."""

    pip_dependency_groups: tuple[str, ...] = ()
    """What to install where it runs: names of optional dependencies, or requirements such as `numpy>=2`."""

    name: str | None = None
    """What to call the job; None takes the step's name."""

    conda: str | None = None
    """A conda environment file for `snakemake --sdm conda`: beside the experiment, or in the project's `envs/`."""

    tasks: int | None = None
    """How many times the function is called, once a task; the resources are those of each. None: once, as a whole."""

    # Set on each object, from its function. ClassVar only says to `dataclass` that these are not fields.
    __name__: ClassVar[str]
    __qualname__: ClassVar[str]

    def __post_init__(self) -> None:
        if isinstance(self.fn, RemoteCallable):
            raise ValueError(
                f"{self.fn.__qualname__} is remote already: "
                "mark it once, or change its details with dataclasses.replace"
            )
        if not callable(self.fn):
            raise TypeError(f"remote needs a function, got {self.fn!r}")
        if not isinstance(self.resources, ResourceConfig):
            raise TypeError(
                f"resources {self.resources!r} is not a ResourceConfig: "
                "use ResourceConfig.with_cpu, with_gpu or with_tpu"
            )
        if self.conda is not None and not isinstance(self.conda, str):
            raise TypeError(f"conda {self.conda!r} is not the path of an environment file")
        check_tasks(self.tasks)
        _require_strings(self.env_vars)
        # A copy, so that nobody changes it from outside; a plain dict, because a mapping proxy cannot be pickled.
        self._set("env_vars", dict(self.env_vars))
        self._set("pip_dependency_groups", _group_names(self.pip_dependency_groups))
        self._follow_function()

    def _set(self, attribute: str, value: object) -> None:
        """Set an attribute while the frozen object is being made."""
        object.__setattr__(self, attribute, value)

    def _follow_function(self) -> None:
        """Look like the function to logs, reports and picklers, as `functools.wraps` would have it."""
        kind = type(self.fn)  # supplies the names that a partial or other callable object lacks
        self._set("__name__", getattr(self.fn, "__name__", kind.__name__))
        self._set("__qualname__", getattr(self.fn, "__qualname__", kind.__qualname__))
        self._set("__module__", self.fn.__module__ or kind.__module__)
        self._set("__doc__", self.fn.__doc__)

    def named(self, name: str) -> RemoteCallable[P, R]:
        """The same with a name for its job, unless it has one."""
        return self if self.name else replace(self, name=name)

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function, where `inspect.signature` looks for it."""
        return self.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.env_vars))
        return (
            f"RemoteCallable(fn={self.__module__}.{self.__qualname__}, resources={self.resources!r}, "
            f"env_vars=<{names or 'none'}>, pip_dependency_groups={self.pip_dependency_groups!r}, "
            f"name={self.name!r}, conda={self.conda!r}, tasks={self.tasks!r})"
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle by name an object that has taken its function's name.

        After `@remote def train`, the name `train` means this object: a pickler that looks for the function
        under its own name finds the wrong thing and gives up. It can find this object there, though.
        """
        named = self._found_by_name()
        if named is None:
            return super().__reduce_ex__(protocol)
        if named is self:
            return self.__qualname__
        details = (self.resources, self.env_vars, self.pip_dependency_groups, self.name, self.conda, self.tasks)
        return _changed, (named, *details)

    def _found_by_name(self) -> RemoteCallable[P, R] | None:
        """What the function's name refers to: this object, or the one that `replace` made it from."""
        if _is_pickled_by_value(self.__module__):
            return None
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        return found if isinstance(found, RemoteCallable) and found.fn is self.fn else None


class RemoteDecorator(Protocol):
    """What `@remote(...)` puts on a function; keeps the function's signature."""

    def __call__[**P, R](self, fn: Callable[P, R], /) -> RemoteCallable[P, R]: ...


@overload
def remote[**P, R](
    fn: Callable[P, R],
    *,
    name: str | None = None,
    resources: ResourceConfig | None = None,
    env_vars: Mapping[str, str] | None = None,
    pip_dependency_groups: Sequence[str] | None = None,
    conda: str | None = None,
    tasks: int | None = None,
) -> RemoteCallable[P, R]: ...


@overload
def remote(
    fn: None = None,
    *,
    name: str | None = None,
    resources: ResourceConfig | None = None,
    env_vars: Mapping[str, str] | None = None,
    pip_dependency_groups: Sequence[str] | None = None,
    conda: str | None = None,
    tasks: int | None = None,
) -> RemoteDecorator: ...


def remote(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    resources: ResourceConfig | None = None,
    env_vars: Mapping[str, str] | None = None,
    pip_dependency_groups: Sequence[str] | None = None,
    conda: str | None = None,
    tasks: int | None = None,
) -> RemoteCallable[..., Any] | RemoteDecorator:
    """Mark `fn` to run elsewhere: `@remote`, `@remote(resources=...)` or `remote(fn, resources=...)`.

    Without resources it asks for one CPU machine of the default size. With `tasks` it is called once for each task, and
    each of them asks for that.
    """

    def mark[**P, R](fn: Callable[P, R], /) -> RemoteCallable[P, R]:
        return RemoteCallable(
            fn,
            resources=resources or ResourceConfig.with_cpu(),
            env_vars=env_vars or {},
            pip_dependency_groups=_group_names(pip_dependency_groups or ()),
            name=name,
            conda=conda,
            tasks=tasks,
        )

    return mark if fn is None else mark(fn)


def _changed[**P, R](
    named: RemoteCallable[P, R],
    resources: ResourceConfig,
    env_vars: Mapping[str, str],
    pip_dependency_groups: tuple[str, ...],
    name: str | None,
    conda: str | None,
    tasks: int | None = None,
) -> RemoteCallable[P, R]:
    """Unpickle what `dataclasses.replace` made from a mark that has a name."""
    return RemoteCallable(named.fn, resources, env_vars, pip_dependency_groups, name, conda, tasks)


def _is_pickled_by_value(module_name: str) -> bool:
    """Whether functions of this module are pickled by value: nobody else has the module, or that was requested."""
    # Only a process that has imported cloudpickle can have requested it, so there is no need to import it here.
    cloudpickle = sys.modules.get("cloudpickle")
    registered: set[str] = cloudpickle.list_registry_pickle_by_value() if cloudpickle else set()
    return module_name == "__main__" or any(f"{module_name}.".startswith(f"{name}.") for name in registered)


def _group_names(groups: Sequence[str]) -> tuple[str, ...]:
    if isinstance(groups, str):
        raise TypeError(f"pip_dependency_groups {groups!r} is one string: write a list, [{groups!r}]")
    return tuple(groups)


def _require_strings(env_vars: Mapping[str, str]) -> None:
    if not isinstance(env_vars, Mapping):
        raise TypeError(f"env_vars is a {type(env_vars).__name__}, not a mapping of names to values")
    for name, value in env_vars.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise ValueError(f"env_vars has {name!r}, which cannot name an environment variable")
        if not isinstance(value, str):
            raise TypeError(f"env_vars[{name!r}] is a {type(value).__name__}, not a string")
