"""Puts `tests/` on the path, so that tests of all folders share the packages there, and loads the fixtures of these.

With `--import-mode=importlib` pytest adds nothing to the path by itself.
"""

import gc
import signal
import sys
from pathlib import Path

import pytest

# Started in the background of a script, or with nohup. What tests start would ignore these signals as well, and some
# tests are about them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

sys.path.insert(0, str(Path(__file__).resolve().parent))

pytest_plugins = [
    "support.emulators.fixtures",
    "support.lab",
    "support.array_experiment",
    "support.processes",
    "support.slurm.fixtures",
    "support.working_folder",
]


# Thousands of tests stay until the end, once collected: the garbage collector would look at them over and over.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
