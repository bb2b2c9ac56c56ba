"""Two processes that train together, of which one alone gets a stop signal."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from marin_rules.clusters.ranks import variables_for
from marin_rules.process import variable_of
from support.lab import REPOSITORY
from training.training_runs import SCRIPT

pytestmark = pytest.mark.processes


def test_both_stop_with_a_checkpoint(trained: Path, training_python: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens").symlink_to(trained / "tokens")
    variables = {**os.environ, **variables_for(2, "127.0.0.1", "train"), "PYTHONPATH": str(REPOSITORY / "tests")}
    with ExitStack() as stack:
        ranks = []
        for rank in (0, 1):
            own = {variable_of(name): str(rank) for name in ("rank", "local_rank")}
            ranks.append(
                subprocess.Popen(
                    [str(training_python), str(SCRIPT), str(tmp_path), "endless"],
                    env={**variables, **own, variable_of("local_count"): "2"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            stack.enter_context(ranks[-1])
            stack.callback(ranks[-1].kill)
        first, second = ranks
        assert first.stdout is not None
        before = []
        for line in first.stdout:
            before.append(line)
            if line.startswith("step 3/"):
                second.send_signal(signal.SIGTERM)
                break
        said, other = first.communicate(timeout=60)[0], second.communicate(timeout=60)[0]
    assert ": stopped by a signal" in said, "".join([*before, said, other])
    (checkpoint,) = (tmp_path / "endless" / "checkpoints").glob("step-*")
    assert (checkpoint / "files.json").exists()
    assert [rank.returncode for rank in ranks] == [-signal.SIGTERM, -signal.SIGTERM], said + other
