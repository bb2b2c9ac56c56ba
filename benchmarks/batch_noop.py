"""Steps that do nothing, as jobs of Google Batch, on the tests' emulators; and what a thousand jobs cost in calls.

CPU is that of the driver alone: jobs are processes of the emulator. The bare loop creates as many jobs with the same
client, and lists them until all are done: what anybody pays who uses Batch. Batch allows 15,000 reads a minute and
region, of which a run should need less than a tenth.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.emulator import google_storage
from benchmarks.measure import BenchmarkError, run
from benchmarks.remote_steps import RemoteSteps
from benchmarks.table import Row

_LOOP = ROOT / "benchmarks" / "workflows" / "batch_loop.py"
_READS_A_MINUTE = 15_000
_LOOKS_A_MINUTE = 3
"""With the pause of `profiles/gcp`, once nothing happens any more."""

_FILE = f"""
gcp:
  project: emulated
  regions: [us-central1]
jobs:
  python: {sys.executable}
"""


@contextmanager
def _cloud(folder: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """An emulated Batch whose machines have their disks below `folder`, and the environment of whoever uses it."""
    with google_storage() as storage, ExitStack() as closing:
        from support.emulators.batch.emulator import BatchEmulator

        batch = BatchEmulator(folder / "machines")
        closing.callback(batch.close)
        yield batch, {**storage.environment, "BATCH_EMULATOR_HOST": batch.address}


def batch_noop(folder: Path, shrink: int) -> Iterator[Row]:
    size = 20 // shrink
    numbers = itertools.count()
    with _cloud(folder) as (batch, environment):

        def ours(count: int) -> tuple[float, float, int]:
            number = next(numbers)
            steps = RemoteSteps(folder / f"run-{number}", count)
            files = steps.folder / "config" / "clusters"
            files.mkdir(parents=True)
            (files / "lab.yaml").write_text(_FILE)
            command = steps.command("--profile", str(ROOT / "profiles" / "gcp"))
            command[-1:] = [f"prefix=gs://bucket/{number}", "cluster=lab"]
            batch.forget_calls()
            usage = run(command, steps.folder, expect=steps.all_done, environment=environment)
            return usage.cpu, usage.wall, len(batch.calls())

        def loop(count: int) -> tuple[float, float, int]:
            batch.forget_calls()
            words = [sys.executable, str(_LOOP), str(count), f"loop{next(numbers)}"]
            usage = run(words, folder, expect="all done", environment=environment)
            return usage.cpu, usage.wall, len(batch.calls())

        for take in (ours, loop):
            take(1)
        cpu, wall, calls = ours(size)
        bare_cpu, bare_wall, bare_calls = loop(size)
    yield Row("batch_noop", f"CPU of {size} steps / bare loop of the same client", cpu / bare_cpu, "x")
    yield Row("batch_noop", "ours, start-up included", cpu / size, "s CPU a step")
    yield Row("batch_noop", "bare loop, start-up included", bare_cpu / size, "s CPU a step")
    yield Row("batch_noop", "ours, start-up included", wall / size, "s wall a step")
    yield Row("batch_noop", "bare loop, start-up included", bare_wall / size, "s wall a step")
    yield Row("batch_noop", "ours", calls / size, "calls a step")
    yield Row("batch_noop", "bare loop", bare_calls / size, "calls a step")


def batch_calls(folder: Path, shrink: int) -> Iterator[Row]:
    """What a look at many jobs under way takes."""
    size = 1000 // shrink
    with _cloud(folder) as (batch, environment):
        batch.hold("QUEUED")
        batch.forget_calls()
        words = [sys.executable, str(_LOOP), str(size), "many", "--look"]
        run(words, folder, expect=f"{size} jobs", environment=environment)
        looks = [call for call in batch.calls() if not call.method.startswith("Create")]
    if not looks:
        raise BenchmarkError("nobody has looked at the jobs")
    calls = len(looks) * _LOOKS_A_MINUTE
    yield Row("batch_calls", f"a look at {size:,} jobs under way", len(looks), "calls")
    yield Row("batch_calls", f"{size:,} jobs under way", calls, "calls a minute", _READS_A_MINUTE / 10)
