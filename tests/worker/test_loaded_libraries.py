"""Whether a process has loaded a C library since somebody last looked: as Python tells of its own extensions."""

import subprocess
import sys

import pytest

LOOK = """
from marin_rules.worker.loaded_libraries import loaded_so_far
import {before}
first, second = loaded_so_far(), loaded_so_far()
import {then}
print(first is None, first == second, loaded_so_far() != second)
"""


def look(before: str, then: str, **variables: str) -> list[str]:
    """Is it unknown, is it the same at a second look, is it another one after an import?"""
    command = [sys.executable, "-c", LOOK.format(before=before, then=then)]
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=True).stdout.split()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("before", "then", "is_new"),
    [("json", "_sqlite3", "True"), ("_sqlite3", "_sqlite3", "False"), ("json", "colorsys", "False")],
)
def test_a_library_is_noticed_once_it_is_loaded(before: str, then: str, is_new: str) -> None:
    assert look(before, then)[-3:] == ["False", "True", is_new]


@pytest.mark.processes
def test_where_libraries_are_put_into_every_program_nothing_is_known() -> None:
    assert look("json", "json", LD_PRELOAD="libm.so.6")[0] == "True"
