"""Where Levanter calls us while it trains: its trackers, and its checkpointer after every step."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from marin_rules.pipeline.core.files import is_url, join
from marin_rules.pipeline.training.checkpoints import find_checkpoints, seal
from marin_rules.pipeline.training.config import Hyperparameters, Running, WandbConfig
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.interruption import StopSignal
from marin_rules.pipeline.training.levanter_config import Places, checkpoint_settings
from marin_rules.pipeline.training.metrics import Recorder

_END_OF_STEP = "throughput/loading_time"  # The last thing that Levanter reports about a step.


def recording_tracker(recorder: Recorder, *, evaluates_average_too: bool = False) -> Any:
    """A tracker's config that hands the recorder what it keeps. Where the weights of the step and their moving average
    are both evaluated, `eval/` is of the average, which is what is exported."""
    import dataclasses

    import jax
    from levanter.tracker.tracker import NoopTracker, Tracker, TrackerConfig

    class RecordingTracker(Tracker):  # type: ignore[misc]
        name = "marin_rules"

        def __init__(self) -> None:
            self._learning_rate: float | None = None

        def log(self, metrics: Mapping[str, Any], *, step: int | None, commit: bool | None = None) -> None:
            if step is None:
                return
            numbers = _numbers(jax.device_get(metrics))
            self._learning_rate = numbers.get("optim/learning_rate", self._learning_rate)
            if "train/loss" in numbers:
                recorder.trained(step, numbers.pop("train/loss"), self._learning_rate)
            kept = {name: value for name, value in numbers.items() if name.startswith(("train/", "eval/", "lm_eval/"))}
            if evaluates_average_too:
                kept = named_by_model(kept)
            if kept:
                recorder.reported(step, kept)
            if _END_OF_STEP in numbers:
                recorder.next_step_begins()

        def log_summary(self, metrics: Mapping[str, Any]) -> None:
            numbers = _numbers(metrics)
            if flops := numbers.get("throughput/flops_per_example"):
                recorder.work.flops_per_sequence = flops
            if peak := numbers.get("throughput/theoretical_flops"):
                recorder.work.peak_flops = peak
            # Of a model and its reference, those that are trained.
            if parameters := numbers.get("trainable_parameter_count", numbers.get("parameter_count")):
                recorder.has_model(int(parameters))

        def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None: ...

        def log_artifact(self, artifact_path: Any, *, name: str | None = None, type: str | None = None) -> None: ...

        def finish(self) -> None: ...

    # Levanter writes its config down by such names.
    @TrackerConfig.register_subclass(f"marin_rules_{id(recorder)}")
    @dataclasses.dataclass
    class RecordingTrackerConfig(TrackerConfig):  # type: ignore[misc]
        def init(self, run_id: str | None) -> Any:
            return RecordingTracker() if jax.process_index() == 0 else NoopTracker()

    return RecordingTrackerConfig()


def named_by_model(metrics: Mapping[str, float]) -> dict[str, float]:
    """Levanter evaluates the weights of the step as `eval/loss`, their average as `eval/ema/loss`: to us they are
    `eval_of_step/loss` and `eval/loss`."""
    if "eval/loss" in metrics:
        before, after = "eval/", "eval_of_step/"
    else:
        before, after = "eval/ema/", "eval/"
    return {
        after + name.removeprefix(before) if name.startswith(before) else name: value for name, value in metrics.items()
    }


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for name, value in metrics.items():
        if not isinstance(value, str | bool) and getattr(value, "ndim", 0) == 0:
            try:
                found[name] = float(value)
            except (TypeError, ValueError):
                continue
    return found


def optional_trackers(running: Running, places: Places, *, resumed_from: int | None) -> tuple[Any, ...]:
    """Weights & Biases and TensorBoard, if requested."""
    trackers: list[Any] = []
    if running.wandb is not None:
        trackers.append(_wandb(running.wandb, running.tags, places, is_resumed=resumed_from is not None))
    if running.tensorboard:
        from levanter.tracker.tensorboard import TensorboardConfig

        if is_url(places.output) and not places.output.startswith("gs://"):
            raise TrainingError(
                f"tensorboard cannot be written to {places.output}: its writer knows files and gs:// only. Leave it"
                " out: metrics.jsonl has the same numbers"
            )
        # What an earlier attempt reported beyond its last checkpoint is not shown beside what comes now.
        purged = None if resumed_from is None else resumed_from + 1
        trackers.append(TensorboardConfig(logdir=join(places.output, "tensorboard"), purge_step=purged))
    return tuple(trackers)


def _wandb(wandb: WandbConfig, tags: tuple[str, ...], places: Places, *, is_resumed: bool) -> Any:
    """A run named after the step and its hash, so that attempts at a step share one run and no others do."""
    from levanter.tracker.wandb import WandbConfig as LevanterWandbConfig

    if is_url(places.output):
        if wandb.mode == "offline":
            raise TrainingError(
                f"wandb mode 'offline' keeps files of the run beside the others, and {places.output} is not a folder of"
                " this machine: use mode 'online', or tensorboard=True"
            )
        os.environ.setdefault("WANDB_DIR", places.scratch)
    else:
        os.environ.setdefault("WANDB_DIR", places.output)
    return LevanterWandbConfig(
        id=wandb_id(places.output),
        project=wandb.project,
        entity=wandb.entity,
        group=wandb.group,
        tags=[*wandb.tags, *tags],
        mode=wandb.mode,
        resume="allow" if is_resumed else None,  # A training that starts over replaces the previous run.
        save_code=False,
    )


def wandb_id(output: str) -> str:
    """What Weights & Biases knows a run by: the last words of its output path, as far as it takes them."""
    return re.sub(r"[^\w.-]", "_", output.rstrip("/").rsplit("/", 1)[-1], flags=re.ASCII)[-128:]


def watched_checkpointer(
    recorder: Recorder,
    given: Hyperparameters,
    running: Running,
    places: Places,
    stop: StopSignal,
    *,
    resumed_from: int | None,
) -> tuple[Any, Any]:
    """A checkpointer's config that keeps metrics and checkpoints in step, and ends the training when it is told to; and
    a watchdog's, which Levanter calls before everything else: so the checkpointer learns that the next step begins.

    Levanter saves before it evaluates, exports, and reports the parts of a loss: whoever resumes behind the step would
    never have these. So a step is saved when nothing of it is left to do.
    """
    from dataclasses import dataclass

    import jax
    from levanter.callbacks import Callback, ProgressEvent
    from levanter.callbacks.progress_watchdog import ProgressWatchdogConfig
    from levanter.checkpoint import Checkpointer, CheckpointerConfig, CheckpointInterval, CheckpointRetention

    class WatchedCheckpointer(Checkpointer):  # type: ignore[misc]
        done: tuple[Any, int] | None = None
        """The state after a step, until the next one begins: that takes the arrays away."""

        is_at_end = False

        def on_step(self, *, tree: Any, step: int, force: bool = False) -> None:
            recorder.stop_at_fault()
            step = int(step)
            if step == resumed_from:  # That one exists, and has been checked.
                return
            if not force:
                stop.listen()
                self.done = tree, step
                return
            self.done, self.is_at_end = None, True
            super().on_step(tree=tree, step=step, force=True)
            self.wait_until_finished()  # A signal would cut short what is still being written.
            stop.ignore()
            if any_process(stop.is_set):
                self._end(step)

        def next_step_begins(self) -> None:
            if self.done is None:
                return
            (tree, step), self.done = self.done, None
            recorder.stop_at_fault()
            if stops := any_process(stop.is_set):
                self.request_checkpoint(CheckpointRetention.TEMPORARY)
            super().on_step(tree=tree, step=step)
            if self._last_save_step != step or step == 0:  # Levanter saves nothing after the first one.
                return
            if stops:
                self._end(step)
            recorder.next_step_begins()

        def _end(self, step: int) -> None:
            self.wait_until_finished()
            recorder.say(f"step {step + 1}/{recorder.work.steps}: stopped by a signal")
            any_process(True)  # A process that still waits for the first one would be aborted when that ends.
            stop.end_process()

        def _discover_temporary_checkpoints(self) -> list[Any]:
            """Which ones Levanter will remove: not those that somebody keeps beside ours under another name."""
            own = {f"step-{checkpoint.step}" for checkpoint in find_checkpoints(self.base_path)}
            found = super()._discover_temporary_checkpoints()
            return [one for one in found if one.path.rstrip("/").rpartition("/")[2] in own]

        def _prune_temporary_checkpoints(self, keep: int) -> None:
            """Levanter removes all of them behind one that is kept for good. Until the end the last one stays, for when
            that turns out to be damaged: the one kept before it may be thousands of steps back."""
            super()._prune_temporary_checkpoints(keep if self.is_at_end else max(keep, 1))

        def save_checkpoint(
            self, tree: Any, step: int, destination: str, commit_callback: Any = None, **options: Any
        ) -> None:
            if jax.process_index() == 0:
                recorder.flush()

            def commit() -> None:
                if jax.process_index() == 0:
                    size = seal(join(options.get("base_path_override") or self.base_path, destination))
                    recorder.say(f"step {int(step) + 1}/{recorder.work.steps}: checkpoint of {size / 1e6:,.1f} MB")
                if commit_callback is not None:
                    commit_callback()  # Removes older checkpoints.

            super().save_checkpoint(tree, step, destination, commit, **options)

    made: list[WatchedCheckpointer] = []

    @dataclass
    class WatchedCheckpointerConfig(CheckpointerConfig):  # type: ignore[misc]
        def create(self, run_id: str) -> Any:
            checkpointer = WatchedCheckpointer(
                base_path=self.expanded_path(run_id),
                save_interval=self.save_interval,
                step_policies=[CheckpointInterval(**interval) for interval in self.keep or []],
                keep_last_temporary_checkpoints=self.keep_last_temporary_checkpoints,
                dt_now_injection=steady_now,
            )
            made.append(checkpointer)
            return checkpointer

    class BetweenSteps(Callback):  # type: ignore[misc]
        def on_step(self, info: Any, force: bool = False) -> None:
            if info.step == resumed_from:  # Levanter says 0 of a last step that it finds done, to all trackers.
                info.loss = recorder.loss_of(info.step)

        def on_event(self, event: Any) -> None:
            if event is ProgressEvent.TRAIN_STEP_STARTED:
                made[-1].next_step_begins()

    class BetweenStepsConfig(ProgressWatchdogConfig):  # type: ignore[misc]
        def create(self, **options: Any) -> Any:
            return BetweenSteps()

    return WatchedCheckpointerConfig(**checkpoint_settings(given, running, places)), BetweenStepsConfig()


def any_process(is_so: bool) -> bool:
    """Whether it is so for one of those that train together. All of them have to ask, after the same step."""
    import jax
    import numpy
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return is_so
    return bool(numpy.any(multihost_utils.process_allgather(numpy.array(is_so))))


def steady_now() -> datetime:
    """For intervals alone: a clock that was set back would keep checkpoints from being written until it has caught
    up."""
    return datetime.fromtimestamp(time.monotonic(), UTC)
