"""One side of the benchmark of training: `train.py make`, `train.py bare STEPS`, in the environment for training.

The bare side calls Levanter's own main function with the config that the step makes, and nothing around it but a
tracker that notes when each step was done. The other side is `train_experiment.py`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.workflows.train_experiment import GIVEN, MODEL, hyperparameters  # noqa: E402


def make() -> None:
    """Tokens of made-up words."""
    from marin_rules.pipeline.tokenize import TokenizeConfig, tokenize
    from marin_rules.pipeline.train_tokenizer import TrainTokenizerConfig, train_tokenizer

    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnop", k=generator.randint(2, 9))) for _ in range(2000)]
    Path("documents").mkdir()
    with open("documents/part.jsonl", "w") as file:
        for number in range(1500):
            file.write(json.dumps({"id": str(number), "text": " ".join(generator.choices(words, k=200))}) + "\n")
    train_tokenizer(TrainTokenizerConfig("documents", 1024, output_path="tokenizer"))
    tokenize(TokenizeConfig("tokenizer", ["documents"], output_path="tokens"))


def bare(steps: int) -> None:
    import jmp
    from levanter.checkpoint import CheckpointerConfig
    from levanter.distributed import DistributedConfig
    from levanter.main.train_lm import TrainLmConfig, main
    from levanter.tracker.tracker import Tracker, TrackerConfig
    from levanter.trainer import TrainerConfig

    from marin_rules.pipeline.levanter_data import levanter_data_config
    from marin_rules.pipeline.training.levanter_config import model_config, optimizer_config

    times: list[float] = []

    class TimingTracker(Tracker):  # type: ignore[misc]
        name = "timing"

        def log(self, metrics: Mapping[str, Any], *, step: int | None, commit: bool | None = None) -> None:
            if "train/loss" in metrics and step == len(times):
                float(metrics["train/loss"])
                times.append(time.time())

        def log_summary(self, metrics: Mapping[str, Any]) -> None: ...
        def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None: ...
        def log_artifact(self, artifact_path: Any, *, name: str | None = None, type: str | None = None) -> None: ...
        def finish(self) -> None: ...

    @TrackerConfig.register_subclass("timing")
    @dataclasses.dataclass
    class TimingTrackerConfig(TrackerConfig):  # type: ignore[misc]
        def init(self, run_id: str | None) -> Any:
            return TimingTracker()

    main(
        TrainLmConfig(
            data=levanter_data_config("tokens", tokenizer="tokens/tokenizer"),
            model=model_config(MODEL, "tokens/tokenizer"),
            optimizer=optimizer_config(hyperparameters(steps)),
            train_seq_len=MODEL.max_seq_len,
            trainer=TrainerConfig(
                id="bare",
                mp=jmp.get_policy("f32"),
                num_train_steps=steps,
                train_batch_size=GIVEN["train_batch_size"],
                steps_per_eval=steps,
                tracker=TimingTrackerConfig(),
                log_dir=Path("bare-logs"),
                log_jaxprs=False,
                log_xla_hlo=False,
                require_accelerator=False,
                distributed=DistributedConfig(initialize_jax_distributed=False),
                checkpointer=CheckpointerConfig(base_path="bare-checkpoints", append_run_id_to_base_path=False),
            ),
        )
    )
    Path("bare.json").write_text(json.dumps(times))


if __name__ == "__main__":
    os.environ |= {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "TQDM_DISABLE": "1"}
    os.environ |= {"HF_HOME": os.path.abspath("hf-home"), "MARIN_PREFIX": os.path.abspath("prefix")}
    if sys.argv[1] == "make":
        make()
    else:
        bare(int(sys.argv[2]))
