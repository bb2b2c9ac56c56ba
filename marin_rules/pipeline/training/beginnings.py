"""Whether a model can begin with the weights of another: the same shape, the same tokens, and all files as written.

Levanter would notice late, with messages of its own, or not at all: it takes the first layers of a deeper model, and
weights that were learned for other tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from marin_rules.pipeline.core.files import at_hand, join, read_json
from marin_rules.pipeline.core.tokenizer_files import TokenizerFolder
from marin_rules.pipeline.training.checkpoints import damage_of, trained_checkpoint
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.model import LlamaConfig

_SHAPE = (
    *("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "head_size", "tie_word_embeddings"),
    *("use_qk_norm", "hybrid_norm", "input_embedding_norm"),
)
"""What decides which weights there are. Rotary positions and lengths may change: contexts are made longer that way."""


def check_same_shape(model: LlamaConfig, other: LlamaConfig, where: str, *, in_checkpoint: bool) -> None:
    """Refuse a config whose weights are not those of the model to begin with."""
    # A checkpoint has all layers in one array, or each in its own.
    for name in (*_SHAPE, "scan_layers") if in_checkpoint else _SHAPE:
        if getattr(model, name) != getattr(other, name):
            raise TrainingError(
                f"the model in {where} has {name} {getattr(other, name)}, and the config to train has"
                f" {getattr(model, name)}: give the config of the model to begin with"
            )


def checkpoint_to_begin_with(
    path: str, model: LlamaConfig, tokenizer: TokenizerFolder, data_path: str
) -> tuple[str, int]:
    """The checkpoint that a path means, if this model can begin with it, and how many tokens its model has."""
    try:
        found = trained_checkpoint(path)
    except FileNotFoundError:
        raise TrainingError(f"{path} has no checkpoint to begin with: give a training step's output") from None
    facts, checkpoint = _facts_of_training(found), at_hand(found)
    if fault := damage_of(checkpoint):
        raise TrainingError(
            f"the checkpoint {checkpoint} cannot be used to begin with: {fault}. Name another of the training"
        )
    if (shape := _shape(facts)) is not None:
        check_same_shape(model, shape, checkpoint, in_checkpoint=True)
    digest = (facts.get("data") or {}).get("tokenizer_sha256")
    if digest is not None and digest != tokenizer.sha256:
        raise TrainingError(
            f"the model in {checkpoint} was trained on the tokens of another tokenizer than the one that {data_path}"
            " was tokenized with: tokenize the data with the model's own"
        )
    return checkpoint, int((facts.get("model") or {}).get("vocabulary", tokenizer.vocabulary))


def _facts_of_training(checkpoint: str) -> Mapping[str, Any]:
    """What the training says that the checkpoint is of; nothing of one that is not finished, or somebody else's."""
    folder, _, _ = checkpoint.rstrip("/").rpartition("/")
    output, _, name = folder.rpartition("/")
    facts = read_json(join(output, "training.json")) if output and name == "checkpoints" else None
    return facts if isinstance(facts, dict) else {}


def _shape(facts: Mapping[str, Any]) -> LlamaConfig | None:
    given = (facts.get("model") or {}).get("config")
    if not isinstance(given, dict):
        return None
    known = {field.name for field in fields(LlamaConfig)}
    return LlamaConfig(**{name: value for name, value in given.items() if name in known})
