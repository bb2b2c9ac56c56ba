"""`metrics.jsonl`: a line a step and a line an evaluation, each there as soon as it is known, and each only once.

A line of a step is written before a checkpoint of that step can be, so that whatever a run resumes from, the lines up
to there exist. A resumed run cuts the file back to its checkpoint and continues from there. A local file grows line by
line, and is written as a whole once more at the end; of a URL, which cannot grow, the whole file is written again now
and then, and before each checkpoint. If that fails in between, the next time makes up for it; before a checkpoint it
must not fail.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, is_url, open_to_append, open_to_read
from marin_rules.pipeline.training.errors import NonFiniteLoss
from marin_rules.pipeline.training.throughput import Work, progress_line

_UPLOAD_SECONDS = 60.0
_UPLOAD_SHARE = 0.01  # Of the time, at most: after weeks of training the file is large.
_WINDOW = 50  # Steps that the printed speed is the mean of.
_DRAW_SECONDS = 30.0
_DRAW_SHARE = 0.01  # Of the time, at most: a curve of a million steps takes a while.

SET_LOSS = re.compile(r"eval/(.+)/loss")
"""How Levanter calls the loss of a validation set. A set may be called `news/old`."""

type Line = dict[str, Any]


def read_metrics(path: str) -> list[Line]:
    """All whole lines, each number of a step once. The last line may have been cut off by a kill, and others may have
    written here: an attempt that had lost its lease and had not noticed yet, or people."""
    try:
        with open_to_read(path) as file:
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines: list[Line] = []
    found: set[tuple[int, str]] = set()
    for line in text.split("\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if not _is_line(value):
            continue
        numbers = {(value["step"], name) for name in value if name not in ("step", "time")}
        if found.isdisjoint(numbers):
            found |= numbers
            lines.append(value)
    return lines


def _is_line(value: Any) -> bool:
    """Whether it can be of ours: numbers alone, of a step."""
    if not isinstance(value, dict) or not isinstance(value.get("step"), int) or value["step"] < 0:
        return False
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in value.values())


def _evaluation_text(metrics: Mapping[str, float]) -> str:
    """Of all sets together, and of each if there are several: what one gains another may lose.

    Without `eval/bpb`, Levanter's mean over batches: of tiny models it is 2% above the bits per byte of the whole
    text, which stand in the same log at the end.
    """
    text = f"{metrics['eval/loss']:.4f}"
    matches = {name: SET_LOSS.fullmatch(name) for name in metrics}
    sets = [f"{match[1]} {metrics[name]:.4f}" for name, match in matches.items() if match]
    return f"{text} ({', '.join(sets)})" if len(sets) > 1 else text


class Recorder:
    """Takes what a trainer reports, step after step, and keeps it.

    What goes wrong here must stop the training, but a trainer swallows the errors of those it reports to: `fault` keeps
    the first one, and `stop_at_fault` raises it where it is not swallowed.
    """

    def __init__(
        self,
        path: str,
        work: Work,
        *,
        resumed_from: int | None,
        progress_seconds: float = 10.0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = print,
        draw: Callable[[Sequence[Line]], None] = lambda lines: None,
    ) -> None:
        self.path, self.work = path, work
        self._draw = draw
        self.fault: Exception | None = None
        self._grows = not is_url(path)
        self.say = say
        self._clock, self._progress_seconds = clock, progress_seconds
        self._timer = timer  # Of durations: a clock may be set back.
        last = -1 if resumed_from is None else resumed_from
        self.lines = [line for line in read_metrics(path) if line["step"] <= last]
        self.last_step = last
        if missing := len(self.steps_without_line()):
            self.say(f"{path} has no line of {missing} of the {last + 1} steps before: their losses are lost")
        self._write_all()
        self._next_upload = self._said = self._drawn = -math.inf
        self._next_drawing: float | None = None  # A while after the first step: of few there is nothing to see.
        self._step_began: float | None = None
        self._recent: deque[float] = deque(maxlen=_WINDOW)

    def steps_without_line(self) -> list[int]:
        """Steps that were done, but whose lines somebody has removed, or a machine that went down has lost."""
        found = {line["step"] for line in self.lines if "train/loss" in line}
        return [step for step in range(self.last_step + 1) if step not in found]

    def loss_of(self, step: int) -> float:
        """Not a number if its line is lost."""
        losses = (line["train/loss"] for line in self.lines if line["step"] == step and "train/loss" in line)
        return next(losses, math.nan)

    def stop_at_fault(self) -> None:
        if self.fault is not None:
            raise self.fault

    def has_model(self, parameters: int) -> None:
        """The model is there, and its first step is next. Levanter may say so more than once."""
        if self.work.parameters is None:
            tokens = self.work.tokens_per_step
            self.say(f"a model of {parameters:,} parameters, {tokens:,} tokens a step; compiling the first step")
        self.work.parameters = parameters

    def trained(self, step: int, loss: float, learning_rate: float | None) -> None:
        """A step is done. Levanter says so again at the end of a run, and of a run that was resumed at its end with a
        loss of 0: only the first time is kept."""
        now = self._timer()
        if step <= self.last_step:
            return
        seconds = None if self._step_began is None else now - self._step_began
        line: Line = {"step": step, "time": self._clock(), "train/loss": loss, "tokens": self.work.tokens(step)}
        if (flops := self.work.flops(step)) is not None:
            line["flops"] = flops
        if learning_rate is not None:
            line["learning_rate"] = learning_rate
        if seconds is not None and seconds > 0:  # Not of the first step of a process, which compiles.
            self._recent.append(seconds)
            line |= {"seconds": seconds, **self.work.speed(seconds)}
        self.last_step = step
        self._add(line)
        if now - self._said >= self._progress_seconds or step + 1 == self.work.steps:
            self._said = now
            mean = sum(self._recent) / len(self._recent) if self._recent else None
            self.say(progress_line(self.work, step, loss, learning_rate, mean))
        if self._next_drawing is None:
            self._next_drawing = now + _DRAW_SECONDS
        elif now >= self._next_drawing and step + 1 < self.work.steps:
            self._draw_one()

    def reported(self, step: int, metrics: Mapping[str, float]) -> None:
        """Other numbers of a step: of an evaluation, or of a loss with parts."""
        metrics = {name: value for name, value in metrics.items() if not self._has(step, name)}
        if not metrics:
            return
        wrong = [name for name, value in metrics.items() if name.endswith("loss") and not math.isfinite(value)]
        if wrong and self.fault is None:
            self.fault = NonFiniteLoss(f"{wrong[0]} after step {step} is {metrics[wrong[0]]}: {self.advice()}")
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._add({"step": step, "time": self._clock(), **finite})
        if "eval/loss" in finite:
            self.say(f"step {step + 1}/{self.work.steps}: evaluation loss {_evaluation_text(finite)}")
            if self._timer() - self._drawn >= _DRAW_SECONDS:
                self._draw_one()

    def next_step_begins(self) -> None:
        """Evaluations, checkpoints and exports are over: from now on it is the next step that takes time."""
        self._step_began = self._timer()

    def advice(self) -> str:
        """What to try when the loss has gone wrong."""
        last = [line for line in self.lines if "train/loss" in line][-3:]
        before = ", ".join(f"{line['train/loss']:.4g} (step {line['step']})" for line in last) or "none"
        return f"losses before it: {before}. Lower learning_rate, lengthen warmup, or use precision='f32'"

    def flush(self) -> None:
        """Before a checkpoint, and at the end: the lines up to it must be found again."""
        if not self._grows:
            self._write_all()
            return
        try:
            with open_to_append(self.path) as file:  # A checkpoint must not outlive them when the machine goes down.
                os.fsync(file.fileno())
        except (OSError, DataError) as error:
            self.fault = self.fault or error

    def close(self) -> None:
        """At the end: what somebody has removed from a growing file meanwhile, or added to it, is made good."""
        self.stop_at_fault()
        if self._grows:
            self._write_all()

    def _draw_one(self) -> None:
        """Draw a curve for the running training, too. Nothing depends on it: the last one is drawn at the end."""
        is_first, self._drawn = math.isinf(self._drawn), self._timer()
        try:
            self._draw(self.lines)
        except Exception as error:
            self.say(f"the loss curve could not be drawn: {error}")
        ended = self._timer()
        seconds = 0.0 if is_first else ended - self._drawn  # The first one also imports what draws.
        self._next_drawing = ended + max(_DRAW_SECONDS, seconds / _DRAW_SHARE)

    def _has(self, step: int, name: str) -> bool:
        for line in reversed(self.lines):
            if line["step"] < step:
                return False
            if line["step"] == step and name in line:
                return True
        return False

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        if not self._grows:
            self._upload_now_and_then()
            return
        try:
            with open_to_append(self.path) as file:
                file.write(json.dumps(line).encode() + b"\n")
        except (OSError, DataError) as error:
            self.fault = self.fault or error

    def _upload_now_and_then(self) -> None:
        if (began := self._timer()) < self._next_upload:
            return
        try:
            self._write_all()
        except Exception as error:  # Each store has its own.
            self.say(f"{self.path} could not be updated now, and will be later: {error}")
        ended = self._timer()
        self._next_upload = ended + max(_UPLOAD_SECONDS, (ended - began) / _UPLOAD_SHARE)

    def _write_all(self) -> None:
        with into_place(self.path) as file:
            for line in self.lines:
                file.write(json.dumps(line).encode() + b"\n")
