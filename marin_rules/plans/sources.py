"""The user's own modules and those of the pipeline, as they were when the experiment was planned.

Functions of importable modules are packed by reference. So that an edit during a run changes nothing that was planned,
and so that machines which do not have these files can run them, the sources of modules are packed into the plan, and a
step's process imports these instead of the files. Which ones:

- modules beside the experiment or in its working directory, and modules of `marin_rules.pipeline`,
- as far as they were imported when the experiment was planned, or as an `import` in the experiment file or in one of
  these modules names them, even if only a step's function executes it.

Nothing else in these folders is examined. Installed packages are imported as usual. A module whose name is computed
when the step runs is not known at planning, and is read from its file.

A module that spells out a secret (the value of an `env_vars` variable that may be one) stays where it is: only a
checksum of it is packed, and a step that finds it changed, or does not find it, does not import it.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import json
import os
import re
import sys
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType

from marin_rules import compat
from marin_rules.errors import PlanError
from marin_rules.plans.imports import imported_modules
from marin_rules.plans.search_path import hides_python_module, with_folders
from marin_rules.project import PACKAGE
from marin_rules.storage.files import file_size, read_bytes

_PIPELINE = f"{PACKAGE.name}.pipeline"
"""The one part of this package whose functions are steps, and is packed as the user's modules are."""

_LATE_IMPORT = re.compile(rb"^[ \t]+(?:from|import)[ \t]|:[ \t]*(?:from|import)[ \t]", re.MULTILINE)
"""An `import` that need not have been executed with its module. Most have none, and need not be parsed."""

_MOST_BYTES = 4 << 20
"""The limit for one module. Nobody writes a larger one by hand, and all jobs of a run read the plan that holds it."""

_installed_files: set[str] = set()
"""The files of imported modules that belong to installed packages. They remain that while a process lives, there can be
thousands of them, and each plan would ask the disk about them again."""


@dataclass(frozen=True)
class _Source:
    origin: str
    """The module's file; empty for a folder without one (a namespace package)."""

    locations: list[str] | None
    """Where submodules are looked for; None for a module that is not a package."""

    text: str

    checksum: str | None = None
    """Replaces the text of a module that is not packed."""


def collect_sources(folders: Sequence[str], secrets: Collection[str], experiment: str | None = None) -> bytes:
    """The sources of the modules that a run of `experiment`, a file, needs from below `folders`."""
    collection = _Collection(folders, secrets)
    collection.take_imported()
    if experiment is not None and experiment.endswith(".py") and os.path.isfile(experiment):
        collection.follow_executed(read_bytes(experiment) or b"", package="")
    found = collection.found
    return json.dumps({name: asdict(source) for name, source in found.items()}).encode() if found else b""


class _Collection:
    """The modules that were found so far."""

    def __init__(self, folders: Sequence[str], secrets: Collection[str]) -> None:
        self.found: dict[str, _Source] = {}
        self._secrets = [secret.encode() for secret in secrets]
        self._search_path = with_folders(compat.without_stubs(sys.path), folders)
        self._roots = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        kinds = ("purelib", "platlib", "stdlib")
        self._installed = tuple(os.path.realpath(sysconfig.get_path(kind)) + os.sep for kind in kinds)
        self._real_folders: dict[str, str] = {}
        self._imports: list[tuple[bytes, str]] = []
        """Sources whose imports were not examined yet, with their packages."""

        self._folders: dict[str, _Source] = {}
        """Folders that are packages if they contain a needed module: otherwise a folder of data that happens to have a
        package's name would hide that package."""

    def take_imported(self) -> None:
        """Modules that this process has imported, and what they name.

        Of Marin's modules that are served (see `marin_rules.compat`), Marin's own code is taken: a step may be the
        first to ask it for a name. What it then imports is read from its file, because that would be much of Marin.
        """
        original_of = compat.original_modules()
        for module in list(sys.modules.values()):
            original = original_of(module)
            spec = getattr(module, "__spec__", None) if original is None else original.spec
            path = getattr(spec, "origin", None)
            if spec is None or not isinstance(path, str) or not path.endswith(".py") or path in _installed_files:
                continue
            if not self._is_packed(spec.name, path):
                continue
            if hides_python_module(spec.name):
                raise PlanError(
                    f"{path} has the name of a module of Python's own, {spec.name!r}: libraries that want Python's"
                    " would get this file instead. Rename it."
                )
            known = len(self._imports)
            self._take(spec.name, path, _locations(module) if original is None else _search_locations(spec))
            if original is not None and not original.executed:
                del self._imports[known:]
        for name in list(self.found):
            while name := name.rpartition(".")[0]:
                if name not in self.found and name in sys.modules and name != PACKAGE.name:
                    self.found[name] = _Source("", _locations(sys.modules[name]) or [], "")
        executed, self._imports = self._imports, []
        for source, package in executed:
            self.follow_executed(source, package)

    def follow_executed(self, source: bytes, package: str) -> None:
        """Modules that a source names, and did not import when it was executed here; and those that these name."""
        if _LATE_IMPORT.search(source):
            self._imports.append((source, package))
        while self._imports:
            for name in imported_modules(*self._imports.pop()):
                if name not in self.found and name not in sys.modules and not hides_python_module(name):
                    self._look_for(name)

    def _look_for(self, name: str) -> None:
        """Take a module that Python would find in one of the folders."""
        parent, _, _ = name.rpartition(".")
        if name == _PIPELINE:
            search: list[str] | None = [str(PACKAGE)]
        elif parent:
            holder = self.found.get(parent) or self._folders.get(parent)
            search = None if holder is None else holder.locations
        else:
            search = self._search_path
        spec = None if search is None else PathFinder.find_spec(name, search)
        if spec is None:
            return
        locations = _search_locations(spec)
        if spec.origin is None and locations and self._is_packed(name, os.path.join(locations[0], "")):
            self._folders[name] = _Source("", locations, "")
        elif spec.origin is not None and spec.origin.endswith(".py") and self._is_packed(name, spec.origin):
            self._take(name, spec.origin, locations)

    def _is_packed(self, name: str, path: str) -> bool:
        if name.partition(".")[0] == PACKAGE.name:
            return name == _PIPELINE or name.startswith(f"{_PIPELINE}.")
        real = self._real_path(path)
        if real.startswith(self._installed):
            _installed_files.add(path)
            return False
        return real.startswith(self._roots)

    def _real_path(self, path: str) -> str:
        """Like `os.path.realpath`, which looks up every folder on the way to each file, thousands of times."""
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        real = os.path.join(self._real_folders[folder], name)
        return os.path.realpath(real) if os.path.islink(real) else real

    def _take(self, name: str, path: str, locations: list[str] | None) -> None:
        if (size := file_size(path) or 0) > _MOST_BYTES:
            raise PlanError(
                f"{path} has {size >> 20} MB: the module {name} cannot be packed into the plan, which takes sources of"
                f" up to {_MOST_BYTES >> 20} MB. Keep data in a file of their own, and let a step read it."
            )
        source = read_bytes(path)
        if source is None:
            return
        if any(secret in source for secret in self._secrets):
            self.found[name] = _Source(path, locations, "", _checksum(source))
        else:
            self.found[name] = _Source(path, locations, source.decode("utf-8", errors="surrogateescape"))
        self._imports.append((source, name if locations is not None else name.rpartition(".")[0]))
        while (name := name.rpartition(".")[0]) in self._folders:
            self.found[name] = self._folders.pop(name)


def _checksum(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _search_locations(spec: ModuleSpec) -> list[str] | None:
    return None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)


def _locations(module: ModuleType) -> list[str] | None:
    return list(module.__path__) if hasattr(module, "__path__") else None


class FrozenSources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules that were packed into the plan."""

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
        if source is None:
            return None
        spec = ModuleSpec(fullname, self, origin=source.origin or None)
        spec.submodule_search_locations = source.locations
        spec.has_location = bool(source.origin)  # Gives the module its `__file__`, so that files beside it are found.
        return spec

    def is_package(self, fullname: str) -> bool:
        return self._sources[fullname].locations is not None

    def get_source(self, fullname: str) -> str:
        source = self._sources[fullname]
        if source.checksum is None:
            return source.text
        data = read_bytes(source.origin)
        if data is None or _checksum(data) != source.checksum:
            what = "is not on this machine" if data is None else "was edited after the run was planned"
            raise ImportError(
                f"{source.origin} {what}, and could not be packed into the plan: it spells out the value of an env_vars"
                " variable. Read the value from the environment instead, and start the experiment again.",
                name=fullname,
                path=source.origin,
            )
        return data.decode("utf-8", errors="surrogateescape")

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_source(fullname)
        return compile(
            text.encode("utf-8", errors="surrogateescape"), self._sources[fullname].origin or fullname, "exec"
        )
