"""What is decided around a training: what a signal does, and what trackers know the run by."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from marin_rules.pipeline.training.hooks import wandb_id

SIGNALLED = """
import os, signal, sys, threading
from marin_rules.pipeline.training.interruption import StopSignal

stop = StopSignal()
{body}
print("survived", stop.is_set)
"""
TERMINATE = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("output", "known_by"),
    [
        ("/data/out/checkpoints/tiny-1a2b3c", "tiny-1a2b3c"),
        ("gs://bucket/out/checkpoints/tiny-1a2b3c/", "tiny-1a2b3c"),
        ("out/lr=0.003,é-1a2b3c", "lr_0.003__-1a2b3c"),
        (f"out/{'n' * 200}-1a2b3c", f"{'n' * 121}-1a2b3c"),
    ],
)
def test_runs_are_known_to_weights_and_biases_by_their_output(output: str, known_by: str) -> None:
    assert wandb_id(output) == known_by


@pytest.mark.processes
@pytest.mark.parametrize(
    ("body", "ended_by", "said"),
    [
        (TERMINATE, -signal.SIGTERM, ""),
        (f"stop.listen(); {TERMINATE}", 0, "survived True"),
        (f"stop.listen(); stop.listen(); stop.ignore(); {TERMINATE}", -signal.SIGTERM, ""),
        (f"stop.listen(); {TERMINATE}; stop.end_process()", -signal.SIGTERM, ""),
        (
            f"signal.signal(signal.SIGTERM, lambda *_: print('mine')); stop.listen(); {TERMINATE}; stop.end_process()",
            1,
            "mine",
        ),
        (
            f"thread = threading.Thread(target=stop.listen); thread.start(); thread.join(); {TERMINATE}",
            -signal.SIGTERM,
            "",
        ),
    ],
    ids=["unheard", "noted", "no longer heard", "obeyed", "handled by the caller too", "elsewhere than in main"],
)
def test_a_stop_signal(body: str, ended_by: int, said: str) -> None:
    script = SIGNALLED.format(body=body)
    done = subprocess.run([sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (ended_by, said), done.stderr
