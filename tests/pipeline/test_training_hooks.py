"""What is decided around a training: when a checkpoint waits, what a signal does, what trackers know the run by."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from marin_rules.pipeline.training.config import Hyperparameters
from marin_rules.pipeline.training.hooks import is_better_saved_later, wandb_id

SIGNALLED = """
import os, signal, sys, threading
from marin_rules.pipeline.training.interruption import StopSignal

stop = StopSignal()
{body}
print("survived", stop.is_set)
"""
TERMINATE = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("every", "later"),
    [
        # Evaluations (every 4 steps) come after the steps 3, 7, 11; exports (every 6) after 5 and 11.
        ({"steps_per_eval": 4, "steps_per_hf_export": 6}, [3, 5, 7, 11]),
        # Exports come with the checkpoints that are kept, unless they have an interval of their own.
        ({"steps_per_eval": 100, "steps_per_export": 5}, [4, 9]),
        # Where something follows each step, a checkpoint would wait for ever.
        ({"steps_per_eval": 1}, []),
        # After 1, 3, 5, 7, 9, 11 evaluations, after 2, 5, 8, 11 exports: 1 and 7 have a busy step behind them.
        ({"steps_per_eval": 2, "steps_per_hf_export": 3}, [3, 5, 9, 11]),
        # A checkpoint that is kept for good is named after its step, and so is written after it: here after 0, 3, 6, 9.
        ({"steps_per_eval": 2, "steps_per_export": 3, "steps_per_hf_export": 100}, [1, 5, 7, 11]),
        # The last step's is written at the end.
        ({"num_train_steps": 12, "steps_per_export": 11, "steps_per_hf_export": 100}, [11]),
    ],
)
def test_checkpoints_wait_for_a_step_that_nothing_follows(every: dict[str, int], later: list[int]) -> None:
    given = Hyperparameters(**{"train_batch_size": 16, "num_train_steps": 100, "learning_rate": 1e-3, **every})
    assert [step for step in range(12) if is_better_saved_later(step, given)] == later


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
