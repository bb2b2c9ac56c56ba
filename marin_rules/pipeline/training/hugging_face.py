"""Models in Hugging Face folders, as far as a run has to know them before it begins with their weights."""

from __future__ import annotations

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, read_json
from marin_rules.pipeline.core.tokenizer_files import TokenizerFolder, local_tokenizer, refuse_code
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.model import LlamaConfig


def model_folder(path: str) -> str:
    """The Hugging Face folder that a path means: itself, or the last export if it is the output of a training step."""
    if read_json(join(path, "config.json")) is not None:
        return path
    facts = read_json(join(path, "training.json"))
    return join(path, str(facts["export"])) if isinstance(facts, dict) and "export" in facts else path


def read_hugging_face(folder: str) -> tuple[LlamaConfig, int]:
    """The shape and the vocabulary of the model in a folder."""
    found = read_json(join(folder, "config.json"))
    if not isinstance(found, dict):
        raise TrainingError(f"{folder} is not a Hugging Face model: it has no readable config.json")
    refuse_code(folder)
    if found.get("model_type") != "llama":
        raise TrainingError(f"{folder} holds a model of type {found.get('model_type')!r}; only 'llama' can be trained")
    scaling = found.get("rope_scaling") or found.get("rope_parameters") or {}
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
    return shape, int(found["vocab_size"])


def check_same_tokens(folder: str, tokenizer: TokenizerFolder, data_path: str) -> None:
    """Refuse a model whose tokens mean something else than those of the data."""
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
