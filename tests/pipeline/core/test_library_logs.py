"""What a step's log has of the libraries that work in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TALK = """
import logging
from marin_rules.pipeline.core.library_logs import quiet_libraries

logging.basicConfig(level=logging.INFO, format="%(message)s")
quiet_libraries()
for name in ("matplotlib.font_manager", "levanter.trainer", "mine"):
    logging.getLogger(name).info(f"{name} is well")
    logging.getLogger(name).warning(f"{name} is not well")
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (None, ["mine is well"]),
        ("INFO", ["matplotlib.font_manager is well", "levanter.trainer is well", "mine is well"]),
    ],
)
def test_libraries_are_heard_when_something_is_wrong(level: str | None, heard: list[str]) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "MARIN_LOG_LEVEL"}
    variables |= {} if level is None else {"MARIN_LOG_LEVEL": level}
    done = subprocess.run([sys.executable, "-c", TALK], env=variables, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.endswith(" is well")] == heard
    names = ("matplotlib.font_manager", "levanter.trainer", "mine")
    assert [line for line in lines if line.endswith(" is not well")] == [f"{name} is not well" for name in names]
