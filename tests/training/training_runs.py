"""Small real trainings, run by the training environment's Python: `training_runs.py FOLDER RUN...`.

The text is made of a few words, each of which is mostly followed by the same one, so that a tiny model learns more of
it in some dozen steps than how often each word occurs. A step takes long enough to be killed in the middle of a run.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from marin_rules.pipeline.mixture import lm_varying_mixture_data_config, mixture
from marin_rules.pipeline.tokenize import ChatDatasetFormat, TokenizeConfig, tokenize
from marin_rules.pipeline.train import train
from marin_rules.pipeline.train_dpo import train_dpo
from marin_rules.pipeline.train_tokenizer import TrainTokenizerConfig, train_tokenizer
from marin_rules.pipeline.training import hooks
from marin_rules.pipeline.training.config import DpoConfig, Hyperparameters, Running, TrainConfig, WandbConfig
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.metrics import Recorder
from marin_rules.pipeline.training.model import LlamaConfig
from marin_rules.storage.mirror.install import install_mirror

SCRIPT = Path(__file__)
WORDS = ["war", "peace", "law", "bank", "land", "tax", "army", "navy", "trade", "state", "union", "people"]
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}Q: {{ m['content'] }}\n{% else %}A:{% generation %}"
    " {{ m['content'] }}<|end_of_text|>{% endgeneration %}{% endif %}{% endfor %}"
)
MODEL = LlamaConfig(
    max_seq_len=32,
    hidden_dim=32,
    intermediate_dim=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    gradient_checkpointing=False,
    scan_layers=False,
)
RUNNING = Running(progress_seconds=0)
STEPS = 80


def hyperparameters(**changes: Any) -> Hyperparameters:
    given: dict[str, Any] = {
        "train_batch_size": 32,
        "num_train_steps": STEPS,
        "learning_rate": 1e-2,
        "precision": "f32",
        "warmup": 5,
        "steps_per_eval": 20,
        "max_eval_batches": 1,  # Of one batch, Levanter's bits per byte are those of its sums.
        "steps_per_export": 20,
        "steps_per_hf_export": 1000,
    }
    return Hyperparameters(**{**given, **changes})


def prepare(folder: Path) -> None:
    generator = random.Random(5)

    def text(words: int) -> str:
        chosen = [generator.choice(WORDS)]
        while len(chosen) < words:
            following = WORDS[(WORDS.index(chosen[-1]) * 5 + 3) % len(WORDS)]
            chosen.append(following if generator.random() < 0.9 else generator.choice(WORDS))
        return " ".join(chosen)

    def chat() -> list[dict[str, str]]:
        word = generator.choice(WORDS)
        return [
            {"role": "user", "content": f"say {word} twice"},
            {"role": "assistant", "content": f"{word} {word}"},
        ]

    def pair() -> dict[str, Any]:
        (asked, good), other = chat(), generator.choice(WORDS)
        return {"prompt": [asked], "chosen": [good], "rejected": [{"role": "assistant", "content": f"{other} tax"}]}

    sets: dict[str, list[dict[str, Any]]] = {
        "documents": [{"text": text(60)} for _ in range(300)],
        "held": [{"text": text(60)} for _ in range(40)],
        "chats": [{"messages": chat()} for _ in range(300)],
        "held_chats": [{"messages": chat()} for _ in range(60)],
        "pairs": [pair() for _ in range(100)],
    }
    for name, records in sets.items():
        (folder / name).mkdir(parents=True)
        lines = [json.dumps({"id": f"{name}-{number}", **record}) for number, record in enumerate(records)]
        (folder / name / "part.jsonl").write_text("".join(f"{line}\n" for line in lines))
    tokenizer = str(folder / "tokenizer")
    train_tokenizer(TrainTokenizerConfig(str(folder / "documents"), 288, chat_template=TEMPLATE, output_path=tokenizer))
    for name, one, other, format in (
        ("tokens", "documents", "held", None),
        ("chat_tokens", "chats", "held_chats", ChatDatasetFormat()),
    ):
        settings = {} if format is None else {"format": format}
        paths = [str(folder / one)], [str(folder / other)]
        tokenize(TokenizeConfig(tokenizer, *paths, **settings, output_path=str(folder / name)))


@contextlib.contextmanager
def stopped(error_file: Path) -> Iterator[None]:
    """A training that a signal stops, while this process goes on to other runs."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    except TrainingError as error:
        error_file.write_text(str(error))
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def signal_after(last: int) -> Iterator[None]:
    """A training that gets a stop signal as soon as a step is done."""
    trained = Recorder.trained

    def signalled(recorder: Recorder, step: int, *numbers: Any) -> None:
        trained(recorder, step, *numbers)
        if step == last:
            os.kill(os.getpid(), signal.SIGTERM)

    with mock.patch.object(Recorder, "trained", signalled):
        yield


def base(folder: Path, name: str) -> Any:
    return train(
        TrainConfig(str(folder / "tokens"), MODEL, hyperparameters(), running=RUNNING, output_path=str(folder / name))
    )


def sft(folder: Path, name: str) -> Any:
    """Conversations, with the old text in between, less of it towards the end; both have held-out data of their own."""
    mixed = lm_varying_mixture_data_config(
        {"answers": str(folder / "chat_tokens"), "control": str(folder / "tokens")},
        [(0, {"answers": 0.6, "control": 0.4}), (20, {"answers": 0.8, "control": 0.2})],
        block_size=320,
    )
    mixture(replace(mixed, output_path=str(folder / "mixed")))
    given = hyperparameters(num_train_steps=40, steps_per_eval=10, train_batch_size=16, learning_rate=6e-3)
    begin = str(folder / "whole")
    found = train(
        TrainConfig(str(folder / "mixed"), None, given, begin, running=RUNNING, output_path=str(folder / name))
    )
    (folder / f"{name}.threads").write_text("".join(f"{thread.name}\n" for thread in threading.enumerate()))
    return found


def cut_short(folder: Path, name: str) -> Any:
    """Conversations that sequences of 32 tokens do not hold; then only such ones of which no answer is left."""
    long, short = " ".join(WORDS * 2), "war peace"
    chats = {"some": [(short, short), (short, long), (long, short)] * 2, "none": [(long, short), (long, long)]}
    for kind, pairs in chats.items():
        (folder / f"{kind}_answered").mkdir()
        lines = [
            {"id": str(n), "messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]}
            for n, (ask, answer) in enumerate(pairs)
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{kind}_answered" / "part.jsonl").write_text(text)
        paths = {"train_paths": [str(folder / f"{kind}_answered")], "output_path": str(folder / f"{kind}_tokens")}
        tokenize(TokenizeConfig(str(folder / "tokenizer"), format=ChatDatasetFormat(), **paths))
    given = hyperparameters(num_train_steps=2, train_batch_size=4, warmup=0)
    begin = str(folder / "whole")
    try:
        train(TrainConfig(str(folder / "none_tokens"), None, given, begin, output_path=str(folder / "unanswered")))
    except TrainingError as error:
        (folder / f"{name}.error").write_text(str(error))
    with open(folder / f"{name}.said", "w") as file, contextlib.redirect_stdout(file):
        return train(TrainConfig(str(folder / "some_tokens"), None, given, begin, output_path=str(folder / name)))


def mirrored(folder: Path, name: str) -> None:
    """Tokens and first weights by their names of `mirror://`, in two trainings: from a checkpoint, and an export."""
    install_mirror()  # A worker does that for its step.
    for given in ("tokens", "whole"):
        shutil.copytree(folder / given, Path(os.environ["MARIN_PREFIX"], given))
    few = hyperparameters(num_train_steps=2, warmup=0)
    for kind, begin in (
        ("checkpoint", {"model": MODEL, "initialize_from_checkpoint_path": "mirror://whole"}),
        ("export", {"model": None, "initialize_from_hf": "mirror://whole"}),
    ):
        output = str(folder / f"{name}_{kind}")
        train(TrainConfig("mirror://tokens", hyperparameters=few, **begin, running=RUNNING, output_path=output))


def dpo(folder: Path, name: str) -> Any:
    """Stopped once, after a step that is evaluated, as all are."""
    given = hyperparameters(num_train_steps=20, steps_per_eval=1, train_batch_size=8, learning_rate=2e-3)
    begin, output = str(folder / "sft" / "hf" / "step-39"), str(folder / name)
    config = DpoConfig(str(folder / "pairs"), begin, given, running=RUNNING, output_path=output)
    with stopped(folder / f"{name}.error"), signal_after(9):
        train_dpo(config)
    return train_dpo(config)


def padded(folder: Path, name: str) -> Any:
    """From a model with more tokens than its tokenizer has: stopped once, and trained on from its checkpoint."""
    import numpy
    from safetensors.numpy import load_file, save_file

    model = folder / "padded_model"
    shutil.copytree(folder / "whole" / "hf" / "step-79", model)
    weights = load_file(model / "model.safetensors")
    for table in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[table] = numpy.concatenate([weights[table], numpy.zeros((5, 32), numpy.float32)])
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**settings, "vocab_size": 293}))
    given, data = hyperparameters(num_train_steps=4, warmup=0.5 * 4), str(folder / "tokens")
    config = TrainConfig(data, None, given, str(model), running=RUNNING, output_path=str(folder / name))
    with stopped(folder / f"{name}.error"), signal_after(1):
        train(config)
    train(config)
    begin = {"initialize_from_checkpoint_path": str(folder / name), "output_path": str(folder / f"{name}_on")}
    return train(TrainConfig(data, replace(MODEL, scan_layers=True), given, running=RUNNING, **begin))


def anneal(folder: Path, name: str) -> Any:
    """With all trackers that can be had."""
    given = hyperparameters(num_train_steps=5, learning_rate=1e-4, lr_schedule="linear", min_lr_ratio=0.0, warmup=0)
    data, begin = str(folder / "tokens"), str(folder / "whole")
    return train(
        TrainConfig(
            data,
            MODEL,
            given,
            initialize_from_checkpoint_path=begin,
            running=replace(RUNNING, tensorboard=True, wandb=WandbConfig(mode="offline"), tags=("short",)),
            output_path=str(folder / name),
        )
    )


def remade(folder: Path, name: str) -> Any:
    """The data was made again at its old path after the training had begun."""
    given, data, output = hyperparameters(num_train_steps=2, warmup=0), folder / "remade_tokens", str(folder / name)
    config = TrainConfig(str(data), MODEL, given, running=RUNNING, output_path=output)
    shutil.copytree(folder / "tokens", data)
    train(config)
    shutil.rmtree(data)
    shutil.copytree(folder / "chat_tokens", data)
    try:
        train(config)
    except TrainingError as error:
        (folder / f"{name}.error").write_text(str(error))


def in_pieces(folder: Path, name: str) -> Any:
    """As `averaged`, with a quarter of a batch at a time."""
    given = hyperparameters(num_train_steps=4, steps_per_eval=2, warmup=0, ema_beta=0.9)
    running, output = replace(RUNNING, per_device_parallelism=8), str(folder / name)
    return train(TrainConfig(str(folder / "tokens"), MODEL, given, running=running, output_path=output))


def averaged(folder: Path, name: str) -> Any:
    given = hyperparameters(num_train_steps=4, steps_per_eval=2, warmup=0, ema_beta=0.9)
    return train(TrainConfig(str(folder / "tokens"), MODEL, given, running=RUNNING, output_path=str(folder / name)))


def set_back(folder: Path, name: str) -> Any:
    """The machine's clock goes back an hour whenever somebody looks at it. And somebody has kept a checkpoint."""
    import levanter.checkpoint

    class Clock(datetime.datetime):
        looks = 0

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            cls.looks += 1
            return datetime.datetime(2030, 1, 1) - datetime.timedelta(hours=cls.looks)

    given = hyperparameters(num_train_steps=4, warmup=0, steps_per_eval=1000, steps_per_export=1000)
    running, output = replace(RUNNING, checkpoint_minutes=1e-6), str(folder / name)
    kept = folder / name / "checkpoints" / "step-1.bak"
    kept.mkdir(parents=True)
    kept.joinpath("metadata.json").write_text('{"step": 1, "timestamp": "2029-01-01T00:00:00", "is_temporary": true}')
    fake = SimpleNamespace(**{**vars(datetime), "datetime": Clock})
    with (
        open(folder / f"{name}.said", "w") as said,
        contextlib.redirect_stdout(said),
        mock.patch.object(levanter.checkpoint, "datetime", fake),
    ):
        return train(TrainConfig(str(folder / "tokens"), MODEL, given, running=running, output_path=output))


def stopped_at_its_end(folder: Path, name: str) -> Any:
    """A signal while the last checkpoint, the only one, is written; then it goes on."""
    given = hyperparameters(num_train_steps=3, warmup=0, steps_per_eval=1000, steps_per_export=1000)
    running, output = replace(RUNNING, tensorboard=True), str(folder / name)
    config = TrainConfig(str(folder / "tokens"), MODEL, given, running=running, output_path=output)
    seal = hooks.seal

    def signalled(checkpoint: str) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return seal(checkpoint)

    with mock.patch.object(hooks, "seal", signalled), stopped(folder / f"{name}.error"):
        train(config)
    said = folder / f"{name}.said"
    with open(said, "w") as file, contextlib.redirect_stdout(file):
        return train(config)


def fallback(folder: Path, name: str) -> Any:
    """Stopped behind a checkpoint that is kept for good, which is then damaged."""
    given = hyperparameters(num_train_steps=6, warmup=0, steps_per_eval=1000, steps_per_export=3)
    running, output = replace(RUNNING, checkpoint_minutes=1e-6), folder / name
    config = TrainConfig(str(folder / "tokens"), MODEL, given, running=running, output_path=str(output))
    with stopped(folder / f"{name}.error"), signal_after(3):
        train(config)
    array = max((output / "checkpoints" / "step-3" / "d").iterdir(), key=lambda path: path.stat().st_size)
    array.write_bytes(array.read_bytes()[:-9])
    with open(folder / f"{name}.said", "w") as file, contextlib.redirect_stdout(file):
        return train(config)


def endless(folder: Path, name: str) -> Any:
    given = hyperparameters(num_train_steps=10**6, warmup=0, steps_per_eval=10**6, steps_per_export=10**6)
    return train(TrainConfig(str(folder / "tokens"), MODEL, given, running=RUNNING, output_path=str(folder / name)))


def diverging(folder: Path, name: str) -> Any:
    given = hyperparameters(learning_rate=1e30, max_grad_norm=None, warmup=0)
    return train(TrainConfig(str(folder / "tokens"), MODEL, given, running=RUNNING, output_path=str(folder / name)))


RUNS = {
    "whole": base,
    "sft": sft,
    "cut_short": cut_short,
    "mirrored": mirrored,
    "dpo": dpo,
    "padded": padded,
    "anneal": anneal,
    "remade": remade,
    "averaged": averaged,
    "in_pieces": in_pieces,
    "set_back": set_back,
    "stopped_at_its_end": stopped_at_its_end,
    "fallback": fallback,
    "endless": endless,
    "diverging": diverging,
}

if __name__ == "__main__":
    where = Path(sys.argv[1])
    for run in sys.argv[2:]:
        if run == "prepare":
            prepare(where)
        elif run == "diverging":
            try:
                diverging(where, run)
            except Exception as error:
                (where / f"{run}.error").write_text(f"{type(error).__name__}: {error}")
        else:
            RUNS[run](where, run)
    sys.stdout.flush()
    os._exit(0)  # What a run that has failed leaves behind may abort the interpreter on its way out.
