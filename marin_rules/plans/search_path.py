"""Where the user's own modules are looked for: before installed packages, and after Python's own library.

`python x.py` puts the folder of the file in front of everything. A `random.py` or `tokenize.py` there, or in the
working directory, would then be mistaken for Python's own by Snakemake, our workers and every library that they import.
(For the same reason none of our processes starts with the working directory on its path: `python -P`.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_LIBRARY = os.path.dirname(os.__file__)
_LIBRARY_PARTS = frozenset(
    {
        _LIBRARY,
        os.path.join(_LIBRARY, "lib-dynload"),
        os.path.join(os.path.dirname(_LIBRARY), f"python{sys.version_info.major}{sys.version_info.minor}.zip"),
    }
)

_HARMLESS = frozenset({"test"})
"""Names of Python's own modules that nothing imports."""


def with_folders(path: Sequence[str], folders: Sequence[str], library: frozenset[str] = _LIBRARY_PARTS) -> list[str]:
    """`path` with `folders` right after the last part of Python's library, wherever they were before."""
    others = [entry for entry in path if entry not in folders]
    position = max((number for number, entry in enumerate(others, 1) if entry in library), default=0)
    return [*others[:position], *folders, *others[position:]]


def search(folders: Sequence[str]) -> None:
    """Let this process find the modules in `folders`."""
    sys.path[:] = with_folders(sys.path, folders)


def hides_python_module(name: str) -> bool:
    """Whether a module of the user's has the name of one of Python's own."""
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names and top not in _HARMLESS
