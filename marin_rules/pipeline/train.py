"""Language models trained by Levanter, from tokens to weights: from scratch, or from another model's weights.

    <output>/checkpoints/step-N/   Levanter checkpoints: what a stopped run resumes from
    <output>/hf/step-N/            the model for Hugging Face, with its tokenizer
    <output>/metrics.jsonl         a line a step and a line an evaluation, written while it trains
    <output>/training.json         written last: steps, tokens, losses, baselines, speed, device, model, data
    <output>/report/               loss curve and baselines

Steps are counted from 0, as Levanter does: a run of 400 steps ends with `step-399`. A run that is killed resumes from
its last whole checkpoint, and has the losses that it would have had. Training on conversations (SFT) is this step on
tokens of the format `chat`, where only answers are learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from marin_rules import this_process
from marin_rules.pipeline.core.tokenizer_files import TokenizerFolder, local_tokenizer
from marin_rules.pipeline.levanter_data import levanter_data_config
from marin_rules.pipeline.training.answers import check_answers, what_is_cut
from marin_rules.pipeline.training.baselines import LARGEST_SAMPLE, baselines
from marin_rules.pipeline.training.beginnings import check_same_shape, checkpoint_to_begin_with
from marin_rules.pipeline.training.config import TrainConfig
from marin_rules.pipeline.training.data import TrainingData, check_enough, check_tokenizer, read_data
from marin_rules.pipeline.training.guards import (
    check_initialization,
    check_sequence_length,
    check_stages,
    check_vocabulary,
)
from marin_rules.pipeline.training.hugging_face import (
    check_same_tokens,
    check_says_all,
    model_folder,
    read_hugging_face,
)
from marin_rules.pipeline.training.levanter_config import (
    Places,
    export_settings,
    model_config,
    optimizer_config,
    with_vocabulary,
)
from marin_rules.pipeline.training.metrics import Recorder
from marin_rules.pipeline.training.model import LlamaConfig
from marin_rules.pipeline.training.origin import Origin, begin_or_go_on, content_of
from marin_rules.pipeline.training.results import conclude, digest
from marin_rules.pipeline.training.run import prepare_environment, run
from marin_rules.pipeline.training.token_rows import held_out, training_sample


def train(config: TrainConfig) -> dict[str, Any] | None:
    """Train, or resume training. Returns what `training.json` holds; None in all processes but the first."""
    check_initialization(config.model, config.initialize_from_hf, config.initialize_from_checkpoint_path)
    given = config.hyperparameters
    data = read_data(str(config.data_path))
    with local_tokenizer(data.tokenizer_path) as tokenizer:
        check_tokenizer(tokenizer, data)
        model, vocabulary = _model(config, data, tokenizer)
        length = check_sequence_length(given, model)
        check_enough(data, length)
        check_stages([stage.start_step for stage in data.stages], given.train_batch_size, data.block_size)
        beginning, vocabulary = _beginning(config, model, vocabulary, tokenizer)
        if this_process().rank == 0:
            begin_or_go_on(config.output_path, _origin(config, model, data, beginning))
        prepare_environment(config.running)
        conversations: dict[str, Any] = {}

        def start(places: Places, trainer: Any) -> None:
            from levanter.main.train_lm import TrainLmConfig, main

            if this_process().rank == 0:
                conversations.update(check_answers(data, length))
                for line in what_is_cut(conversations, length):
                    print(line, flush=True)
            main(
                TrainLmConfig(
                    data=with_vocabulary(
                        levanter_data_config(str(config.data_path), tokenizer=tokenizer.path), vocabulary
                    ),
                    trainer=trainer,
                    model=model_config(model, tokenizer.path),
                    train_seq_len=length,
                    optimizer=optimizer_config(given),
                    z_loss_weight=given.z_loss_weight,
                    data_seed=given.data_seed,
                    **beginning,
                    **export_settings(given, places),
                )
            )

        recorder, devices = run(
            config.output_path,
            given,
            config.running,
            sequence_length=length,
            tokenizer=tokenizer.path,
            start=start,
            evaluates_average_too=given.ema_beta is not None,
        )
        if this_process().rank != 0:
            return None
        compared = _compare(config, data, length, tokenizer, recorder)
        return conclude(
            config.output_path,
            given,
            model,
            vocabulary,
            tokenizer.path,
            recorder,
            devices,
            compared=compared,
            more={
                "data": _data_facts(str(config.data_path), data),
                "began_with": _first_weights(beginning),
                "conversations": conversations,
                "tags": list(config.running.tags),
            },
        )


def _model(config: TrainConfig, data: TrainingData, tokenizer: TokenizerFolder) -> tuple[LlamaConfig, int]:
    """The model's shape and how many tokens it has, once it is sure that it fits those of the data."""
    if config.initialize_from_hf is None:
        assert config.model is not None
        return config.model, data.vocabulary
    folder = model_folder(str(config.initialize_from_hf))
    shape, vocabulary = read_hugging_face(folder)
    check_vocabulary(vocabulary, data.vocabulary, folder)
    check_same_tokens(folder, tokenizer, str(config.data_path))
    if config.model is None:
        return shape, vocabulary
    check_same_shape(config.model, shape, folder, in_checkpoint=False)
    check_says_all(folder, config.model)
    return config.model, vocabulary


def _beginning(
    config: TrainConfig, model: LlamaConfig, vocabulary: int, tokenizer: TokenizerFolder
) -> tuple[dict[str, Any], int]:
    """Levanter's words for it, and how many tokens the model has if it begins with that."""
    if config.initialize_from_hf is not None:
        folder = model_folder(str(config.initialize_from_hf))
        return {"initialize_from_hf": folder, "use_hf_model_config": config.model is None}, vocabulary
    if config.initialize_from_checkpoint_path is None:
        return {}, vocabulary
    path = str(config.initialize_from_checkpoint_path)
    checkpoint, vocabulary = checkpoint_to_begin_with(path, model, tokenizer, str(config.data_path))
    return {"initialize_model_from_checkpoint_path": checkpoint}, vocabulary


def _origin(config: TrainConfig, model: LlamaConfig, data: TrainingData, beginning: Mapping[str, Any]) -> Origin:
    origin: dict[str, Any] = {
        "hyperparameters": asdict(config.hyperparameters),
        "model": asdict(model),
        "data": _data_facts(str(config.data_path), data)["sha256"],
    }
    if (folder := _first_weights(beginning)) is not None:
        origin["first_weights"] = content_of(folder, whole=False)
    return origin


def _first_weights(beginning: Mapping[str, Any]) -> str | None:
    """Where they are, unless they are random."""
    return beginning.get("initialize_from_hf") or beginning.get("initialize_model_from_checkpoint_path")


def _compare(
    config: TrainConfig,
    data: TrainingData,
    length: int,
    tokenizer: TokenizerFolder,
    recorder: Recorder,
) -> dict[str, dict[str, float]]:
    """The model and n-gram models on the same held-out tokens. Nothing of conversations, which are learned in part."""
    losses = [line["eval/loss"] for line in recorder.lines if "eval/loss" in line]
    if not losses or data.formats != {"text"}:
        return {}
    from levanter.tokenizers import load_tokenizer

    given = config.hyperparameters
    most = None if given.max_eval_batches is None else given.max_eval_batches * given.train_batch_size
    tokens = held_out(data, length, most, load_tokenizer(tokenizer.path))
    model = {"loss": losses[-1], "bits_per_byte": tokens.bits_per_byte(losses[-1] * tokens.predicted)}
    compared = baselines(training_sample(data, length, LARGEST_SAMPLE), tokens, tokenizer.vocabulary)
    return {"model": model, **compared}


def _data_facts(path: str, data: TrainingData) -> dict[str, Any]:
    """What was trained on, so that it can be recognized."""
    components = {
        name: {"tokens": dict(component.tokens), "sha256": dict(component.sha256)}
        for name, component in data.components.items()
    }
    stages = [{"start_step": stage.start_step, "weights": dict(stage.weights)} for stage in data.stages]
    facts = {"components": components, "stages": stages, "tokenizer_sha256": data.tokenizer_sha256}
    return {"path": path, "sha256": digest(facts), **facts}
