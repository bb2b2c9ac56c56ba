"""The user's own modules, as they were when the experiment was planned.

Functions of importable modules travel by reference. So that an edit during a run changes nothing that was planned, the
sources of modules which stand beside the experiment or in its working directory travel with the plan, and a step's
process imports these instead of the files. Installed packages are imported as usual. A module that is first imported
inside a step's function is not known at planning, and is read from its file.

A module that spells out a secret (the value of an `env_vars` variable that may be one) stays where it is: of it only a
checksum travels, and a step that finds it changed does not import it.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import json
import os
import sys
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from marin_rules.errors import PlanError
from marin_rules.plans.search_path import hides_python_module
from marin_rules.storage.files import read_bytes

_OWN_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class _Source:
    origin: str
    """The module's file; empty for a folder without one (a namespace package)."""

    locations: list[str] | None
    """Where submodules are looked for; None for a module that is no package."""

    text: str

    checksum: str | None = None
    """In place of the text of a module that does not travel."""


def collect_sources(folders: Sequence[str], secrets: Collection[str]) -> bytes:
    """The sources of all modules imported so far from below `folders`; checksums of those that spell out a secret."""
    found: dict[str, _Source] = {}
    installed = tuple(os.path.realpath(sysconfig.get_path(kind)) + os.sep for kind in ("purelib", "platlib", "stdlib"))
    roots = tuple(os.path.realpath(folder) + os.sep for folder in folders)
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        path = getattr(spec, "origin", None)
        if spec is None or not isinstance(path, str) or not path.endswith(".py"):
            continue
        real = os.path.realpath(path)
        if spec.name.split(".")[0] == _OWN_PACKAGE or not real.startswith(roots) or real.startswith(installed):
            continue
        if hides_python_module(spec.name):
            raise PlanError(
                f"{path} has the name of a module of Python's own, {spec.name!r}: libraries that want Python's would"
                " get this file instead. Rename it."
            )
        source = read_bytes(path)
        if source is None:
            continue
        if any(secret.encode() in source for secret in secrets):
            found[spec.name] = _Source(path, _locations(module), "", _checksum(source))
        else:
            text = source.decode("utf-8", errors="surrogateescape")
            found[spec.name] = _Source(path, _locations(module), text)
    for name in list(found):
        while name := name.rpartition(".")[0]:
            if name not in found and name in sys.modules:
                found[name] = _Source("", _locations(sys.modules[name]) or [], "")
    return json.dumps({name: asdict(source) for name, source in found.items()}).encode() if found else b""


def _checksum(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _locations(module: ModuleType) -> list[str] | None:
    return list(module.__path__) if hasattr(module, "__path__") else None


class FrozenSources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules that travelled with the plan."""

    def __init__(self, sources: bytes) -> None:
        found = json.loads(sources) if sources else {}
        self._sources = {name: _Source(**source) for name, source in found.items()}

    def install(self) -> None:
        if self._sources:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self._sources.get(fullname)
        if source is None or (source.checksum is not None and not os.path.exists(source.origin)):
            return None
        spec = ModuleSpec(fullname, self, origin=source.origin or None)
        spec.submodule_search_locations = source.locations
        spec.has_location = bool(source.origin)  # Gives the module its `__file__`: what lies beside it is found.
        return spec

    def is_package(self, fullname: str) -> bool:
        return self._sources[fullname].locations is not None

    def get_source(self, fullname: str) -> str:
        source = self._sources[fullname]
        if source.checksum is None:
            return source.text
        data = read_bytes(source.origin) or b""
        if _checksum(data) != source.checksum:
            raise ImportError(
                f"{source.origin} was edited after the run was planned, and could not travel with the plan: it spells"
                " out the value of an env_vars variable. Start the experiment again; to be free to edit the file, read"
                " the value from the environment instead.",
                name=fullname,
                path=source.origin,
            )
        return data.decode("utf-8", errors="surrogateescape")

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_source(fullname)
        return compile(
            text.encode("utf-8", errors="surrogateescape"), self._sources[fullname].origin or fullname, "exec"
        )
