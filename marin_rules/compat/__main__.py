"""`python -m marin_rules.compat script.py [flags]`: run a script that is written for Marin, unmodified.

Or a module, as `python -m` would: `python -m marin_rules.compat -m experiments.sweep [flags]`.
"""

from __future__ import annotations

import os
import runpy
import sys

from marin_rules.compat import install

_USAGE = "usage: python -m marin_rules.compat SCRIPT.py | -m MODULE [the script's own flags, such as --dry_run]"


def main() -> None:
    arguments = sys.argv[1:]
    is_module = arguments[:1] == ["-m"]
    words = arguments[1:] if is_module else arguments
    if not words or words[0].startswith("-"):
        sys.exit(_USAGE)
    script = words[0]
    if not is_module and not os.path.isfile(script):
        sys.exit(f"there is no script {script} (looked in {os.getcwd()})")
    sys.argv = words
    # As Python itself would have it; the working directory is where Marin's scripts find `experiments`.
    folders = [os.getcwd()] if is_module else [os.path.dirname(os.path.abspath(script)), os.getcwd()]
    sys.path[:0] = folders
    install()
    if is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
