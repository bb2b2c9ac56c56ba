"""Values in a config that stand for something decided later.

A config is plain data except for these four. `InputName` stands for a path in another step's output,
`OutputName` for a path in this step's own output, `VersionedValue` marks a value that is part of the step's
identity, and `MirroredValue` a path whose data may have to be copied from another region first.

The text of each, and of a step, begins with `MARK`, which reveals an f-string that has swallowed one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from marin_rules.steps import ExecutorStep


MARK = "<marin-rules "
"""Nobody writes this in a text of their own."""


if TYPE_CHECKING:
    # A config's field has the type that the step's function sees. For type checkers a path placeholder is a string
    # and a marked value is the value itself, so that both fit such a field.

    class InputName(str):
        step: ExecutorStep[Any] | None
        name: str | None
        block_on_step: bool

        def __new__(cls, step: ExecutorStep[Any] | None, name: str | None, block_on_step: bool = True) -> InputName: ...
        def cd(self, name: str) -> InputName: ...
        def __truediv__(self, name: str) -> InputName: ...
        @staticmethod
        def hardcoded(path: str) -> InputName: ...
        def nonblocking(self) -> InputName: ...

    class OutputName(str):
        name: str | None

        def __new__(cls, name: str | None) -> OutputName: ...

else:

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

        def __repr__(self) -> str:
            of_step = f" of step {self.step.name!r}" if self.step is not None else ""
            return f"{MARK}path{f' {self.name!r}' if self.name is not None else ''}{of_step}>"

    @dataclass(frozen=True)
    class OutputName:
        """This step's own output path, joined with `name`."""

        name: str | None

        def __repr__(self) -> str:
            return f"{MARK}output path{f' {self.name!r}' if self.name is not None else ''}>"


def this_output_path(name: str | None = None) -> OutputName:
    """Stands for the output path of the step whose config holds it, or for `name` below that path."""
    return OutputName(name)


THIS_OUTPUT_PATH = OutputName(None)
"""`this_output_path()` as a constant, to serve as the default of a config's field."""


@dataclass(frozen=True)
class VersionedValue[T]:
    """A value that is part of the step's version, and so of its output path."""

    value: T

    def __repr__(self) -> str:
        return f"{MARK}versioned {self.value!r}>"


def versioned[T](value: T) -> T:
    """Make `value` part of the step's identity. What comes back is a `VersionedValue`."""
    if isinstance(value, VersionedValue):
        raise ValueError(f"versioned() cannot be nested, and this value is versioned already: {value.value!r}")
    if isinstance(value, InputName):
        raise ValueError("versioned() of a path in another step: use the path itself, a dependency is always versioned")
    return cast(T, VersionedValue(value))


def ensure_versioned[T](value: T) -> T:
    """Wrap `value` unless it is wrapped already."""
    return value if isinstance(value, VersionedValue) else cast(T, VersionedValue(value))


@dataclass(frozen=True)
class MirroredValue[T]:
    """A path whose data is copied to this region's prefix when first read, within a budget."""

    value: T
    """The path, possibly versioned. It counts in the version; the budget does not."""

    budget_gb: float = 10
    """How much may be copied for it, in gigabytes."""

    def __repr__(self) -> str:
        return f"{MARK}mirrored {self.value!r}>"


def mirrored[T](value: T, budget_gb: float = 10) -> T:
    """Mark a path as one that may live in another region; it resolves to a `mirror://` path."""
    if isinstance(value, MirroredValue):
        raise ValueError(f"mirrored() cannot be nested, and this value is mirrored already: {value.value!r}")
    return cast(T, MirroredValue(value=value, budget_gb=budget_gb))
