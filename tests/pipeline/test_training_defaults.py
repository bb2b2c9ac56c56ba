"""The helpers of `experiments/training_defaults.py`: what changes the model changes the path, and nothing else does."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin_rules import ExecutorStep, ResourceConfig, compute_output_path, output_path_of
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.mixture import lm_mixture_data_config, lm_varying_mixture_data_config
from marin_rules.pipeline.tokenize import ChatDatasetFormat, SupervisedDatasetFormat
from marin_rules.pipeline.training.config import WandbConfig
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.model import LlamaConfig

REPOSITORY = Path(__file__).parents[2]
MODEL = LlamaConfig(max_seq_len=64, hidden_dim=32, num_heads=4, num_kv_heads=2)


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    import experiments.defaults
    import experiments.training_defaults

    assert "levanter" not in sys.modules
    helpers = {name: getattr(experiments.defaults, name) for name in experiments.defaults.__all__}
    return SimpleNamespace(**{**vars(experiments.training_defaults), **helpers})


def path(step: ExecutorStep) -> str:
    return str(compute_output_path(step.name, step.config, prefix="p"))


def config(training: Any, **changes: Any) -> Any:
    plain = training.SimpleTrainConfig(ResourceConfig.with_cpu(), 8, 100, 1e-3)
    return replace(plain, **changes)


CHANGES_THE_MODEL: dict[str, Any] = {
    "train_batch_size": 16,
    "num_train_steps": 101,
    "learning_rate": 2e-3,
    "train_seq_len": 32,
    "weight_decay": 0.0,
    "beta1": 0.8,
    "beta2": 0.99,
    "epsilon": 1e-7,
    "max_grad_norm": None,
    "warmup": 10,
    "decay": 10,
    "lr_schedule": "linear",
    "min_lr_ratio": 0.0,
    "z_loss_weight": 1e-4,
    "ema_beta": 0.9,
    "precision": "f32",
    "seed": 1,
    "data_seed": 0,
    "steps_per_eval": 10,
    "max_eval_batches": 2,
    "steps_per_export": 50,
    "steps_per_hf_export": 10_000,
    "initialize_from_hf": "gs://other",
    "initialize_from_checkpoint_path": "gs://other",
}
"""Or what is reported of it: each field of `SimpleTrainConfig` with another value."""

HOW_IT_IS_RUN: dict[str, Any] = {
    "resources": ResourceConfig.with_gpu("H100", count=8),
    "per_device_parallelism": 2,
    "checkpoint_minutes": 1.0,
    "wandb": WandbConfig(project="other"),
    "tensorboard": True,
}

SHAPES: dict[str, Any] = {
    "max_seq_len": 128,
    "hidden_dim": 64,
    "intermediate_dim": 64,
    "num_layers": 3,
    "num_heads": 2,
    "num_kv_heads": 4,
    "head_dim": 8,
    "tie_word_embeddings": True,
    "rope": "llama3",
    "rope_theta": 1e5,
    "initializer_range": 0.1,
    "layer_norm_epsilon": 1e-6,
    "gradient_checkpointing": False,
    "scan_layers": False,
}


def paths_with(training: Any, change: dict[str, Any]) -> tuple[str, str]:
    """Of a training as it is, and with a change."""
    one, other = (
        path(training.default_train("x", "gs://tokens", MODEL, given))
        for given in (config(training), config(training, **change))
    )
    return one, other


def test_each_field_of_a_training_is_known_to_change_its_model_or_not_to(training: Any) -> None:
    assert {field.name for field in fields(training.SimpleTrainConfig)} == {*CHANGES_THE_MODEL, *HOW_IT_IS_RUN}
    refused = {"use_qk_norm", "hybrid_norm", "input_embedding_norm"}
    assert {field.name for field in fields(LlamaConfig)} == {*SHAPES, *refused}


@pytest.mark.parametrize("field", CHANGES_THE_MODEL)
def test_what_changes_the_model_changes_the_path(training: Any, field: str) -> None:
    one, other = paths_with(training, {field: CHANGES_THE_MODEL[field]})
    assert one != other


@pytest.mark.parametrize("field", SHAPES)
def test_so_does_its_shape(training: Any, field: str) -> None:
    shape = replace(MODEL, **{field: SHAPES[field]})
    one, other = (path(training.default_train("x", "gs://t", model, config(training))) for model in (MODEL, shape))
    assert one != other


@pytest.mark.parametrize("of", ["tokens", "mixture", "validation", "preferences"])
def test_so_does_data_at_a_plain_path(training: Any, of: str) -> None:
    """A path is no step, so nothing else in the version says which data it is."""

    def made(place: str) -> ExecutorStep:
        if of == "preferences":
            given = training.SimpleDPOConfig(ResourceConfig.with_cpu(), 8, 100, 1e-3, initialize_from_hf="gs://model")
            return training.default_dpo("x", place, given)
        tokens = {"mixture": lm_mixture_data_config({"a": place}, {"a": 1.0})}.get(of, place)
        validation = {"held_out": place} if of == "validation" else None
        tokens = "gs://tokens" if of == "validation" else tokens
        return training.default_train("x", tokens, MODEL, config(training), validation_sets=validation)

    assert path(made("gs://one")) != path(made("gs://other"))


@pytest.mark.parametrize("field", HOW_IT_IS_RUN)
def test_how_it_is_run_does_not(training: Any, field: str) -> None:
    one, other = paths_with(training, {field: HOW_IT_IS_RUN[field]})
    assert one == other


@pytest.mark.parametrize("of", ["tokens", "mixture", "output of a mixture", "sft of a path", "text"])
def test_a_batch_in_pieces_is_another_result_of_conversations(training: Any, of: str) -> None:
    """Each piece weighs the same, however many tokens of answers it has."""
    format = None if of == "text" else ChatDatasetFormat("{% generation %}{% endgeneration %}")
    tokens = training.default_tokenize("t", "gs://chats", "gs://tokenizer", format)
    if "mixture" in of:
        tokens = training.default_mixture("m", lm_mixture_data_config({"a": tokens}, {"a": 1.0}))
    if of == "output of a mixture":
        tokens = output_path_of(tokens)

    def made(pieces: int) -> ExecutorStep:
        if of == "sft of a path":
            given = training.SimpleSFTConfig(ResourceConfig.with_cpu(), 8, 100, 1e-3, initialize_from_hf="gs://model")
            return training.default_sft("x", "gs://chats", replace(given, per_device_parallelism=pieces))
        return training.default_train("x", tokens, MODEL, config(training, per_device_parallelism=pieces))

    assert (len({path(made(pieces)) for pieces in (-1, 2, 4)}) == 3) == (of != "text")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_seq_len": 65}, "longer than the model's"),
        ({"resources": ResourceConfig.with_gpu("H100", count=3)}, "cannot be divided over 3 devices"),
        ({"resources": ResourceConfig.with_cpu(replicas=3)}, "cannot be divided over 3 devices"),
        ({"per_device_parallelism": 3}, "cannot be divided over 1 device, 3 at a time"),
        ({"initialize_from_hf": "a", "initialize_from_checkpoint_path": "b"}, "two starting points"),
    ],
    ids=["length", "batch", "machines", "parallelism", "beginnings"],
)
def test_bad_plans_are_refused(training: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        training.default_train("x", "gs://tokens", MODEL, config(training, **change))


def test_what_is_refused_names_the_training(training: Any) -> None:
    """An experiment has many, and most settings are checked by what knows no names."""
    for change in ({"learning_rate": -1}, {"train_seq_len": 65}, {"per_device_parallelism": 3}):
        with pytest.raises(TrainingError, match=r"^large: "):
            training.default_train("large", "gs://tokens", MODEL, config(training, **change))
    dpo_config = training.SimpleDPOConfig(ResourceConfig.with_cpu(), 8, 100, -1, initialize_from_hf="gs://model")
    with pytest.raises(TrainingError, match=r"^large: learning_rate -1"):
        training.default_dpo("large", "gs://pairs", dpo_config)
    with pytest.raises(TrainingError, match=r"^large: dpo_config is a SimpleTrainConfig: .* takes a SimpleDPOConfig"):
        training.default_dpo("large", "gs://pairs", config(training, initialize_from_hf="gs://model"))


def test_a_sequence_longer_than_that_of_the_model_to_begin_with_is_refused(training: Any) -> None:
    """Whatever way the plan has to go to find its shape."""
    settings = (ResourceConfig.with_cpu(), 8, 100, 1e-3)
    first = training.default_train("first", "gs://tokens", MODEL, config(training))
    chat = training.default_sft("chat", "gs://chats", training.SimpleSFTConfig(*settings, initialize_from_hf=first))
    for beginning in (first, chat / "hf/step-99"):
        longer = {"initialize_from_hf": beginning, "train_seq_len": 65}
        with pytest.raises(TrainingError, match="train_seq_len 65 is longer than the model's max_seq_len 64"):
            training.default_sft("x", "gs://chats", training.SimpleSFTConfig(*settings, **longer))
        with pytest.raises(TrainingError, match="train_seq_len 65 is longer"):
            training.default_dpo("x", "gs://pairs", training.SimpleDPOConfig(*settings, **longer))
    loop = config(training, initialize_from_checkpoint_path=chat)
    training.default_anneal("x", "gs://tokens", MODEL, loop)
    with pytest.raises(TrainingError, match="the model in checkpoints/chat has scan_layers True"):
        training.default_anneal("x", "gs://tokens", replace(MODEL, scan_layers=False), loop)


def test_a_name_of_the_hub_is_no_model_to_begin_with(
    training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = config(training, initialize_from_hf="meta-llama/Llama-3.2-1B")
    with pytest.raises(TrainingError, match=r"'meta-llama/Llama-3\.2-1B' is no folder: .*download_model_step"):
        training.default_train("x", "gs://tokens", None, given)
    (tmp_path / "meta-llama" / "Llama-3.2-1B").mkdir(parents=True)
    training.default_train("x", "gs://tokens", None, given)


def test_configs_in_the_wrong_order_are_refused(training: Any) -> None:
    with pytest.raises(TrainingError, match=r"m: model_config is a SimpleTrainConfig: .* a LlamaConfig .* and then"):
        training.default_train("m", "gs://tokens", config(training), MODEL)


def test_a_validation_set_without_a_name_is_refused(training: Any) -> None:
    with pytest.raises(DataError, match="validation_sets: give each set a name"):
        training.default_train("x", "gs://tokens", MODEL, config(training), validation_sets="gs://held-out")


@pytest.mark.parametrize(
    ("resources", "group"),
    [
        (ResourceConfig.with_cpu(), "train"),
        (ResourceConfig.with_gpu("H100", count=8), "train-gpu"),
        (ResourceConfig.with_tpu("v5p-8"), "train-tpu"),
    ],
    ids=["CPU", "GPU", "TPU"],
)
def test_the_environment_has_jax_for_the_device(training: Any, resources: ResourceConfig, group: str) -> None:
    step = training.default_train("x", "gs://tokens", MODEL, config(training, resources=resources))
    assert step.fn.pip_dependency_groups == (group,)
    pins, plain = (
        set(re.findall(r"^[\w-]+==\S+", (REPOSITORY / "requirements" / f"{name}.txt").read_text(), re.MULTILINE))
        for name in (group, "train")
    )
    assert plain <= pins, "otherwise they are the same"


def test_a_model_begins_with_one_of_its_shape(training: Any) -> None:
    first = training.default_train("first", "gs://tokens", MODEL, config(training))
    again = config(training, initialize_from_checkpoint_path=first)
    training.default_anneal("x", "gs://tokens", replace(MODEL, max_seq_len=128, rope_theta=1e6), again)
    for beginning in (again, config(training, initialize_from_hf=first)):
        with pytest.raises(TrainingError, match=r"the model in checkpoints/first has num_layers 32, and .* 3:"):
            training.default_train("x", "gs://tokens", replace(MODEL, num_layers=3), beginning)
    with pytest.raises(TrainingError, match="has scan_layers True"):
        training.default_train("x", "gs://tokens", replace(MODEL, scan_layers=False), again)
    with pytest.raises(TrainingError, match="needs scan_layers=True"):
        training.default_sft(
            "x",
            "gs://tokens",
            training.SimpleSFTConfig(ResourceConfig.with_cpu(), 8, 100, 1e-3, initialize_from_hf=first),
            replace(MODEL, scan_layers=False),
        )


def test_sft_on_nothing_but_text_is_refused(training: Any) -> None:
    """It would learn all of it, questions included. Text beside conversations is fine, and a path tells nothing."""
    settings = training.SimpleSFTConfig(ResourceConfig.with_cpu(), 8, 100, 1e-3, initialize_from_hf="gs://model")
    text = training.default_tokenize("text", "gs://text", "gs://tokenizer")
    chats = training.default_tokenize("chats", "gs://chats", "gs://tokenizer", ChatDatasetFormat())
    pairs = training.default_tokenize("pairs", "gs://pairs", "gs://tokenizer", SupervisedDatasetFormat())

    def mixed(*components: Any) -> Any:
        named = {f"part-{number}": one for number, one in enumerate(components)}
        return lm_mixture_data_config(named, dict.fromkeys(named, 1.0))

    for data in (text, output_path_of(text), mixed(text), training.default_mixture("m", mixed(text, text))):
        with pytest.raises(TrainingError, match=r"^x: none of the data has answers to learn, only text"):
            training.default_sft("x", data, settings)
    for data in (chats, pairs, "gs://tokens", mixed(text, chats), mixed(text, "gs://tokens")):
        training.default_sft("x", data, settings)


def test_stages_that_fit_no_batch_are_refused(training: Any) -> None:
    stages = lm_varying_mixture_data_config({"a": "x", "b": "y"}, [(0, {"a": 1.0}), (75, {"b": 1.0})])
    for tokenized in (stages, training.default_mixture("m", stages)):
        with pytest.raises(TrainingError, match="begins at step 75"):
            training.default_train("x", tokenized, MODEL, config(training))


def test_validation_sets_join_a_mixture(training: Any) -> None:
    mixed = lm_mixture_data_config({"a": "x"}, {"a": 1.0})
    plain = training.default_train("x", mixed, MODEL, config(training))
    held = training.default_train("x", mixed, MODEL, config(training), validation_sets={"news": "gs://news"})
    assert path(plain) != path(held)
    components = held.config.data_path.step.config.components
    assert {name: place.value for name, place in components.items()} == {"a": "x", "news": "gs://news"}


def test_validation_sets_join_the_mixture_of_a_step(training: Any) -> None:
    """Which several trainings share; they used to be put beside it, as if it were tokens."""
    stages = lm_varying_mixture_data_config({"a": "x", "b": "y"}, [(0, {"a": 1.0}), (256, {"b": 1.0})])
    shared = training.default_mixture("shared", stages)
    assert training.default_train("x", shared, MODEL, config(training)).config.data_path.step is shared
    for given in (shared, output_path_of(shared)):
        step = training.default_train("x", given, MODEL, config(training), validation_sets={"news": "gs://news"})
        alone = training.default_train("x", stages, MODEL, config(training), validation_sets={"news": "gs://news"})
        assert path(step) == path(alone)


def test_default_validation_is_paloma_in_the_tokens_of_the_data(training: Any) -> None:
    tokens = training.default_tokenize("x", "gs://text", "a/b@123")
    step = training.default_train("x", tokens, MODEL, config(training), use_default_validation=True)
    components = step.config.data_path.step.config.components
    assert len(components) == 17
    news = components["paloma-c4_en"].step
    assert (news.name, news.config.tokenizer.value) == ("tokenized/paloma/paloma-c4_en", "a/b@123")
    with pytest.raises(TrainingError, match="use_default_validation needs the tokenizer"):
        training.default_train("x", "gs://tokens", MODEL, config(training), use_default_validation=True)


def test_tags_change_no_path_and_tasks_are_refused(training: Any) -> None:
    one, other = (training.default_train("x", "gs://t", MODEL, config(training), tags) for tags in ((), ["mine"]))
    assert path(one) == path(other)
    assert other.config.running.tags == ("mine",)
    training.default_train("x", "gs://t", MODEL, config(training), eval_harness_tasks=[])
    with pytest.raises(TrainingError, match=r"make a step of them, as in default_eval\(model, tasks\)"):
        training.default_train("x", "gs://t", MODEL, config(training), eval_harness_tasks=["hellaswag"])


def test_sft_dpo_and_annealing_need_a_beginning(training: Any) -> None:
    settings = (ResourceConfig.with_cpu(), 8, 100, 1e-3)
    with pytest.raises(TrainingError, match="initialize_from_hf"):
        training.default_sft("x", "gs://chats", training.SimpleSFTConfig(*settings))
    with pytest.raises(TrainingError, match="initialize_from_hf"):
        training.default_dpo("x", "gs://pairs", training.SimpleDPOConfig(*settings))
    for name, why in (("z_loss_weight", "has no effect"), ("ema_beta", "begins .* with random weights")):
        dpo_config = training.SimpleDPOConfig(*settings, initialize_from_hf="gs://model", **{name: 0.1})
        with pytest.raises(TrainingError, match=rf"{name} 0\.1 .*{why}"):
            training.default_dpo("x", "gs://pairs", dpo_config)
    with pytest.raises(TrainingError, match="initialize_from_checkpoint_path"):
        training.default_anneal("x", "gs://tokens", MODEL, config(training))
