"""`python -m benchmarks`: run the benchmarks and show their figures against the bars."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks import ROOT
from benchmarks.batch_noop import batch_calls, batch_noop
from benchmarks.data_memory import data_memory
from benchmarks.data_stages import near_duplicates, page_extraction, rewriting
from benchmarks.dry_run_cold import dry_run_cold
from benchmarks.dry_run_finished import dry_run_finished
from benchmarks.dry_run_python import dry_run_python
from benchmarks.dry_run_store import dry_run_store
from benchmarks.evaluate import evaluation
from benchmarks.help_text import help_text
from benchmarks.import_time import import_time
from benchmarks.measure import BenchmarkError
from benchmarks.mirror_copy import mirror_copy
from benchmarks.plan import plan
from benchmarks.run_noop import run_noop, run_noop_1000
from benchmarks.slurm_noop import slurm_noop
from benchmarks.table import Row, render, write
from benchmarks.tasks_noop import slurm_tasks, tasks_noop, tasks_store
from benchmarks.tokenizing import tokenizing
from benchmarks.train import training
from benchmarks.two_steps import two_steps
from benchmarks.warm_environment import warm_environment
from benchmarks.wide import wide

_README = ROOT / "benchmarks" / "README.md"

BENCHMARKS: dict[str, Callable[[Path, int], Iterator[Row]]] = {
    "import": import_time,
    "help": help_text,
    "plan": plan,
    "wide": wide,
    "dry_run_finished": dry_run_finished,
    "dry_run_cold": dry_run_cold,
    "dry_run_python": dry_run_python,
    "two_steps": two_steps,
    "run_noop": run_noop,
    "run_noop_1000": run_noop_1000,
    "tasks_noop": tasks_noop,
    "dry_run_store": dry_run_store,
    "tasks_store": tasks_store,
    "mirror_copy": mirror_copy,
    "slurm_noop": slurm_noop,
    "slurm_tasks": slurm_tasks,
    "warm_environment": warm_environment,
    "batch_noop": batch_noop,
    "batch_calls": batch_calls,
    "page_extraction": page_extraction,
    "near_duplicates": near_duplicates,
    "training": training,
    "evaluation": evaluation,
    "rewriting": rewriting,
    "tokenizing": tokenizing,
    "data_memory": data_memory,
}
"""Each takes a folder of its own and a number by which to divide its sizes."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure the project against its bars.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: does it work?")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="run this benchmark; may be given again")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    if options.write and (options.quick or options.only):
        parser.error("--write wants a full run: leave out --quick and --only")

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # Clean up anyway.
    stamp = _stamp()
    rows: list[Row] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="marin-rules-benchmarks-") as folder:
        for name in options.only or BENCHMARKS:
            _tell(f"{time.strftime('%H:%M:%S')} {name} ...")
            own = Path(folder) / name
            own.mkdir()
            try:
                for row in BENCHMARKS[name](own, 10 if options.quick else 1):
                    rows.append(row)
                    _tell("  " + "  ".join(row.cells[1:]))
            except BenchmarkError as error:
                failed = True
                _tell(f"benchmark {name} could not be measured: {error}")
    print(f"{stamp}\n\n{render(rows)}")
    if options.write and not failed:
        write(_README, stamp, rows)
    return 1 if failed or any(row.is_over for row in rows) else 0


def _tell(text: str) -> None:
    """What is known so far, for a person who waits or has to stop a run."""
    print(text, file=sys.stderr, flush=True)


def _stamp() -> str:
    """What was measured, when and on what."""
    # The table itself is no change of what is measured.
    changes = _git("status", "--porcelain", "--", ".", f":!{_README.relative_to(ROOT)}")
    commit = (_git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changes else "")
    machine = f"{os.cpu_count()} CPUs (load {os.getloadavg()[0]:.1f} before)"
    versions = f"Python {platform.python_version()}, Snakemake {version('snakemake')}"
    return f"Commit {commit}, {time.strftime('%Y-%m-%d')}, {machine}, {versions}."


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]  # Without locks it only looks.
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
