"""Direct preference optimization (DPO): a model learns to prefer the chosen of two answers, without moving too far from
the model that it started from.

Its output is that of `marin_rules.pipeline.train`, with `preferences/` as the cache of the pairs. Levanter's
`train_dpo` does the work. A pair longer than the model's sequences stops the run, by Levanter's decision.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from marin_rules import this_process
from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.core.tokenizer_files import local_tokenizer
from marin_rules.pipeline.training.config import DpoConfig
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.guards import check_preferences, check_sequence_length, check_vocabulary
from marin_rules.pipeline.training.hugging_face import model_folder, read_hugging_face
from marin_rules.pipeline.training.levanter_config import (
    Places,
    export_settings,
    model_config,
    optimizer_config,
    with_vocabulary,
)
from marin_rules.pipeline.training.model import LlamaConfig
from marin_rules.pipeline.training.origin import Origin, begin_or_go_on, content_of
from marin_rules.pipeline.training.preferences import write_pairs
from marin_rules.pipeline.training.results import conclude
from marin_rules.pipeline.training.run import prepare_environment, run


def train_dpo(config: DpoConfig) -> dict[str, Any] | None:
    """Train, or resume training. Returns what `training.json` holds; None in all processes but the first."""
    folder, given = model_folder(str(config.initialize_from_hf)), config.hyperparameters
    check_preferences(config.beta, config.validation_fraction, given.z_loss_weight, given.ema_beta)
    model, vocabulary = read_hugging_face(folder)
    length = check_sequence_length(given, model)
    pairs = join(config.output_path, "preferences", "pairs.jsonl")
    is_first = this_process().rank == 0
    with local_tokenizer(folder) as tokenizer:
        check_vocabulary(vocabulary, tokenizer.vocabulary, folder)
        if config.chat_template is None and tokenizer.chat_template is None:
            raise TrainingError(f"the tokenizer of {folder} has no chat template: give one as chat_template")
        if is_first:
            begin_or_go_on(config.output_path, _origin(config, model, folder))
        counts = write_pairs(str(config.preferences_path), pairs) if is_first else {}
        prepare_environment(config.running)

        def start(places: Places, trainer: Any) -> None:
            from levanter.main.train_dpo import SeparateReferenceConfig, TrainDpoConfig, main

            main(
                TrainDpoConfig(
                    data=with_vocabulary(
                        _data(pairs, places, config.chat_template or tokenizer.chat_template), vocabulary
                    ),
                    trainer=trainer,
                    model=model_config(model, tokenizer.path),
                    train_seq_len=length,
                    optimizer=optimizer_config(given),
                    reference=SeparateReferenceConfig(model_path=folder, is_hf=True),
                    beta=config.beta,
                    initialize_from_hf=folder,
                    use_hf_model_config=True,
                    validation_split_fraction=config.validation_fraction or None,
                    data_seed=given.data_seed,
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
            sequences_per_example=2,
        )
        if not is_first:
            return None
        preferences = {"path": str(config.preferences_path), **counts}
        more = {"preferences": preferences, "beta": config.beta, "began_with": folder}
        return conclude(
            config.output_path, given, model, vocabulary, tokenizer.path, recorder, devices, compared={}, more=more
        )


def _origin(config: DpoConfig, model: LlamaConfig, folder: str) -> Origin:
    settings = {"beta": config.beta, "validation_fraction": config.validation_fraction}
    return {
        "hyperparameters": {**asdict(config.hyperparameters), **settings, "chat_template": config.chat_template},
        "model": asdict(model),
        "data": content_of(str(config.preferences_path), whole=True),
        "first_weights": content_of(folder, whole=False),
    }


def _data(pairs: str, places: Places, chat_template: str | None) -> Any:
    from levanter.data.text.datasets import DatasetComponent, UrlDatasetSourceConfig
    from levanter.data.text.preference import PreferenceChatLmDatasetFormat, PreferenceLmDataConfig

    component = DatasetComponent(
        source=UrlDatasetSourceConfig(train_urls=[pairs]),
        cache_dir=join(places.output, "preferences"),
        format=PreferenceChatLmDatasetFormat(chat_template=chat_template),
    )
    return PreferenceLmDataConfig(
        tokenizer=places.tokenizer,
        cache_dir=None,
        components={"preferences": component},
        train_weights={"preferences": 1.0},
    )
