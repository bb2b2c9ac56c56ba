"""The shape of a Llama model as plain data: a plan holds it, and Levanter builds it.

The names are those of Levanter's `LlamaConfig`. The vocabulary is no part of the shape; it is that of the tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marin_rules.pipeline.training.errors import TrainingError


@dataclass(frozen=True)
class LlamaConfig:
    """A decoder with rotary positions, RMS norms, gated SiLU layers, and keys and values shared by groups of heads."""

    max_seq_len: int = 4096
    """The longest sequence that the model is made for."""

    hidden_dim: int = 4096
    intermediate_dim: int = 11008
    num_layers: int = 32
    num_heads: int = 32
    num_kv_heads: int = 32
    head_dim: int | None = None
    """None is `hidden_dim / num_heads`."""

    tie_word_embeddings: bool = False
    """Whether the output layer is the embedding table. Tiny models learn far better without it."""

    rope: Literal["default", "llama3"] = "default"
    """Rotary positions: plain ones, or those of Llama 3 with their scaling for long contexts."""

    rope_theta: float = 10_000.0
    """Of plain rotary positions; Llama 3 brings its own."""

    initializer_range: float = 0.02
    layer_norm_epsilon: float = 1e-5
    use_qk_norm: bool = False
    hybrid_norm: bool = False
    input_embedding_norm: bool = False

    gradient_checkpointing: bool = True
    """Whether activations are computed again instead of kept: slower, but larger models and batches fit."""

    scan_layers: bool = True
    """Whether layers are compiled once and looped over. Small models run a quarter faster without."""

    def __post_init__(self) -> None:
        for name in ("max_seq_len", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise TrainingError(f"{name} {value!r} of a model must be a whole number of at least 1")
        if self.num_heads % self.num_kv_heads:
            raise TrainingError(f"num_heads {self.num_heads} must be a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim is None and self.hidden_dim % self.num_heads:
            raise TrainingError(
                f"hidden_dim {self.hidden_dim} must be a multiple of num_heads {self.num_heads}, or head_dim be given"
            )
        if self.head_size % 2:
            raise TrainingError(f"heads of size {self.head_size} cannot be rotated: the size must be even")
        if self.rope not in ("default", "llama3"):
            raise TrainingError(f"rope {self.rope!r} is neither 'default' nor 'llama3'")

    @property
    def head_size(self) -> int:
        return self.head_dim if self.head_dim is not None else self.hidden_dim // self.num_heads

    def parameters(self, vocabulary: int) -> int:
        """How many numbers there are to learn."""
        queries, keys = self.num_heads * self.head_size, self.num_kv_heads * self.head_size
        attention = self.hidden_dim * (2 * queries + 2 * keys)
        norms = 2 + 2 * self.hybrid_norm
        layer = attention + 3 * self.hidden_dim * self.intermediate_dim + norms * self.hidden_dim
        layer += 2 * self.head_size * self.use_qk_norm
        tables = (1 if self.tie_word_embeddings else 2) * vocabulary * self.hidden_dim
        return self.num_layers * layer + tables + self.hidden_dim * (1 + self.input_embedding_norm)

    def flops_per_token(self, vocabulary: int, sequence_length: int) -> float:
        """Floating-point operations to train on a token: a multiplication and an addition a parameter, forward once
        and backward twice; attention sees half of the sequence on average."""
        queries, keys = self.num_heads * self.head_size, self.num_kv_heads * self.head_size
        attention = self.hidden_dim * (2 * queries + 2 * keys)
        layer = attention + 3 * self.hidden_dim * self.intermediate_dim + sequence_length * queries
        return 6.0 * (self.num_layers * layer + vocabulary * self.hidden_dim)
