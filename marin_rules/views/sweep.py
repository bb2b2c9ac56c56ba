"""Sweeps: what differs between the configs of a function's steps, against the numbers that they returned. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

type Cell = str | int | float | bool | None
"""None where a step has no such field, or has not returned the number (yet)."""

_MOST_FIELDS = 12
_MOST_NUMBERS = 12


@dataclass(frozen=True)
class Variant:
    """One step of a sweep."""

    step: int
    function: str
    config: Any
    """As plain data."""

    returned: Any
    """As plain data; None if it returned nothing (yet)."""

    paths: frozenset[str] = frozenset()
    """Output paths that its config may hold: they differ anyway, and mean nothing."""


@dataclass(frozen=True)
class Sweep:
    """The steps of one function, side by side."""

    function: str
    fields: Sequence[str]
    """Config fields that differ, as dotted paths."""

    numbers: Sequence[str]
    """Returned numbers, as dotted paths."""

    rows: Sequence[tuple[int, Sequence[Cell], Sequence[Cell]]]
    """Step, its fields, its numbers."""

    left_out: int = 0
    """Columns beyond the limits."""


def sweeps(variants: Sequence[Variant]) -> list[Sweep]:
    """A table for each function with several steps that differ in their config and some of which returned numbers."""
    by_function: dict[str, list[Variant]] = {}
    for variant in variants:
        by_function.setdefault(variant.function, []).append(variant)
    found = (_sweep(function, members) for function, members in by_function.items() if len(members) > 1)
    return [sweep for sweep in found if sweep is not None]


def _sweep(function: str, members: Sequence[Variant]) -> Sweep | None:
    configs = [dict(_settings(member.config, member.paths)) for member in members]
    results = [dict(_numbers(member.returned)) for member in members]
    fields = [field for field in _names(configs) if len({_comparable(config.get(field)) for config in configs}) > 1]
    numbers = [name for name in _names(results) if not _is_echo(name, fields, configs, results)]
    if not fields or not numbers:
        return None
    shown_fields, shown_numbers = fields[:_MOST_FIELDS], numbers[:_MOST_NUMBERS]
    return Sweep(
        function,
        shown_fields,
        shown_numbers,
        [
            (member.step, [config.get(field) for field in shown_fields], [result.get(name) for name in shown_numbers])
            for member, config, result in zip(members, configs, results, strict=True)
        ],
        left_out=len(fields) - len(shown_fields) + len(numbers) - len(shown_numbers),
    )


def _names(rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    """All keys, in the order in which they first appear."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _comparable(value: Cell) -> tuple[str, str]:
    """1, 1.0 and True are different settings."""
    return type(value).__name__, str(value)


def _is_echo(
    name: str, fields: Sequence[str], configs: Sequence[Mapping[str, Cell]], results: Sequence[Mapping[str, Cell]]
) -> bool:
    """A returned number that only repeats a field of the config beside it."""
    returned = [
        (config.get(name), result[name]) for config, result in zip(configs, results, strict=True) if name in result
    ]
    return name in fields and all(given == got for given, got in returned)


def _settings(value: Any, paths: frozenset[str], at: str = "") -> Iterator[tuple[str, Cell]]:
    """The plain values of a config with their dotted paths, without those that are (below) output paths."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _settings(part, paths, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _settings(part, paths, f"{at}[{number}]")
    elif (isinstance(value, str | int | float | bool) or value is None) and not _is_below(value, paths):
        yield at or "config", value


def _is_below(value: Cell, paths: frozenset[str]) -> bool:
    return isinstance(value, str) and any(value == path or value.startswith(path + "/") for path in paths)


def _numbers(value: Any, at: str = "") -> Iterator[tuple[str, Cell]]:
    """The numbers in a returned value with their dotted paths; not those in lists, whose positions mean nothing."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _numbers(part, f"{at}.{key}" if at else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield at or "returned", value


def as_written(value: Cell) -> str:
    """A cell of the table as people read it."""
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return str(value)
