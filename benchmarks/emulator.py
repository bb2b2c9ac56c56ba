"""The tests' emulator of Google Cloud Storage, for benchmarks: on loopback, in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import ROOT

BUCKET = "bucket"


@contextmanager
def google_storage() -> Iterator[Any]:
    """An emulator with one empty bucket."""
    tests = str(ROOT / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)
    from support.emulators.gcs.emulator import GcsEmulator

    emulator = GcsEmulator()
    try:
        emulator.create_bucket(BUCKET)
        yield emulator
    finally:
        emulator.close()
