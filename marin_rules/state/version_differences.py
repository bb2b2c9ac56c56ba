"""What tells versions of a step apart: the settings of the step, and of those that it depends on. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any


def differences(versions: Sequence[Any]) -> list[dict[str, str]]:
    """For each version the settings that are not the same in all, as JSON, by their dotted paths.

    Those of a dependency have its name in front: `tokenizers/mine: vocabulary`. Of dependencies with the same name
    only the nearest is compared. Versions are as in info files; what is none of that form has no settings.
    """
    settings = [dict(_settings(version)) for version in versions]
    paths = dict.fromkeys(path for one in settings for path in one)
    different = [path for path in paths if len({one.get(path) for one in settings}) > 1]
    return [{path: one[path] for path in different if path in one} for one in settings]


def _settings(version: Any) -> Iterator[tuple[str, str]]:
    waiting = deque([("", version)])
    seen = set()
    while waiting:
        owner, here = waiting.popleft()
        if not isinstance(here, dict):
            continue
        for path, value in _leaves(here.get("config")):
            yield f"{owner}{path}", value
        for kind in ("dependencies", "pseudo_dependencies"):
            for dependency in here.get(kind) or ():
                if isinstance(dependency, dict):
                    name, digest = str(dependency.get("name")), ""
                else:  # Deep in a graph a version is mentioned by its `<name>-<hash>` alone.
                    name, _, digest = str(dependency).rpartition("-")
                if name in seen:
                    continue
                seen.add(name)
                if digest:
                    yield f"{name}: version", digest
                else:
                    waiting.append((f"{name}: ", dependency))


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{at}.{key}" if at else str(key))
    else:
        yield at or "config", json.dumps(value)
