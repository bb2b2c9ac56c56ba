"""What the stubs beside this file do: another module takes the place of each while it is imported.

Any Python may get here, because everything that a step starts inherits PYTHONPATH, including the Python of Marin's own
environment. One without marin-rules gets what it would have without the stubs.
"""

import importlib
import os
import sys

_STUBS = os.path.dirname(os.path.abspath(__file__))


def take_over(name: str) -> None:
    """Called by a stub. Python then uses what is in `sys.modules` in its place."""
    try:
        from marin_rules.compat import children
    except (ModuleNotFoundError, SyntaxError) as error:  # It is not there, or this Python is too old for it.
        if isinstance(error, ModuleNotFoundError) and error.name != "marin_rules":
            raise
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _STUBS]
        del sys.modules[name]
        importlib.import_module(name)
    else:
        children.take_over(name)
