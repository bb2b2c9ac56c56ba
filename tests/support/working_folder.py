"""Where tests run, as a pytest plugin: one that starts no process runs in an empty folder, and leaves it empty.

A plan packs the modules that were imported from below the working directory. In the checkout these are the modules of
all tests, and every plan that a test makes would read and parse hundreds of files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(request: pytest.FixtureRequest, _empty_folder: Path) -> Iterator[None]:
    if request.node.get_closest_marker("processes") is not None:
        yield
        return
    before = os.getcwd()
    os.chdir(_empty_folder)
    try:
        yield
    finally:
        os.chdir(before)
    if left := os.listdir(_empty_folder):
        shutil.rmtree(_empty_folder)
        _empty_folder.mkdir()
        names = ", ".join(sorted(left))
        pytest.fail(f"left in the working directory: {names}; write below tmp_path instead", pytrace=False)
