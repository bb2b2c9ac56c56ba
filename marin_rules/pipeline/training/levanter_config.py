"""Our configs in Levanter's terms: a pure translation, except that Levanter is imported for it. For data,
`marin_rules.pipeline.levanter_data` does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.training.config import Hyperparameters, Running
from marin_rules.pipeline.training.model import LlamaConfig


@dataclass(frozen=True)
class Places:
    """Folders of a run."""

    output: str
    tokenizer: str
    """On this machine."""

    scratch: str
    """On this machine, for this process only."""

    @property
    def checkpoints(self) -> str:
        return join(self.output, "checkpoints")

    @property
    def hugging_face(self) -> str:
        return join(self.output, "hf")


def model_config(model: LlamaConfig, tokenizer: str) -> Any:
    """Levanter's model. Its converter to Hugging Face must know the tokenizer, so that it does not ask the hub for
    one."""
    from levanter.layers.rotary import DefaultRotaryEmbeddingsConfig, Llama3RotaryEmbeddingsConfig
    from levanter.models.llama import LlamaConfig as LevanterLlamaConfig

    plain = DefaultRotaryEmbeddingsConfig(theta=model.rope_theta)
    return LevanterLlamaConfig(
        max_seq_len=model.max_seq_len,
        hidden_dim=model.hidden_dim,
        intermediate_dim=model.intermediate_dim,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        tie_word_embeddings=model.tie_word_embeddings,
        rope=Llama3RotaryEmbeddingsConfig() if model.rope == "llama3" else plain,
        initializer_range=model.initializer_range,
        layer_norm_epsilon=model.layer_norm_epsilon,
        use_qk_norm=model.use_qk_norm,
        hybrid_norm=model.hybrid_norm,
        input_embedding_norm=model.input_embedding_norm,
        gradient_checkpointing=model.gradient_checkpointing,
        scan_layers=model.scan_layers,
        reference_checkpoint=tokenizer,
        tokenizer=tokenizer,
    )


def with_vocabulary(data: Any, vocabulary: int) -> Any:
    """Levanter's data config, for a model of so many tokens. Published models have more than their tokenizers, for
    hardware's sake; Levanter builds a model as large as the tokenizer, into which it cannot load a checkpoint of such a
    one."""
    tokenizer = data.the_tokenizer
    if len(tokenizer) < vocabulary:
        data.__dict__["the_tokenizer"] = replace(tokenizer, _vocab_size=vocabulary)
    return data


def optimizer_config(given: Hyperparameters) -> Any:
    """AdamW."""
    from levanter.optim.config import AdamConfig

    return AdamConfig(
        learning_rate=given.learning_rate,
        weight_decay=given.weight_decay,
        beta1=given.beta1,
        beta2=given.beta2,
        epsilon=given.epsilon,
        max_grad_norm=given.max_grad_norm,
        warmup=_part_of_run(given.warmup, given.num_train_steps),
        decay=None if given.decay is None else _part_of_run(given.decay, given.num_train_steps),
        lr_schedule=given.lr_schedule,
        min_lr_ratio=given.min_lr_ratio,
    )


def _part_of_run(part: float, steps: int) -> float:
    """To us, 1 is a step and 20.0 are twenty. To Levanter, 1 is all of a run even as a whole number, and 20.0 is no
    fraction."""
    if isinstance(part, int) and part == 1:
        return 1.5 / steps
    return int(part) if part > 1 else part


def trainer_config(
    given: Hyperparameters,
    running: Running,
    places: Places,
    *,
    devices: int,
    trackers: tuple[Any, ...],
    checkpointer: Any,
    between_steps: Any,
) -> Any:
    """Everything around the steps. Processes have met before, so Levanter must not arrange a meeting of its own."""
    import jmp
    from levanter.distributed import DistributedConfig
    from levanter.optim.model_averaging import EmaModelAveragingConfig
    from levanter.trainer import TrainerConfig

    return TrainerConfig(
        id="run",  # No part of any path; random otherwise.
        seed=given.seed,
        mp=jmp.get_policy(given.precision),
        model_averaging=None if given.ema_beta is None else EmaModelAveragingConfig(beta=given.ema_beta),
        train_batch_size=given.train_batch_size,
        per_device_parallelism=running.per_device_parallelism,
        num_train_steps=given.num_train_steps,
        steps_per_eval=given.steps_per_eval,
        max_eval_batches=_eval_batches(given, running, devices),
        tracker=trackers,
        checkpointer=checkpointer,
        progress_watchdog=between_steps,
        log_dir=Path(places.scratch) / "logs",
        log_jaxprs=False,
        log_xla_hlo=False,
        require_accelerator=running.device != "cpu",
        distributed=DistributedConfig(initialize_jax_distributed=False),
    )


def _eval_batches(given: Hyperparameters, running: Running, devices: int) -> int | None:
    """Levanter evaluates in batches as small as it trains in, but what is evaluated must not depend on their size."""
    if given.max_eval_batches is None or running.per_device_parallelism == -1:
        return given.max_eval_batches
    return given.max_eval_batches * given.train_batch_size // (running.per_device_parallelism * devices)


def checkpoint_settings(given: Hyperparameters, running: Running, places: Places) -> dict[str, Any]:
    """Arguments of Levanter's `CheckpointerConfig`."""
    return {
        "base_path": places.checkpoints,
        "append_run_id_to_base_path": False,
        "save_interval": timedelta(minutes=running.checkpoint_minutes),
        "keep": [{"every": given.steps_per_export}],
        "keep_last_temporary_checkpoints": 2,  # The one before is there when the newest turns out to be damaged.
    }


def export_settings(given: Hyperparameters, places: Places) -> Mapping[str, Any]:
    """Arguments for exports, the same for all of Levanter's ways to train."""
    return {
        "hf_save_path": places.hugging_face,
        "hf_save_steps": given.steps_per_hf_export or given.steps_per_export,
    }
