"""Values in a config that stand for something decided later.

A config is plain data except for these four. `InputName` stands for a path in another step's output,
`OutputName` for a path in this step's own output, `VersionedValue` marks a value that is part of the step's
identity, and `MirroredValue` a path whose data may have to be copied from another region first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from marin_rules.steps import ExecutorStep

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True)
class InputName:
    """The output path of `step`, joined with `name`; without a step, `name` is a path of its own."""

    step: ExecutorStep[Any] | None
    """The step that makes the data, or None for a hard-coded path."""

    name: str | None
    """Path below the step's output path; None for the output path itself."""

    block_on_step: bool = True
    """False: the step counts in the version, but is neither run nor waited for."""

    def cd(self, name: str) -> InputName:
        """The path `name` below this one. It blocks on the step again, as Marin's does."""
        return InputName(self.step, name=os.path.join(self.name, name) if self.name else name)

    def __truediv__(self, name: str) -> InputName:
        return self.cd(name)

    @staticmethod
    def hardcoded(path: str) -> InputName:
        """A path that no step makes; a relative one is taken below the prefix."""
        return InputName(None, name=path)

    def nonblocking(self) -> InputName:
        """The same path, without waiting for (or running) the step that makes it."""
        return replace(self, block_on_step=False)


if TYPE_CHECKING:

    class OutputName(str):
        """For type checkers a placeholder is a string, so that it fits a `str` field of a config."""

        name: str | None

        def __new__(cls, name: str | None) -> OutputName: ...

else:

    @dataclass(frozen=True)
    class OutputName:
        """This step's own output path, joined with `name`."""

        name: str | None


def this_output_path(name: str | None = None) -> OutputName:
    """Stands for the output path of the step whose config holds it, or for `name` below that path."""
    return OutputName(name)


THIS_OUTPUT_PATH = OutputName(None)
"""`this_output_path()` as a constant, to serve as the default of a config's field."""


@dataclass(frozen=True)
class VersionedValue(Generic[T_co]):
    """A value that is part of the step's version, and so of its output path."""

    value: T_co


def versioned(value: T) -> VersionedValue[T]:
    """Make `value` part of the step's identity."""
    if isinstance(value, VersionedValue):
        raise ValueError(f"versioned() of a value that is versioned already: {value.value!r}")
    if isinstance(value, InputName):
        raise ValueError(
            "versioned() of a path in another step: use the path itself, a dependency is always versioned"
        )
    return VersionedValue(value)


def ensure_versioned(value: VersionedValue[T] | T) -> VersionedValue[T]:
    """Wrap `value` unless it is wrapped already."""
    return value if isinstance(value, VersionedValue) else VersionedValue(value)


@dataclass(frozen=True)
class MirroredValue(Generic[T_co]):
    """A path whose data are copied to this region's prefix when first read, within a budget."""

    value: T_co
    """The path, possibly versioned. It counts in the version; the budget does not."""

    budget_gb: float = 10
    """How much may be copied for it, in gigabytes."""


def mirrored(value: Any, budget_gb: float = 10) -> MirroredValue[Any]:
    """Mark a path as one that may live in another region; it resolves to a `mirror://` path."""
    if isinstance(value, MirroredValue):
        raise ValueError(f"mirrored() of a value that is mirrored already: {value.value!r}")
    return MirroredValue(value=value, budget_gb=budget_gb)
