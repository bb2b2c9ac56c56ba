"""Packing: functions and configs as bytes, for the process that runs a step.

By reference where the worker can import them, by value where it cannot: what is defined in the experiment file,
lambdas, closures, classes made on the fly. Each of these is stored once for the whole plan, however many configs
mention it, so a plan of ten thousand steps stays small and quick to write.
"""

from __future__ import annotations

import io
import pickle
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import cloudpickle

from marin_rules.errors import PlanError
from marin_rules.remote import RemoteCallable

_PROTOCOL = 5

_LONG_ENOUGH = 8
_LONG_ENOUGH_IF_NAMED = 4
"""Characters of a value that may be a secret, whatever its variable is called, or if the variable's name says so."""

_SECRET_NAME = re.compile(r"auth|credential|key|passw|secret|token", re.IGNORECASE)


def secret_values(variables: Mapping[str, str]) -> list[str]:
    """The values of environment variables that may be secrets: "4" and "true" are not, and appear in every module."""
    return [
        value
        for name, value in variables.items()
        if len(value) >= (_LONG_ENOUGH_IF_NAMED if _SECRET_NAME.search(name) else _LONG_ENOUGH)
    ]


class Packer:
    """Turns objects into bytes, and gathers the definitions that they share."""

    def __init__(self) -> None:
        self._definitions: list[Any] = []
        self._numbers: dict[int, int | None] = {}
        self.secrets: set[str] = set()
        """Values of environment variables that were encountered, left out, and may be secrets."""

    def pack(self, value: Any, owner: str) -> bytes:
        """`value` as bytes; `owner` names it in the error if it cannot be packed."""
        buffer = io.BytesIO()
        try:
            _Pickler(buffer, self, owner).dump(value)
            return buffer.getvalue()
        except PlanError:
            raise
        except Exception:
            # Some objects (modules, generators of classes) only cloudpickle can pickle; it shares no definitions.
            return self._pack_alone(value, owner)

    def definitions(self) -> bytes:
        """All shared definitions, in one piece so that they may refer to each other."""
        return self._pickled_by_value(self._definitions)

    def number_of(self, definition: Any, owner: str) -> int | None:
        """The number of a definition that must be packed by value, None for one that can be imported."""
        key = id(definition)
        if key not in self._numbers:
            if _is_importable(definition):
                self._numbers[key] = None
            else:
                self._pack_alone(definition, owner)
                self._numbers[key] = len(self._definitions)
                self._definitions.append(definition)
        return self._numbers[key]

    def without_secrets(self, value: Any) -> Any:
        """How to pickle a function with environment variables: without their values, which never enter a plan."""
        if isinstance(value, RemoteCallable) and value.env_vars:
            self.secrets.update(secret_values(value.env_vars))
            return replace(value, env_vars={}).__reduce_ex__(_PROTOCOL)
        return NotImplemented

    def _pickled_by_value(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        _ByValuePickler(buffer, self).dump(value)
        return buffer.getvalue()

    def _pack_alone(self, value: Any, owner: str) -> bytes:
        try:
            return self._pickled_by_value(value)
        except Exception as error:
            raise PlanError(
                f"{owner} cannot be sent to the process that runs it: {_first_line(error)}. A step's function and"
                " config must be picklable: open files, locks, connections and the like belong inside the function."
            ) from error


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, packer: Packer, owner: str) -> None:
        super().__init__(buffer, protocol=_PROTOCOL)
        self._packer = packer
        self._owner = owner

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, type | FunctionType):
            return self._packer.number_of(value, self._owner)
        return None

    def reducer_override(self, value: Any) -> Any:
        return self._packer.without_secrets(value)


class _ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, buffer: io.BytesIO, packer: Packer) -> None:
        super().__init__(buffer, protocol=_PROTOCOL)
        self._packer = packer

    def persistent_id(self, value: Any) -> None:
        if isinstance(value, io.IOBase):
            raise TypeError("an open file")  # cloudpickle would include what can be read from it now.

    def reducer_override(self, value: Any) -> Any:
        reduced = self._packer.without_secrets(value)
        return super().reducer_override(value) if reduced is NotImplemented else reduced


class Unpacker:
    """Turns the bytes of a `Packer` back into objects."""

    def __init__(self, definitions: bytes) -> None:
        self._packed = definitions
        self._definitions: Sequence[Any] | None = None

    def unpack(self, data: bytes) -> Any:
        return _Unpickler(io.BytesIO(data), self).load()

    @property
    def unpacked(self) -> Sequence[Any]:
        """The definitions, if any object needed one so far."""
        return self._definitions or ()

    def definition(self, number: int) -> Any:
        if self._definitions is None:
            self._definitions = cloudpickle.loads(self._packed)
        return self._definitions[number]


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, unpacker: Unpacker) -> None:
        super().__init__(buffer)
        self._unpacker = unpacker

    def persistent_load(self, number: Any) -> Any:
        return self._unpacker.definition(number)


def _is_importable(definition: Any) -> bool:
    if definition.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(definition.__module__)
    for name in definition.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is definition


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
