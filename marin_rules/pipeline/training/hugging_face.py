"""Models in Hugging Face folders, as far as a run has to know them before it starts from their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import at_hand, join, read_json
from marin_rules.pipeline.core.tokenizer_files import TokenizerFolder, local_tokenizer, refuse_code
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.model import LlamaConfig

_LLAMA3 = {
    "rope_theta": 500_000,
    "factor": 8,
    "low_freq_factor": 1,
    "high_freq_factor": 4,
    "original_max_position_embeddings": 8192,
}
"""What `rope="llama3"` is to Levanter: the positions of Llama 3.1, and not of 3.2."""

_NO_CONFIG = "give no config of the model, then it comes with initialize_from_hf"


def model_folder(path: str) -> str:
    """The Hugging Face folder that a path means: itself, or the last export if it is the output of a training step."""
    facts = read_json(join(path, "training.json")) if read_json(join(path, "config.json")) is None else None
    return at_hand(join(path, str(facts["export"])) if isinstance(facts, dict) and "export" in facts else path)


def read_hugging_face(folder: str) -> tuple[LlamaConfig, int]:
    """The shape and the vocabulary of the model in a folder."""
    found = read_json(join(folder, "config.json"))
    if not isinstance(found, dict):
        raise TrainingError(f"{folder} is not a Hugging Face model: it has no readable config.json")
    refuse_code(folder)
    if found.get("model_type") != "llama":
        raise TrainingError(f"{folder} holds a model of type {found.get('model_type')!r}; only 'llama' can be trained")
    for name in ("attention_bias", "mlp_bias"):
        if found.get(name):
            raise TrainingError(f"{folder} holds a model with {name}, which Levanter would leave out")
    scaling = _scaling(found)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise TrainingError(f"{folder} has rotary positions of type {kind!r}; 'default' and 'llama3' can be trained")
    shape = LlamaConfig(
        max_seq_len=found["max_position_embeddings"],
        hidden_dim=found["hidden_size"],
        intermediate_dim=found["intermediate_size"],
        num_layers=found["num_hidden_layers"],
        num_heads=found["num_attention_heads"],
        num_kv_heads=found.get("num_key_value_heads") or found["num_attention_heads"],
        head_dim=found.get("head_dim"),
        tie_word_embeddings=bool(found.get("tie_word_embeddings", False)),
        rope=kind,
        rope_theta=float(found.get("rope_theta") or scaling.get("rope_theta") or 10_000.0),
        initializer_range=found.get("initializer_range", 0.02),
        layer_norm_epsilon=found.get("rms_norm_eps", 1e-5),
    )
    if shape.head_size * shape.num_heads != shape.hidden_dim:
        raise TrainingError(
            f"{folder} holds a model whose head_dim {shape.head_size} times its {shape.num_heads} heads is not its"
            f" hidden size {shape.hidden_dim}: Levanter reads no head_dim"
        )
    return shape, int(found["vocab_size"])


def check_says_all(folder: str, model: LlamaConfig) -> None:
    """Refuse a config beside a model of which it cannot say everything: it would be trained as another one."""
    found = read_json(join(folder, "config.json"))
    if (activation := found.get("hidden_act", "silu")) != "silu":
        raise TrainingError(
            f"the model in {folder} has the activation {activation!r}, which no config says: {_NO_CONFIG}"
        )
    scaling = _scaling(found)
    if scaling.get("rope_type", scaling.get("type")) != "llama3" or model.rope != "llama3":
        return  # Other positions are a decision: contexts are made longer that way.
    given = {**scaling, "rope_theta": found.get("rope_theta") or scaling.get("rope_theta")}
    for name, value in _LLAMA3.items():
        if given.get(name) not in (None, value):
            raise TrainingError(
                f"the model in {folder} has rotary positions of Llama 3 with {name} {given[name]}, and those of a"
                f" config have {value}: {_NO_CONFIG}"
            )


def _scaling(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return found.get("rope_scaling") or found.get("rope_parameters") or {}


def check_same_tokens(folder: str, tokenizer: TokenizerFolder, data_path: str) -> None:
    """Refuse a model whose tokens mean something other than those of the data."""
    try:
        with local_tokenizer(folder) as models:
            differs = models.sha256 != tokenizer.sha256
    except DataError as error:
        raise TrainingError(f"the model in {folder} has no tokenizer: {error}") from error
    if differs:
        raise TrainingError(
            f"the tokenizer of the model in {folder} is not the one that {data_path} was tokenized with:"
            " tokenize the data with the model's own"
        )
