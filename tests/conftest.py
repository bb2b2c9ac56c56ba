"""Puts `tests/` on the path, so that tests of all folders share the packages there, and loads the fixtures of these.

With `--import-mode=importlib` pytest adds nothing to the path by itself.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

pytest_plugins = ["emulators.fixtures", "runs.fixtures", "slurm.fixtures"]
