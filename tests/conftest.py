"""Puts `tests/` on the path, so that tests of all folders share the packages there, and loads the fixtures of these.

With `--import-mode=importlib` pytest adds nothing to the path by itself.
"""

import signal
import sys
from pathlib import Path

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script. What tests start would ignore Ctrl-C as well, and some tests are about it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).resolve().parent))

pytest_plugins = ["emulators.fixtures", "runs.fixtures", "slurm.fixtures"]
