"""A run of Snakemake that is forked is as one that is started: its variables, descriptors, signals, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.lab import Lab
from support.warm_snakemake import SNAKEMAKE, ForkedProcess, WarmSnakemake

LOOKING = """
import json, os, resource, signal, sys, tempfile, threading
with open("facts", "w") as file:
    facts = {
        "arguments": sys.argv,
        "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:3],
        "is a leader": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "main": sys.modules["__main__"].__file__,
        "search path": sys.path,
        "signals": {number.name: str(signal.getsignal(number)) for number in signal.Signals},
        "temporary": tempfile.gettempdir(),
        "threads": threading.active_count(),
        "umask": oct(os.umask(0o027)),
        "variables": dict(os.environ),
        "working directory": os.getcwd(),
    }
    json.dump(facts, file)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "Snakefile").write_text(LOOKING)
    return tmp_path


def facts_in(folder: Path, variables: Mapping[str, str], warm: WarmSnakemake | None) -> dict[str, Any]:
    command = [str(SNAKEMAKE), "-n", "--snakefile", str(folder / "Snakefile")]
    before = os.umask(0o007)
    try:
        with (folder / "log").open("wb") as log:
            process: ForkedProcess | subprocess.Popen[bytes]
            if warm is None:
                started = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
                process = subprocess.Popen(command, cwd=folder, env=variables, **started)
            else:
                assert warm.can_run(command, variables)
                process = warm.start(command, folder, variables, log.fileno())
    finally:
        os.umask(before)
    assert process.wait(60) == 0, (folder / "log").read_text()
    facts: dict[str, Any] = json.loads((folder / "facts").read_text())
    return facts


def test_a_forked_run_is_as_one_that_is_started(folder: Path, warm_snakemake: WarmSnakemake) -> None:
    variables = {**os.environ, "TMPDIR": str(folder / "tmp"), "ANOTHER": "value"}
    cold = facts_in(folder, variables, None)
    assert (cold["temporary"], cold["umask"], cold["is a leader"]) == (str(folder / "tmp"), "0o7", True)
    assert facts_in(folder, variables, warm_snakemake) == cold


def test_what_is_read_only_once_must_be_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    warm, command = WarmSnakemake(), [str(SNAKEMAKE)]
    assert warm.can_run(command, {**os.environ, "TMPDIR": "/elsewhere"})
    assert not warm.can_run(command, {**os.environ, "PYTHONPATH": "/elsewhere"})
    assert not warm.can_run(command, {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"})
    assert not warm.can_run(["python"], os.environ)


def test_the_end_of_a_forked_run(lab: Lab) -> None:
    failing = lab.experiment("raise ValueError('broken')", "broken.py")
    assert lab.snakemake(experiment=failing).code == 1
    waiting = lab.start_snakemake(experiment=lab.experiment("open('gate').read()"))
    lab.wait_until(lambda: waiting.alive() == [waiting.pid], "the process")
    assert waiting.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.process.wait(0.01)
    waiting.process.kill()
    assert waiting.wait().code == -signal.SIGKILL
    assert waiting.alive() == []
