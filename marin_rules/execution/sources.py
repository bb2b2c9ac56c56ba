"""The user's own modules, as they were when the experiment was planned.

Functions of importable modules travel by reference. So that an edit during a run changes nothing that was planned, the
sources of modules which stand beside the experiment or in its working directory travel with the plan, and a step's
process imports these instead of the files. Installed packages are imported as usual. A module that is first imported
inside a step's function is not known at planning, and is read from its file.
"""

from __future__ import annotations

import importlib.abc
import json
import os
import sys
import sysconfig
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from marin_rules.storage.files import read_bytes

_OWN_PACKAGE = __name__.partition(".")[0]


def collect_sources(folders: Sequence[str], secrets: Collection[str]) -> bytes:
    """The sources of all modules imported so far from below `folders`, except those that spell out a secret."""
    found: dict[str, list[str | bool]] = {}
    installed = tuple(os.path.realpath(sysconfig.get_path(kind)) + os.sep for kind in ("purelib", "platlib", "stdlib"))
    roots = tuple(os.path.realpath(folder) + os.sep for folder in folders)
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        path = getattr(spec, "origin", None)
        if spec is None or not isinstance(path, str) or not path.endswith(".py") or name.split(".")[0] == _OWN_PACKAGE:
            continue
        real = os.path.realpath(path)
        if real.startswith(roots) and not real.startswith(installed):
            source = read_bytes(path)
            if source is not None and not any(secret.encode() in source for secret in secrets):
                package = spec.submodule_search_locations is not None
                found[spec.name] = [path, package, source.decode("utf-8", errors="surrogateescape")]
    return json.dumps(found).encode() if found else b""


class FrozenSources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules that travelled with the plan."""

    def __init__(self, sources: bytes) -> None:
        self._sources: dict[str, list[str]] = json.loads(sources) if sources else {}

    def install(self) -> None:
        if self._sources:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._sources:
            return None
        origin, package, _ = self._sources[fullname]
        spec = ModuleSpec(fullname, self, origin=origin, is_package=bool(package))
        spec.has_location = True  # Gives the module its `__file__`: what lies beside it is found there.
        if package:
            spec.submodule_search_locations = [os.path.dirname(origin)]
        return spec

    def is_package(self, fullname: str) -> bool:
        return bool(self._sources[fullname][1])

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname][2]

    def get_code(self, fullname: str) -> CodeType:
        origin, _, text = self._sources[fullname]
        return compile(text.encode("utf-8", errors="surrogateescape"), origin, "exec")
