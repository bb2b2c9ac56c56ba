"""To learn that all is done costs little more on an object store than on the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.dag import Workspace, random_dag
from benchmarks.emulator import BUCKET, google_storage
from benchmarks.measure import fresh, least, run
from benchmarks.table import Row

_ROUNDS = 5
_PREFIX = f"gs://{BUCKET}/marin"


def dry_run_store(folder: Path, shrink: int) -> Iterator[Row]:
    with google_storage() as emulator:
        yield from _against_the_disk(folder, 1_000 // shrink, emulator)
        yield from _many(folder, 10_000 // shrink, emulator)


def _against_the_disk(folder: Path, size: int, emulator: Any) -> Iterator[Row]:
    workspace = Workspace(folder / "finished", random_dag(size))
    fresh("finish", workspace.folder)
    _fill(workspace, emulator)
    expect = f"{size} steps: {size} cached"
    emulator.forget_calls()
    usages = least(
        _ROUNDS,
        store=partial(_dry_run_on_store, workspace, emulator, expect),
        disk=partial(run, workspace.ours("-n"), workspace.folder, expect=expect),
    )
    calls = len(emulator.calls()) / _ROUNDS
    more = usages["store"].wall - usages["disk"].wall
    yield Row("dry_run_store", f"`-n`, {size:,} finished steps on gs:// - on the disk", more, "s wall", 1)
    yield Row("dry_run_store", f"`-n`, {size:,} finished steps on gs://", usages["store"].wall, "s wall")
    yield Row("dry_run_store", f"calls of the store, {size:,} finished steps", calls, "calls")


def _many(folder: Path, size: int, emulator: Any) -> Iterator[Row]:
    workspace = Workspace(folder / "many", random_dag(size))
    _fill(workspace, emulator)
    emulator.forget_calls()
    usage = _dry_run_on_store(workspace, emulator, f"{size} steps: {size} cached")
    yield Row("dry_run_store", f"`-n`, {size:,} finished steps on gs://", usage.wall, "s wall")
    yield Row("dry_run_store", f"calls of the store, {size:,} finished steps", len(emulator.calls()), "calls")


def _dry_run_on_store(workspace: Workspace, emulator: Any, expect: str) -> Any:
    command = workspace.ours("-n", prefix=_PREFIX)
    return run(command, workspace.folder, expect=expect, environment=emulator.environment)


def _fill(workspace: Workspace, emulator: Any) -> None:
    """Leave every step as finished in the bucket."""
    for path in fresh("paths", workspace.folder)["paths"]:
        emulator.put(BUCKET, f"marin/{path}/.executor_status", b"SUCCESS")
