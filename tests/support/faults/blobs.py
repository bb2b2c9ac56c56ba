"""The step that workers of the nursery run, and what it must come to."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from typing import Any

import fsspec

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, this_process, versioned
from support.faults.boundaries import STEP_EVENT

BLOB = "blob"


def blob(number: int) -> bytes:
    """What step `number` writes."""
    return hashlib.sha256(str(number).encode()).digest() * 100


def write_blob(config: dict[str, Any]) -> dict[str, int]:
    """Write the blob in two halves. Where a folder for turns is given, the first attempt waits for its turn first."""
    if config["turns"] is not None and is_first(turn := os.path.join(config["turns"], str(config["number"]))):
        print("the first attempt waits", flush=True)
        await_turn(f"{turn}.go")
        if os.path.exists(f"{turn}.empty"):
            filesystem, folder = fsspec.core.url_to_fs(config["path"])
            filesystem.rm(folder, recursive=True)
    data = blob(config["number"])
    with fsspec.open(os.path.join(config["path"], BLOB), "wb") as file:
        file.write(data[:1000])
        file.flush()
        sys.audit(STEP_EVENT, "half of the blob is written")
        file.write(data[1000:])
    return {"bytes": len(data)}


def write_part(config: dict[str, Any]) -> dict[str, int]:
    """The same for one task of an array step, with a file and a blob of its own."""
    task = this_process().task
    data = blob(part_number(config["number"], task))
    with fsspec.open(os.path.join(config["path"], f"{BLOB}-{task}"), "wb") as file:
        file.write(data[:1000])
        file.flush()
        sys.audit(STEP_EVENT, f"half of the part of task {task} is written")
        file.write(data[1000:])
    return {"task": task}


def part_number(step: int, task: int) -> int:
    return 1000 * (step + 1) + task


def await_turn(path: str) -> None:
    """Wait until a test makes this file. Most never do."""
    for _ in range(50_000):
        if os.path.exists(path):
            return
        time.sleep(0.02)


def is_first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def blob_steps(count: int, turns: str | None, tasks: int | None) -> list[ExecutorStep[Any]]:
    return [
        ExecutorStep(
            name=f"blob/{number}",
            fn=write_blob if tasks is None else write_part,
            config={"path": THIS_OUTPUT_PATH, "number": versioned(number), "turns": turns},
            tasks=tasks,
        )
        for number in range(count)
    ]
