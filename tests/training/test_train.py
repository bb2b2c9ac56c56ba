"""Real trainings of a tiny Llama: it learns, and it can be trained on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.made_once import made_once
from training.conftest import run_trainings
from training.outputs import facts, metrics
from training.training_runs import STEPS

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def runs(trained: Path, training_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`whole`, and what is trained on from it: in a folder where nobody else writes."""

    def make(folder: Path) -> None:
        shutil.copytree(trained, folder, dirs_exist_ok=True)
        run_trainings(
            training_python,
            folder,
            [
                *(
                    "sft",
                    "cut_short",
                    "mirrored",
                    "dpo",
                    "padded",
                    "anneal",
                    "remade",
                    "averaged",
                    "in_pieces",
                    "set_back",
                ),
                *("stopped_at_its_end", "fallback", "diverging"),
            ],
        )

    return made_once(tmp_path_factory, "trained-on", make)


def test_the_model_learns_more_than_frequencies(runs: Path) -> None:
    found = facts(runs / "whole")
    bits = {name: values["bits_per_byte"] for name, values in found["compared"].items()}
    assert bits["trigram"] < bits["bigram"] < bits["unigram"]
    assert bits["model"] < bits["unigram"]
    assert bits["model"] == pytest.approx(found["evaluation"]["eval/bpb"], rel=1e-4)
    assert (found["steps"], found["tokens"]) == (STEPS, STEPS * 32 * 32)
    assert found["parameters"] == 288 * 32 * 2 + 2 * (32 * 48 * 2 + 3 * 32 * 64 + 64) + 32
    assert [step for step, _ in metrics(runs / "whole")] == list(range(STEPS))
    assert [step for step, _ in metrics(runs / "whole", "eval/loss")] == [19, 39, 59, 79]


def test_the_export_stands_alone(runs: Path) -> None:
    export = runs / "whole" / "hf" / f"step-{STEPS - 1}"
    assert json.loads((export / "config.json").read_text())["model_type"] == "llama"
    original = runs / "tokenizer" / "tokenizer.json"
    assert (export / "tokenizer.json").read_bytes() == original.read_bytes()


def test_the_report_shows_the_run(runs: Path) -> None:
    assert "<svg" in (runs / "whole" / "report" / "loss.svg").read_text()
    table = (runs / "whole" / "report" / "baselines.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in table] == ["model", "model", "unigram", "bigram", "trigram"]


def test_conversations_are_learned_and_the_old_text_is_not_forgotten(runs: Path) -> None:
    answers = dict(metrics(runs / "sft", "eval/answers/loss"))
    control = dict(metrics(runs / "sft", "eval/control/loss"))
    before = metrics(runs / "whole", "eval/loss")[-1][1]
    assert list(answers) == list(control) == [9, 19, 29, 39]
    assert answers[39] < answers[9]
    assert answers[39] < 0.8
    assert control[39] < before + 0.3
    assert facts(runs / "sft")["model"]["config"]["hidden_dim"] == 32
    assert facts(runs / "sft")["began_with"] == f"{runs}/whole/hf/step-79"
    assert facts(runs / "whole")["began_with"] is None


def test_conversations_that_do_not_fit_are_counted_and_refused_if_no_answer_is_left(runs: Path) -> None:
    """Levanter trains on what is left of them; on nothing, with a loss of 0."""
    assert facts(runs / "cut_short")["conversations"] == {
        "data": {"train": {"conversations": 6, "cut": 4, "unanswered": 2}}
    }
    assert (
        "data (train): conversations that lose their ends, as sequences have 32 tokens: 4 of 6; without any answer"
        " left: 2\n"
    ) in (runs / "cut_short.said").read_text()
    assert "none_tokens/train has no answer in the first 32 tokens of any" in (runs / "cut_short.error").read_text()
    assert not (runs / "unanswered" / "training.json").exists()
    fitting = {"train": (300, 0), "validation": (60, 0)}
    sft = facts(runs / "sft")["conversations"]["answers"]
    assert {split: (one["conversations"], one["cut"]) for split, one in sft.items()} == fitting


def test_tokens_and_first_weights_may_be_mirrored(runs: Path) -> None:
    """Levanter reads them without fsspec."""
    checkpoint, export = (metrics(runs / f"mirrored_{kind}") for kind in ("checkpoint", "export"))
    assert checkpoint[0][1] == pytest.approx(export[0][1], rel=1e-5), "the same weights"
    assert checkpoint[0][1] < metrics(runs / "whole")[0][1] / 2, "which have learned something"
    assert facts(runs / "mirrored_export")["began_with"].endswith("/marin/whole/hf/step-79")


def test_a_model_with_more_tokens_than_its_tokenizer_is_resumed_and_trained_on(runs: Path) -> None:
    """As published models have, that were padded; Levanter takes the size of the model from the tokenizer."""
    assert "was stopped by SIGTERM" in (runs / "padded.error").read_text()
    assert [step for step, _ in metrics(runs / "padded")] == [0, 1, 2, 3]
    rates = [rate for _, rate in metrics(runs / "padded", "learning_rate")]
    assert rates[:3] == pytest.approx([0, 5e-3, 1e-2]), "half of four steps are a warm-up of 2.0 steps"
    for name in ("padded", "padded_on"):
        found = facts(runs / name)
        assert found["model"]["vocabulary"] == 293
        assert json.loads((runs / name / found["export"] / "config.json").read_text())["vocab_size"] == 293
    assert facts(runs / "whole")["model"]["vocabulary"] == 288


def test_no_thread_fetches_batches_after_the_last_step(runs: Path) -> None:
    threads = (runs / "sft.threads").read_text()
    assert "MainThread" in threads
    assert "_fill_queue" not in threads


def test_preferences_are_learned(runs: Path) -> None:
    losses = dict(metrics(runs / "dpo"))
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)  # Policy and reference are the same: log 2.
    assert losses[19] < 0.6
    found = facts(runs / "dpo")
    assert found["began_with"] == f"{runs}/sft/hf/step-39"
    assert found["preferences"]["written"] == 100
    assert found["parameters"] == facts(runs / "whole")["parameters"], "without those of the reference"
    assert found["tokens"] == 20 * 8 * 2 * 32, "a pair is two sequences"


def test_what_is_reported_of_a_step_after_its_loss_is_not_lost_by_a_stop_signal(runs: Path) -> None:
    assert "was stopped by SIGTERM" in (runs / "dpo.error").read_text()
    for name in ("train/loss", "train/dpo_loss", "eval/preferences/loss"):
        assert [step for step, _ in metrics(runs / "dpo", name)] == list(range(20)), name


def test_annealing_begins_with_the_weights_of_the_checkpoint(runs: Path) -> None:
    first = metrics(runs / "anneal")[0][1]
    trained = metrics(runs / "whole")
    assert abs(first - trained[-1][1]) < 0.3 < trained[0][1] - first
    rates = [rate for _, rate in metrics(runs / "anneal", "learning_rate")]
    assert rates == sorted(rates, reverse=True)


READ_BOARD = """
import json, struct, sys
from pathlib import Path
from tensorboardX.proto.event_pb2 import Event

losses = []
for events in sorted(Path("tensorboard", "run").glob("events.*")):  # Of one attempt after another.
    data = events.read_bytes()
    while data:  # Each record: length, checksum of it, content, checksum of that.
        (length,) = struct.unpack("<Q", data[:8])
        event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
        losses += [(event.step, value.simple_value) for value in event.summary.value if value.tag == "train/loss"]
json.dump({"losses": losses}, sys.stdout)
"""
READ_WANDB = """
import json, struct, sys
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record

(file,) = Path("wandb").glob("offline-run-*/run-*.wandb")
data, records, content, position = file.read_bytes(), [], b"", 7
while position + 7 <= len(data):  # A log as LevelDB's: blocks of 32 KiB, and records that may be cut at their ends.
    if (left := 32768 - position % 32768) < 7:
        position += left
        continue
    length, part = struct.unpack("<HB", data[position + 4 : position + 7])
    content, position = content + data[position + 7 : position + 7 + length], position + 7 + length
    if part in (1, 4):  # Whole, or the last part.
        records, content = [*records, Record.FromString(content)], b""
(run,) = [record.run for record in records if record.HasField("run")]
logged = [
    {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
    for record in records
    if record.HasField("history")
]
losses = [(one["_step"], one["train/loss"]) for one in logged if "train/loss" in one]
json.dump({"losses": losses, "id": run.run_id, "tags": list(run.tags)}, sys.stdout)
"""
"""What TensorBoard and Weights & Biases would show, read from their files."""


def shown(python: Path, script: str, output: Path) -> Any:
    done = subprocess.run([str(python), "-c", script], cwd=output, env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_trackers_show_the_losses_of_the_metrics(runs: Path, training_python: Path) -> None:
    output = runs / "anneal"
    for script in (READ_BOARD, READ_WANDB):
        found = shown(training_python, script, output)
        assert dict(found["losses"]) == pytest.approx(dict(metrics(output)), rel=1e-6)
    assert found["id"] == "anneal", "a run of its own, known by the name of the output"
    assert "short" in found["tags"]


def test_one_that_is_resumed_at_its_end_shows_the_loss_that_it_had(runs: Path, training_python: Path) -> None:
    output = runs / "stopped_at_its_end"
    found = shown(training_python, READ_BOARD, output)
    assert found["losses"][-1] == pytest.approx(metrics(output)[-1], rel=1e-6)


def test_a_checkpoint_of_other_data_is_not_resumed_from(runs: Path) -> None:
    assert "began with something else: data changed" in (runs / "remade.error").read_text()
    old = facts(runs / "whole")["data"]["components"]["data"]["sha256"]["train"]
    assert facts(runs / "remade")["data"]["components"]["data"]["sha256"]["train"] == old, "it is left as it was"


def test_what_is_reported_of_an_average_is_of_what_is_exported(runs: Path) -> None:
    found = facts(runs / "averaged")
    evaluated, of_step = (metrics(runs / "averaged", name) for name in ("eval/loss", "eval_of_step/loss"))
    assert [step for step, _ in evaluated] == [step for step, _ in of_step] == [1, 3]
    assert evaluated[-1][1] > of_step[-1][1] + 0.1, "the average lags behind"
    assert found["compared"]["model"]["loss"] == found["evaluation"]["eval/loss"] == evaluated[-1][1]
    assert not any("ema" in name for name in found["evaluation"])


def test_a_batch_in_pieces_evaluates_as_much(runs: Path) -> None:
    whole, pieces = facts(runs / "averaged"), facts(runs / "in_pieces")
    assert pieces["evaluation"]["eval/loss"] == pytest.approx(whole["evaluation"]["eval/loss"], abs=1e-4)
    assert pieces["compared"]["unigram"] == whole["compared"]["unigram"]
    assert pieces["train_loss"] == pytest.approx(whole["train_loss"], abs=1e-4)


def test_checkpoints_are_written_though_the_clock_is_set_back(runs: Path) -> None:
    said = (runs / "set_back.said").read_text()
    assert re.findall(r"step (\d)/4: checkpoint of", said) == ["2", "3", "4"]


def test_the_model_is_announced_before_its_first_step_is_compiled(runs: Path) -> None:
    model = json.loads((runs / "set_back" / "training.json").read_text())
    said = (runs / "set_back.said").read_text().splitlines()
    announced = [number for number, line in enumerate(said) if line.startswith("a model of ")]
    first_step = next(number for number, line in enumerate(said) if line.startswith("step 1/4 "))
    assert [said[number].split()[3] for number in announced] == [f"{model['parameters']:,}"]
    assert announced[0] < first_step


def test_a_signal_does_not_cut_the_last_checkpoint_short(runs: Path) -> None:
    assert "was stopped by SIGTERM" in (runs / "stopped_at_its_end.error").read_text()
    assert "resumes after step 3\n" in (runs / "stopped_at_its_end.said").read_text()


def test_behind_a_damaged_checkpoint_that_is_kept_for_good_is_the_last_one_before_it(runs: Path) -> None:
    """And not the one that was kept before, which may be thousands of steps back."""
    said = (runs / "fallback.said").read_text()
    assert re.findall(r"step-(\d) cannot be used: d/\w+ is damaged", said) == ["3"]
    assert "resumes after step 3\n" in said
    assert [step for step, _ in metrics(runs / "fallback")] == list(range(6))
    assert sorted(path.name for path in (runs / "fallback" / "checkpoints").glob("step-*")) == ["step-3", "step-5"]


def test_a_checkpoint_that_somebody_has_copied_is_not_removed(runs: Path) -> None:
    assert sorted(path.name for path in (runs / "set_back" / "checkpoints").glob("step-*")) == ["step-1.bak", "step-3"]


def test_a_loss_that_is_not_finite_stops_the_run(runs: Path) -> None:
    message = (runs / "diverging.error").read_text()
    assert message.startswith("NonFiniteLoss: the loss of step 1 is ")
    assert "Lower learning_rate" in message
    assert not (runs / "diverging" / "training.json").exists()
