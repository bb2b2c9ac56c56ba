"""A server of files, and downloads from it that do not wait long."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.download import DownloadConfig, FetchSettings, Source, download
from support.file_server import FileServer, file_server

FAST = FetchSettings(attempts=4, first_wait_seconds=0.001, timeout_seconds=20)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as files:
        yield files


@pytest.fixture
def storage() -> Iterator[FileServer]:
    with file_server() as files:
        yield files


@pytest.fixture
def fetch(tmp_path: Path) -> Callable[..., Any]:
    """`fetch(source)` downloads into `out`."""

    def run(source: Source, **changes: Any) -> Any:
        return download(DownloadConfig(source, **{"fetch": FAST, "output_path": str(tmp_path / "out"), **changes}))

    return run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def contents(out: Path) -> Callable[[], dict[str, bytes]]:
    """The downloaded files, without those about them."""

    def read() -> dict[str, bytes]:
        files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
        own = (".fetched/", ".partial/", "manifest.json", "provenance.json")
        return {name: body for name, body in files.items() if not name.startswith(own)}

    return read


@pytest.fixture
def manifest(out: Path) -> Callable[[], Any]:
    return lambda: json.loads((out / "manifest.json").read_text())
