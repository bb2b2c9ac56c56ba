"""Training steps, one line each, with everything that changes their results in their versions.

    tokens = default_tokenize("sotu", documents, tokenizer)
    model = default_train("sotu-nano", tokens, llama_nano, SimpleTrainConfig(...), validation_sets={"new": held_out})
    chat = default_sft("sotu-chat", chat_tokens, SimpleSFTConfig(..., initialize_from_hf=model))

Bad configs are refused here, while the experiment is planned. Resources, logging, and how often a checkpoint is written
change no path. docs/training.md has the rest.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from experiments.making_steps import Data, input_of, levanter_step, plain, sets_of
from experiments.paloma import default_validation_sets
from experiments.simple_sft_config import SimpleDPOConfig, SimpleSFTConfig
from experiments.simple_train_config import Model, SimpleTrainConfig
from experiments.token_defaults import default_mixture
from marin_rules import ExecutorStep, InputName, MarinRulesError, output_path_of, versioned
from marin_rules.pipeline.core.tokenizer_files import is_hub_name
from marin_rules.pipeline.mixture import MixtureConfig, lm_mixture_data_config, with_validation_sets
from marin_rules.pipeline.tokenize import TextDatasetFormat, TokenizeConfig
from marin_rules.pipeline.train import train
from marin_rules.pipeline.train_dpo import train_dpo
from marin_rules.pipeline.training.beginnings import check_same_shape
from marin_rules.pipeline.training.config import DpoConfig, Running, TrainConfig
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.guards import (
    check_batch,
    check_initialization,
    check_preferences,
    check_sequence_length,
    check_stages,
)
from marin_rules.pipeline.training.model import LlamaConfig

type Tokens = Data | MixtureConfig
"""The output of a tokenize or mixture step, or what `lm_mixture_data_config` makes."""


def default_train(
    name: str,
    tokenized: Tokens,
    model_config: LlamaConfig | None,
    train_config: SimpleTrainConfig,
    tags: Sequence[str] = (),
    *,
    validation_sets: Mapping[str, Data] | None = None,
    use_default_validation: bool = False,
    eval_harness_tasks: Sequence[object] = (),
    description: str | None = None,
) -> ExecutorStep[Any]:
    """A language model. `validation_sets` are tokenized texts that it is evaluated on and never trained on;
    `use_default_validation` adds those of Paloma, which need the hub. `tags` help to find the run, in
    `training.json` and in Weights & Biases."""
    with _refusals_of(name):
        _check_kinds(model_config, train_config)
        if eval_harness_tasks:
            raise TrainingError(
                "eval_harness_tasks are not evaluated while the model is trained: make a step of them, as in"
                " default_eval(model, tasks), which can also take any export (model_step=...)"
            )
        from_hf, from_checkpoint = train_config.initialize_from_hf, train_config.initialize_from_checkpoint_path
        check_initialization(model_config, from_hf, from_checkpoint)
        _check_shapes(model_config, train_config)
        hyperparameters = train_config.hyperparameters()
        _check_length(model_config, train_config)
        sets = default_validation_sets(_tokenizer(tokenized)) if use_default_validation else {}
        sets |= sets_of("validation_sets", validation_sets)
        config = TrainConfig(
            _data(name, tokenized, sets, train_config.train_batch_size),
            versioned(model_config),
            versioned(hyperparameters),
            initialize_from_hf=_hf_place(from_hf),
            initialize_from_checkpoint_path=_place(from_checkpoint),
            running=_running(train_config, tags, tokenized),
        )
        return _step(name, train, config, train_config, description)


def default_sft(
    name: str,
    tokenized: Tokens,
    sft_config: SimpleSFTConfig,
    model_config: LlamaConfig | None = None,
    *,
    validation_sets: Mapping[str, Data] | None = None,
    description: str | None = None,
) -> ExecutorStep[Any]:
    """A model that is trained further to answer: on tokens of the format chat, of which only the answers are
    learned."""
    if sft_config.initialize_from_hf is None and sft_config.initialize_from_checkpoint_path is None:
        raise TrainingError(f"{name}: give a model to begin with, as initialize_from_hf")
    formats = _formats(tokenized)
    if len(formats) == len(_places(tokenized)) and all(isinstance(one, TextDatasetFormat) for one in formats):
        raise TrainingError(
            f"{name}: none of the data has answers to learn, only text: tokenize conversations with ChatDatasetFormat()"
            " or SupervisedDatasetFormat(), or train on text with default_train"
        )
    return default_train(
        name, tokenized, model_config, sft_config, validation_sets=validation_sets, description=description
    )


def default_anneal(
    name: str,
    tokenized: Tokens,
    model_config: LlamaConfig,
    train_config: SimpleTrainConfig,
    *,
    validation_sets: Mapping[str, Data] | None = None,
    description: str | None = None,
) -> ExecutorStep[Any]:
    """The last part of a training, mostly on better data: from a checkpoint's weights, with a learning rate that falls
    linearly to zero, whatever schedule the config has."""
    if train_config.initialize_from_checkpoint_path is None:
        raise TrainingError(f"{name}: give the training to continue, as initialize_from_checkpoint_path")
    falling = replace(train_config, lr_schedule="linear", min_lr_ratio=0.0, decay=None)
    return default_train(
        name, tokenized, model_config, falling, validation_sets=validation_sets, description=description
    )


def default_dpo(
    name: str,
    preferences: Data,
    dpo_config: SimpleDPOConfig,
    *,
    description: str | None = None,
) -> ExecutorStep[Any]:
    """A model that learns which answers are preferred, from documents with prompt, chosen and rejected messages."""
    with _refusals_of(name):
        if not isinstance(dpo_config, SimpleDPOConfig):
            raise TrainingError(f"dpo_config is a {type(dpo_config).__name__}: default_dpo takes a SimpleDPOConfig")
        if dpo_config.initialize_from_hf is None or dpo_config.initialize_from_checkpoint_path is not None:
            raise TrainingError("DPO begins with a Hugging Face folder: give initialize_from_hf, and only that")
        check_preferences(
            dpo_config.beta, dpo_config.validation_fraction, dpo_config.z_loss_weight, dpo_config.ema_beta
        )
        beginning = _hf_place(dpo_config.initialize_from_hf)
        assert beginning is not None
        hyperparameters = dpo_config.hyperparameters()
        _check_length(None, dpo_config)
        config = DpoConfig(
            input_of(preferences),
            beginning,
            versioned(hyperparameters),
            beta=versioned(dpo_config.beta),
            validation_fraction=versioned(dpo_config.validation_fraction),
            chat_template=versioned(dpo_config.chat_template),
            running=dpo_config.running(),
        )
        return _step(name, train_dpo, config, dpo_config, description)


@contextmanager
def _refusals_of(name: str) -> Iterator[None]:
    """Say which training is refused: an experiment may have many."""
    try:
        yield
    except MarinRulesError as error:
        raise type(error)(f"{name}: {error}") from None


def _check_shapes(model_config: LlamaConfig | None, train_config: SimpleTrainConfig) -> None:
    """A model begins with another of its own shape, as far as the plan knows both."""
    for beginning, in_checkpoint in (
        (train_config.initialize_from_hf, False),
        (train_config.initialize_from_checkpoint_path, True),
    ):
        step, other = _step_of(beginning), _known_shape(beginning)
        if model_config is not None and step is not None and other is not None:
            check_same_shape(model_config, other, step.name, in_checkpoint=in_checkpoint)


def _check_length(model_config: LlamaConfig | None, train_config: SimpleTrainConfig) -> None:
    """Sequences are no longer than the model's, as far as the plan knows them."""
    shape = model_config or _known_shape(train_config.initialize_from_hf)
    if shape is not None:
        check_sequence_length(train_config.hyperparameters(), shape)


def _known_shape(beginning: object) -> LlamaConfig | None:
    """The shape of a model that a step of the plan makes."""
    step = _step_of(beginning)
    if step is None or not isinstance(step.config, TrainConfig | DpoConfig):
        return None
    if isinstance(step.config, TrainConfig) and (shape := plain(step.config.model)) is not None:
        return shape
    shape = _known_shape(step.config.initialize_from_hf)
    # A Hugging Face folder does not say how the layers were compiled.
    return None if shape is None else replace(shape, scan_layers=LlamaConfig.scan_layers)


def _step_of(place: object) -> ExecutorStep[Any] | None:
    step = place.step if isinstance(place, InputName) else place
    return step if isinstance(step, ExecutorStep) else None


def _mixture(tokenized: Tokens) -> MixtureConfig | None:
    """The mixture, if it is one, with plain values; also that of a step."""
    step = _step_of(tokenized)
    config = tokenized if step is None else step.config
    if not isinstance(config, MixtureConfig):
        return None
    return replace(config, **{field.name: plain(getattr(config, field.name)) for field in fields(config)})


def _places(tokenized: Tokens) -> list[object]:
    """Where the tokens are, of each component of a mixture."""
    mixed = _mixture(tokenized)
    return [tokenized] if mixed is None else list(mixed.components.values())


def _token_steps(tokenized: Tokens) -> list[ExecutorStep[Any]]:
    """The steps that make the tokens, as far as the plan knows them."""
    return [step for place in _places(tokenized) if (step := _step_of(place)) is not None]


def _formats(tokenized: Tokens) -> list[object]:
    """How what the tokens are made of is read, as far as the plan knows it."""
    configs = [step.config for step in _token_steps(tokenized)]
    return [plain(config.format) for config in configs if isinstance(config, TokenizeConfig)]


def _data(name: str, tokenized: Tokens, validation_sets: Mapping[str, Data], train_batch_size: int) -> str | InputName:
    mixed = _mixture(tokenized)
    if mixed is None:
        assert not isinstance(tokenized, MixtureConfig)
        mixed = lm_mixture_data_config({"train": tokenized}, {"train": 1.0})
    check_stages([stage.start_step for stage in mixed.stages], train_batch_size, mixed.block_size)
    if not validation_sets and not isinstance(tokenized, MixtureConfig):
        return input_of(tokenized)
    return input_of(default_mixture(name, with_validation_sets(mixed, validation_sets)))


def _running(train_config: SimpleTrainConfig, tags: Sequence[str], tokenized: Tokens) -> Running:
    """For conversations, a batch in pieces gives a different result, because each piece weighs the same, however many
    answers it has. For text all pieces have the same number of tokens. (What is at a plain path is text, unless the
    config is for SFT.)"""
    running = replace(train_config.running(), tags=tuple(tags))
    is_text = all(isinstance(one, TextDatasetFormat) for one in _formats(tokenized)) and not isinstance(
        train_config, SimpleSFTConfig
    )
    if is_text or running.per_device_parallelism == -1:
        return running
    return replace(running, per_device_parallelism=versioned(running.per_device_parallelism))


def _tokenizer(tokenized: Tokens) -> Data:
    """Whatever the data was tokenized with, as far as a plan knows it."""
    for step in _token_steps(tokenized):
        if isinstance(step.config, TokenizeConfig):
            return plain(step.config.tokenizer)
    raise TrainingError(
        "use_default_validation needs the tokenizer, and none of the data is a step of default_tokenize: give"
        " validation_sets=default_validation_sets(tokenizer)"
    )


def _place(model: Model | None) -> str | InputName | None:
    """The output of a step, or a path that is part of the version: starting from other weights makes another model."""
    if isinstance(model, ExecutorStep):
        return output_path_of(model)
    return versioned(model) if isinstance(model, str) else model


def _hf_place(model: Model | None) -> str | InputName | None:
    """The same of a Hugging Face folder. A name of the hub is none: what it means may change."""
    if isinstance(model, str) and is_hub_name(model) and not os.path.isdir(model):
        raise TrainingError(
            f"initialize_from_hf {model!r} is no folder: a model of the Hugging Face hub is downloaded by a step of its"
            " own (download_model_step in experiments/models.py), which is given here in place of its name"
        )
    return _place(model)


def _check_kinds(model_config: object, train_config: object) -> None:
    """Two configs are easily given in the wrong order."""
    kinds = ((model_config, LlamaConfig | None, "model_config"), (train_config, SimpleTrainConfig, "train_config"))
    for given, kind, what in kinds:
        if not isinstance(given, kind):
            raise TrainingError(
                f"{what} is a {type(given).__name__}: after name and tokens, default_train takes a LlamaConfig"
                " (or None) and then a SimpleTrainConfig"
            )


def _step(
    name: str,
    function: Callable[[Any], Any],
    config: TrainConfig | DpoConfig,
    train_config: SimpleTrainConfig,
    description: str | None,
) -> ExecutorStep[Any]:
    # On CPUs each machine is a device.
    devices = train_config.resources.chip_count() or train_config.resources.replicas
    check_batch(train_config.train_batch_size, devices, train_config.per_device_parallelism)
    return levanter_step(f"checkpoints/{name}", function, config, train_config.resources, description=description)
