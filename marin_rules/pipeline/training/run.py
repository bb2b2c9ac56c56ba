"""A run of Levanter, whatever it trains: devices found, processes met, resumed where it was stopped, and watched.

Levanter's own main functions do the training. Around them, this module makes sure that a run that was stopped anywhere
resumes from its last whole checkpoint, with the metrics up to there, and that failures say what to change.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from marin_rules import this_process
from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.core.library_logs import quiet_libraries
from marin_rules.pipeline.training.checkpoints import Checkpoint, choose_checkpoint
from marin_rules.pipeline.training.config import Hyperparameters, Running
from marin_rules.pipeline.training.errors import NonFiniteLoss, TrainingError
from marin_rules.pipeline.training.guards import check_batch, check_device
from marin_rules.pipeline.training.hooks import optional_trackers, recording_tracker, watched_checkpointer
from marin_rules.pipeline.training.interruption import StopSignal
from marin_rules.pipeline.training.levanter_config import Places, trainer_config
from marin_rules.pipeline.training.metrics import Line, Recorder
from marin_rules.pipeline.training.report import write_loss_curve
from marin_rules.pipeline.training.throughput import Work

_MEETING_SECONDS = 30 * 60
"""How long processes wait for each other; machines of a cluster may start long after one another."""

_NO_ROOM = ("No space left on device", "Disk quota exceeded")

_NOT_FINITE = {"Loss is NaN": "not a number", "Loss is Inf": "infinite"}


@dataclass(frozen=True)
class Devices:
    """What the processes of a run have together."""

    kind: str
    count: int
    processes: int


def prepare_environment(running: Running) -> None:
    """Variables that libraries read when they are imported. Whatever the user has set is left alone."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")  # Our own lines report progress, and suit a log.
    quiet_libraries()
    if running.device == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def meet(running: Running) -> Devices:
    """Find the devices: this process's, and those of the others that run the step with it."""
    import jax

    process = this_process()
    if process.count > 1 and not jax.distributed.is_initialized():
        # Each process has all devices of its machine. JAX's own detection gives it only one of them on some clusters.
        jax.distributed.initialize(
            process.coordinator_address,
            process.count,
            process.rank,
            cluster_detection_method="deactivate",
            initialization_timeout=_MEETING_SECONDS,
        )
    try:
        devices = jax.devices()
    except RuntimeError as error:
        raise TrainingError(f"JAX finds no device: {error}") from error
    check_device(running.device, jax.default_backend())
    return Devices(devices[0].device_kind, len(devices), jax.process_count())


def run(
    output: str,
    given: Hyperparameters,
    running: Running,
    *,
    sequence_length: int,
    tokenizer: str,
    start: Callable[[Places, Any], None],
    sequences_per_example: int = 1,
    evaluates_average_too: bool = False,
) -> tuple[Recorder, Devices]:
    """Train until the last step is done, from wherever an earlier attempt was stopped."""
    devices = meet(running)
    check_batch(given.train_batch_size, devices.count, running.per_device_parallelism)
    work = Work(given.num_train_steps, given.train_batch_size * sequences_per_example, sequence_length)
    is_first = this_process().rank == 0
    with tempfile.TemporaryDirectory(prefix="train-") as scratch:
        places = Places(output, tokenizer, scratch)
        checkpoint = _agreed_checkpoint(places.checkpoints, is_first, given.num_train_steps)
        resumed_from = None if checkpoint is None else checkpoint.step
        stop = StopSignal()
        recorder = Recorder(
            join(output if is_first else scratch, "metrics.jsonl"),
            work,
            resumed_from=resumed_from,
            progress_seconds=running.progress_seconds,
            say=_say if is_first else _say_nothing,
            draw=partial(write_loss_curve, join(output, "report")) if is_first else _draw_nothing,
        )
        checkpointer, between_steps = watched_checkpointer(
            recorder, given, running, places, stop, resumed_from=resumed_from
        )
        trainer = trainer_config(
            given,
            running,
            places,
            devices=devices.count,
            trackers=(
                recording_tracker(recorder, evaluates_average_too=evaluates_average_too),
                *optional_trackers(running, places, resumed_from=resumed_from),
            ),
            checkpointer=checkpointer,
            between_steps=between_steps,
        )
        trainer.load_checkpoint = checkpoint is not None
        trainer.load_checkpoint_path = None if checkpoint is None else checkpoint.path
        try:
            start(places, trainer)
            _end_loaders()
        except Exception as error:
            raise explained(error, recorder, given, devices) from error
        finally:
            stop.ignore()
            recorder.flush()
        recorder.close()
    return recorder, devices


def _end_loaders() -> None:
    """Levanter's loaders fetch batches in threads that nobody ends. If one runs while Python is taken apart, it prints
    a traceback into the log of a training that went well."""
    from levanter.data.loader import DataLoaderIterator

    for loader in [thing for thing in gc.get_objects() if type(thing) is DataLoaderIterator]:
        loader.close()


def _agreed_checkpoint(folder: str, is_first: bool, steps: int) -> Checkpoint | None:
    """The first process checks, and informs the others: they might see a folder that it is about to remove."""
    import jax
    import numpy
    from jax.experimental import multihost_utils

    found = choose_checkpoint(folder, _say, steps=steps) if is_first else None
    step = -1 if found is None else found.step
    if jax.process_count() > 1:
        step = int(multihost_utils.broadcast_one_to_all(numpy.int32(step)))
    if step < 0:
        return None
    if is_first:
        _say(f"resumes after step {step + 1}")
    return Checkpoint(join(folder, f"step-{step}"), step)


def explained(error: Exception, recorder: Recorder, given: Hyperparameters, devices: Devices) -> Exception:
    """The same failure, with where it happened and what to try; as it is if we know nothing more."""
    text = str(error)
    if text in _NOT_FINITE:
        step = recorder.last_step + 1
        return NonFiniteLoss(f"the loss of step {step} is {_NOT_FINITE[text]}: {recorder.advice()}")
    if full := next((words for words in _NO_ROOM if words in text), None):  # To tensorstore an exhausted resource too.
        return TrainingError(
            f"a checkpoint or an export could not be written: {full}. Make room where the step's output is, and run it"
            " again: it resumes from its last whole checkpoint"
        )
    if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
        each = given.train_batch_size // devices.count
        return TrainingError(
            f"{devices.kind} is out of memory with a batch of {given.train_batch_size}, {each} sequences of"
            f" {recorder.work.sequence_length} tokens on each of {devices.count} devices. Lower per_device_parallelism"
            " (for plain text the result stays the same), or train_batch_size or train_seq_len; or use more devices"
        )
    return error


def _say(text: str) -> None:
    print(text, flush=True)


def _say_nothing(text: str) -> None: ...


def _draw_nothing(lines: Sequence[Line]) -> None: ...
