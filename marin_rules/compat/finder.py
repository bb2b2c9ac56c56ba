"""Serves Marin's modules in this process: ours where there is a counterpart, Marin's own where that is installed.

- A module of the table (see `counterparts`) is made here. Its names are ours; any other name of it is Marin's, if Marin
  is installed or on the search path, and executed from there when it is first asked for.
- Any other module below `marin`, `fray` and `rigging` is Marin's own, and finds our names in its imports in turn. So a
  checkout of Marin beside a script serves its pipeline while this package plans and runs the steps.
- What neither has is an ImportError that names it, and says what to use instead.
"""

from __future__ import annotations

import dis
import importlib.abc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

from marin_rules.compat.children import STUBS, serve_children
from marin_rules.compat.counterparts import COUNTERPARTS, PACKAGES, advice, counterpart

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


class CompatFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of Marin before any other finder does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        original = self._original(fullname, path)
        below = f"{fullname}."
        holds_counterparts = any(name.startswith(below) for name in COUNTERPARTS)
        if fullname not in COUNTERPARTS and (original is not None or not holds_counterparts):
            if original is None:
                raise ModuleNotFoundError(_missing(fullname), name=fullname)
            return original
        spec = ModuleSpec(fullname, self, is_package=True, loader_state=original)
        spec.submodule_search_locations = list(getattr(original, "submodule_search_locations", None) or [])
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Counterpart(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are found when they are asked for."""

    def _original(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Where Marin's own module is; None if it is not installed."""
        folders = path if path is not None else [folder for folder in sys.path if folder != STUBS]
        finders = [finder for finder in sys.meta_path if not isinstance(finder, CompatFinder)]
        found = (finder.find_spec(fullname, folders, None) for finder in finders if hasattr(finder, "find_spec"))
        return next((spec for spec in found if spec is not None), None)


class _Counterpart(ModuleType):
    """A module of Marin with our names in it."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name, f"Marin's `{spec.name}`, as marin-rules provides it.")
        self._original_spec: ModuleSpec | None = spec.loader_state
        self._original: ModuleType | None = None
        self._submodules: dict[str, ModuleType] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """Python binds a submodule when it is imported. In Marin's own package a name of `__init__` has come first:
        `fray.current_client` is a function there, not the module that has it."""
        if isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}":
            self._submodules[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = self._found(name)
        return value

    def _found(self, name: str) -> Any:
        ours = counterpart(self.__name__, name)
        if ours is not None:
            return getattr(sys.modules["marin_rules"], ours)
        if name == "__all__":
            return self._public_names()
        is_special = name.startswith("__") and name.endswith("__")
        if not is_special and f"{self.__name__}.{name}" not in COUNTERPARTS and self._has_original(name):
            return getattr(self._original, name)
        if name in self._submodules:
            return self._submodules[name]
        raise self._error(name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *COUNTERPARTS.get(self.__name__, ())})

    def _public_names(self) -> list[str]:
        """What `import *` takes: our names, and those that Marin's own module has beside them."""
        ours = COUNTERPARTS.get(self.__name__, ())
        if not self._has_original("__name__"):
            return list(ours)
        theirs = getattr(self._original, "__all__", None)
        if theirs is None:
            theirs = [name for name in vars(self._original) if not name.startswith("_")]
        return list(dict.fromkeys([*ours, *theirs]))

    def _has_original(self, name: str) -> bool:
        """Whether Marin's own module has the name; executes that module when it is first needed."""
        spec = self._original_spec
        if self._original is None and spec is not None and spec.loader is not None:
            # Beside this one, never in its place: importing the module yields ours.
            self._original = module_from_spec(spec)
            try:
                spec.loader.exec_module(self._original)
            except BaseException:
                self._original = None
                raise
        return hasattr(self._original, name)

    def _error(self, name: str) -> Exception:
        """An ImportError for `from module import name`; Python would hide the text of an AttributeError there."""
        frame = sys._getframe(3)  # Behind this method, `_found` and `__getattr__`.
        text = _missing(self.__name__, name)
        if frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM:
            return ImportError(text, name=self.__name__)
        return AttributeError(text, name=name, obj=self)


@dataclass(frozen=True)
class Original:
    """Marin's own module, in whose place one is served."""

    spec: ModuleSpec
    executed: bool


def original_module(module: ModuleType) -> Original | None:
    """Marin's own behind a module; None behind one that is not served, and where Marin is not installed."""
    if not isinstance(module, _Counterpart) or module._original_spec is None:
        return None
    return Original(module._original_spec, executed=module._original is not None)


def install() -> None:
    """Serve Marin's modules from now on in this process and its children, before finders that are there already."""
    if not is_installed():
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
        sys.meta_path.insert(0, CompatFinder())
        serve_children()
    sys.meta_path.sort(key=lambda finder: not isinstance(finder, CompatFinder))


def is_installed() -> bool:
    return any(isinstance(finder, CompatFinder) for finder in sys.meta_path)


def _missing(module: str, name: str | None = None) -> str:
    what = module if name is None else f"{module}.{name}"
    told = f"{module} has no {name!r}" if name is not None else f"there is no {module}"
    return (
        f"{told} in marin-rules: {advice(what)}. Where Marin itself is installed, or on PYTHONPATH, its own is used;"
        " docs/from-marin.md lists what is available here."
    )
