"""`metrics.jsonl`: every step once, whatever was killed, and faults that are not swallowed."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.training.errors import NonFiniteLoss
from marin_rules.pipeline.training.metrics import Recorder, read_metrics
from marin_rules.pipeline.training.report import evaluated_sets, write_loss_curve
from marin_rules.pipeline.training.throughput import Work, duration, progress_line


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def recorder(path: Path, clock: Clock, resumed_from: int | None = None, **settings: Any) -> Recorder:
    work = Work(steps=10, sequences_per_step=4, sequence_length=16, flops_per_sequence=100.0)
    settings = {"say": lambda text: None, "timer": clock, **settings}
    return Recorder(str(path / "metrics.jsonl"), work, resumed_from=resumed_from, clock=clock, **settings)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_lines_are_there_at_once(tmp_path: Path, clock: Clock) -> None:
    made = recorder(tmp_path, clock)
    made.trained(0, 2.5, 0.1)
    assert lines(tmp_path) == [
        {"step": 0, "time": 0.0, "train/loss": 2.5, "tokens": 64, "flops": 400.0, "learning_rate": 0.1}
    ]


def test_the_model_is_announced_before_the_first_step_once(tmp_path: Path, clock: Clock) -> None:
    said: list[str] = []
    made = recorder(tmp_path, clock, say=said.append)
    for _ in range(2):
        made.has_model(1_234_567)
    assert said == ["a model of 1,234,567 parameters, 64 tokens a step; compiling the first step"]
    assert made.work.parameters == 1_234_567


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lambda path, mine: path.symlink_to(mine), "a symbolic link"),
        (lambda path, mine: os.mkfifo(path), "a named pipe"),
    ],
    ids=["link", "pipe"],
)
def test_lines_never_end_up_elsewhere(tmp_path: Path, clock: Clock, plant: Callable[..., None], kind: str) -> None:
    """Somebody exchanges the file while it is written."""
    made, path, mine = recorder(tmp_path, clock), tmp_path / "metrics.jsonl", tmp_path / "mine"
    mine.write_text("mine")
    path.unlink()
    plant(path, mine)
    made.trained(0, 2.5, None)
    with pytest.raises(DataError, match=f"metrics.jsonl is {kind}"):
        made.stop_at_fault()
    assert mine.read_text() == "mine"


def test_a_step_takes_the_time_after_hooks(tmp_path: Path, clock: Clock) -> None:
    made = recorder(tmp_path, clock)
    made.trained(0, 2.5, None)
    clock.now = 100.0  # An evaluation.
    made.next_step_begins()
    clock.now = 102.0
    made.trained(1, 2.4, None)
    assert "seconds" not in lines(tmp_path)[0]
    assert (lines(tmp_path)[1]["seconds"], lines(tmp_path)[1]["tokens_per_second"]) == (2.0, 32.0)


def test_a_clock_that_is_set_back_changes_no_duration(tmp_path: Path, clock: Clock) -> None:
    said: list[str] = []
    timer = Clock()
    made = recorder(tmp_path, clock, timer=timer, progress_seconds=10.0, say=said.append)
    for step in range(3):
        made.trained(step, 2.5, None)
        made.next_step_begins()
        timer.now += 10.0
        clock.now -= 3600.0
    assert [line["time"] for line in lines(tmp_path)] == [0.0, -3600.0, -7200.0]
    assert [line.get("seconds") for line in lines(tmp_path)] == [None, 10.0, 10.0]
    assert len(said) == 3, "and nobody waits for news until the clock has caught up"


def test_the_curve_is_drawn_now_and_then_and_stops_nothing(tmp_path: Path, clock: Clock) -> None:
    drawn: list[int] = []
    said: list[str] = []

    def draw(lines: Any) -> None:
        drawn.append(lines[-1]["step"])
        if len(drawn) > 1:
            raise OSError("No space left on device")

    made = recorder(tmp_path, clock, timer=clock, draw=draw, say=said.append)
    for step in range(4):
        made.reported(step, {"eval/loss": 2.0})
        clock.now += 20.0
    assert drawn == [0, 2], "after 0 and 40 s"
    assert said[-2:] == [
        "the loss curve could not be drawn: No space left on device",
        "step 4/10: evaluation loss 2.0000",
    ]
    made.stop_at_fault()


def test_a_training_without_evaluations_is_drawn_while_it_runs(tmp_path: Path, clock: Clock) -> None:
    """Half a minute after its first step, and for a hundredth of its time: a drawing of 1 s is followed by 100 s
    without one, except for the first, which imports what draws. The last step leaves it to whoever draws the end."""
    drawn: list[tuple[int, float]] = []

    def draw(lines: Any) -> None:
        drawn.append((lines[-1]["step"], clock.now))
        clock.now += 1.0

    made = recorder(tmp_path, clock, timer=clock, draw=draw)
    for step in range(10):
        clock.now += 20.0
        made.trained(step, 2.0, None)
        made.next_step_begins()
    assert clock.now == 202.0
    assert drawn == [(2, 60.0), (4, 101.0)]
    assert {line.get("seconds") for line in lines(tmp_path)} == {None, 20.0}, "a drawing is no part of a step"


def test_what_is_said_twice_is_kept_once(tmp_path: Path, clock: Clock) -> None:
    made = recorder(tmp_path, clock)
    for loss in (2.5, 0.0):
        made.trained(0, loss, None)
        made.reported(0, {"eval/loss": loss + 1})
    assert [line.get("train/loss", line.get("eval/loss")) for line in lines(tmp_path)] == [2.5, 3.5]


def test_several_sets_are_told_apart(tmp_path: Path, clock: Clock) -> None:
    said: list[str] = []
    made = recorder(tmp_path, clock, say=said.append)
    made.reported(0, {"eval/loss": 2.0, "eval/bpb": 1.0, "eval/news/loss": 2.0})
    made.reported(1, {"eval/loss": 3.0, "eval/news/loss": 2.0, "eval/code/loss": 4.0, "eval/macro_loss": 3.0})
    assert said == [
        "step 1/10: evaluation loss 2.0000",
        "step 2/10: evaluation loss 3.0000 (news 2.0000, code 4.0000)",
    ]
    assert evaluated_sets(made.lines[:1]) == {"evaluation": "eval/loss"}
    assert evaluated_sets(made.lines) == {"code": "eval/code/loss", "news": "eval/news/loss"}
    made.reported(
        2, {"eval/loss": 3.0, "eval/news/old/loss": 2.0, "eval/news/new/loss": 4.0, "eval/news/macro_loss": 3}
    )
    assert said[2] == "step 3/10: evaluation loss 3.0000 (news/old 2.0000, news/new 4.0000)"


def test_what_is_done_to_the_file_meanwhile_is_made_good_at_the_end(tmp_path: Path, clock: Clock) -> None:
    made = recorder(tmp_path, clock)
    for step in range(4):
        made.trained(step, 2.5 - step, None)
        if step == 1:
            (tmp_path / "metrics.jsonl").unlink()
        if step == 2:
            with open(tmp_path / "metrics.jsonl", "a") as file:
                file.write('{"step": 2, "train/loss": 9.5}\n')  # Of a process that should have ended.
    made.close()
    assert [(line["step"], line["train/loss"]) for line in lines(tmp_path)] == [(0, 2.5), (1, 1.5), (2, 0.5), (3, -0.5)]


@pytest.mark.parametrize(("resumed_from", "kept"), [(None, []), (1, [0, 1]), (4, [0, 1, 2])])
def test_resuming_cuts_the_file_back(tmp_path: Path, clock: Clock, resumed_from: int | None, kept: list[int]) -> None:
    first = recorder(tmp_path, clock)
    for step in range(3):
        first.trained(step, 2.0, None)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "train/lo')  # Killed while it wrote.
    again = recorder(tmp_path, clock, resumed_from)
    assert [line["step"] for line in lines(tmp_path)] == kept
    again.trained(7, 1.0, None)
    assert [line["step"] for line in lines(tmp_path)] == [*kept, 7]


def test_lines_of_others_are_left_out(tmp_path: Path, clock: Clock) -> None:
    mine = [{"step": 0, "train/loss": 2.5}, {"step": 0, "eval/loss": 2.0}, {"step": 1, "train/loss": 2.4}]
    theirs = [
        {"step": 0, "train/loss": 2.6, "tokens": 64},  # Of an attempt that had lost its lease.
        {"step": 0, "eval/loss": 2.1, "eval/bpb": 1.0},
        {"step": 1, "train/loss": "low"},
        {"step": True, "train/loss": 2.5},
        {"step": -1, "train/loss": 2.5},
        [1, 2.5],
    ]
    both = [mine[0], theirs[0], mine[1], *theirs[1:], mine[2]]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in both))
    assert recorder(tmp_path, clock, 1).steps_without_line() == []
    assert lines(tmp_path) == mine


def test_lines_that_were_lost_are_reported_and_never_made_up(tmp_path: Path, clock: Clock) -> None:
    made = recorder(tmp_path, clock)
    for step in range(3):
        made.trained(step, 2.5, None)
    said: list[str] = []
    again = recorder(tmp_path, clock, 4, say=said.append)
    assert "no line of 2 of the 5 steps" in said[0]
    again.trained(4, 0.0, None)  # As Levanter says of a run that was resumed behind its last step.
    again.trained(5, 2.4, None)
    assert [(line["step"], line["train/loss"]) for line in lines(tmp_path)] == [(0, 2.5), (1, 2.5), (2, 2.5), (5, 2.4)]
    assert again.steps_without_line() == [3, 4]
    assert again.loss_of(2) == 2.5
    assert math.isnan(again.loss_of(4))


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path, clock: Clock) -> None:
    made = recorder(tmp_path, clock)
    made.trained(0, 2.5, None)
    made.stop_at_fault()
    made.reported(0, {"eval/loss": float("nan"), "eval/bpb": 1.0})
    with pytest.raises(NonFiniteLoss, match=r"eval/loss after step 0 is nan.*2.5 \(step 0\)"):
        made.stop_at_fault()
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


def test_a_file_that_cannot_be_written_stops_the_run(tmp_path: Path, clock: Clock) -> None:
    made = recorder(tmp_path, clock)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    made.trained(0, 2.5, None)
    with pytest.raises(OSError, match=r"metrics\.jsonl"):
        made.stop_at_fault()


class Bucket:
    """Somewhere that counts what is written, takes its time, and can be out of reach."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.url = f"memory://{uuid.uuid4().hex}/metrics.jsonl"
        self.uploads, self.seconds, self.is_cut_off = 0, 0.0, False
        put = MemoryFileSystem.put_file

        def put_file(filesystem: MemoryFileSystem, local: str, remote: str, **options: Any) -> None:
            if self.is_cut_off:
                raise TimeoutError("the network is away")
            self.uploads += 1
            clock.now += self.seconds
            put(filesystem, local, remote, **options)

        monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)

    def recorder(self, clock: Clock, say: Callable[[str], None]) -> Recorder:
        work = Work(steps=10, sequences_per_step=4, sequence_length=16)
        return Recorder(self.url, work, resumed_from=None, clock=clock, timer=clock, say=say)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Bucket:
    return Bucket(monkeypatch, clock)


def test_uploads_take_no_more_than_a_hundredth_of_the_time(bucket: Bucket, clock: Clock) -> None:
    made = bucket.recorder(clock, lambda text: None)
    made.trained(0, 2.5, None)
    bucket.uploads, bucket.seconds = 0, 3.0
    for step in range(1, 1001):
        clock.now += 1.0
        made.trained(step, 2.5, None)
    # The first after 60 s, and from then on one in 300 s.
    assert bucket.uploads == 4


def test_an_upload_that_fails_is_made_up_for(bucket: Bucket, clock: Clock) -> None:
    said: list[str] = []
    made = bucket.recorder(clock, said.append)
    bucket.is_cut_off = True
    made.trained(0, 2.5, None)
    made.stop_at_fault()
    assert [line for line in said if "could not" in line] == [
        f"{bucket.url} could not be updated now, and will be later: the network is away"
    ]
    assert read_metrics(bucket.url) == []
    with pytest.raises(TimeoutError):  # What a checkpoint rests on is another matter.
        made.flush()
    bucket.is_cut_off = False
    clock.now = 100.0
    made.trained(1, 2.4, None)
    assert [line["step"] for line in read_metrics(bucket.url)] == [0, 1]


def test_a_set_may_have_any_name(tmp_path: Path) -> None:
    """Between dollars matplotlib would read a formula, and names that begin with an underscore it would leave out."""
    line = {"step": 9, "train/loss": 2.0, "eval/$a_{$/loss": 3.0, "eval/_b/loss": 4.0}
    write_loss_curve(str(tmp_path), [line])
    drawn = (tmp_path / "loss.svg").read_text()
    assert [name for name in ("$a_{$", "_b") if f"{name} -->" in drawn] == ["$a_{$", "_b"]


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    assert read_metrics(str(tmp_path / "none")) == []


def test_progress() -> None:
    work = Work(steps=400, sequences_per_step=16, sequence_length=128, flops_per_sequence=1e9, peak_flops=1e12)
    line = progress_line(work, 119, 3.2141, 0.0029, 0.2)
    assert line == "step 120/400  loss 3.2141  lr 0.0029  10,240 tokens/s  MFU 8.0%  ETA 56 s"
    assert progress_line(work, 399, 3.0, None, 0.2) == "step 400/400  loss 3.0000  10,240 tokens/s  MFU 8.0%"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (45.2, "45 s"), (185, "3 min 5 s"), (7800, "2 h 10 min"), (277200, "3 d 5 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
