"""One side of the benchmark of evaluations: `evaluate.py make|ours|bare ITEMS`, in the environment for training.

Both sides load the same model with Levanter and answer the same questions of lm-eval; the bare one with Levanter's own
adapter, and nothing around it.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

LENGTH, BATCH = 128, 8

TASK = """
task: words
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{query}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


def make(items: int) -> None:
    """A random model of three million parameters, and questions with four answers."""
    import haliax
    import jax
    from levanter.compat.hf_checkpoints import HFCheckpointConverter, load_tokenizer
    from levanter.models.llama import LlamaConfig
    from levanter.trainer import TrainerConfig

    from support.tiny_llama import VOCABULARY, write_tokenizer

    write_tokenizer(Path("tokenizer"))
    config = LlamaConfig(
        max_seq_len=LENGTH,
        hidden_dim=256,
        intermediate_dim=688,
        num_layers=4,
        num_heads=4,
        num_kv_heads=4,
        tokenizer="tokenizer",
        reference_checkpoint="tokenizer",
    )
    trainer = TrainerConfig(require_accelerator=False)
    with trainer.use_device_mesh():
        model = config.build(haliax.Axis("vocab", VOCABULARY), key=jax.random.PRNGKey(0))
        converter = HFCheckpointConverter(
            LlamaConfig,
            reference_checkpoint="tokenizer",
            tokenizer=load_tokenizer("tokenizer"),
            HfConfigClass=config.hf_checkpoint_converter().HfConfigClass,
        )
        converter.save_pretrained(model, "model", save_reference_code=False)
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 9))) for _ in range(500)]
    Path("tasks").mkdir()
    with open("tasks/words.jsonl", "w") as file:
        for _ in range(items):
            query = " ".join(generator.choices(words, k=generator.randint(3, 12)))
            item = {"query": query, "choices": generator.choices(words, k=4), "label": generator.randrange(4)}
            file.write(json.dumps(item) + "\n")
    Path("tasks/words.yaml").write_text(TASK.format(data=Path("tasks/words.jsonl").absolute()))


def ours() -> float:
    from marin_rules.pipeline.evaluate import EvaluateConfig, evaluate
    from marin_rules.pipeline.evaluation.task_files import EvalTask

    tasks = [EvalTask("words", folder="tasks")]
    scores = evaluate(
        EvaluateConfig("model", tasks=tasks, batch_rows=BATCH, resamples=100, offline=True, output_path="out-ours")
    )
    return float(scores["words/acc"])


def bare() -> float:
    import jmp
    from levanter.compat.hf_checkpoints import HFCheckpointConverter, load_tokenizer
    from levanter.distributed import DistributedConfig
    from levanter.eval_harness import LmEvalHarnessConfig, run_lm_eval_harness
    from levanter.models.llama import LlamaConfig
    from levanter.tracker import NoopConfig
    from levanter.trainer import TrainerConfig
    from lm_eval.tasks import TaskManager, get_task_dict

    class Config(LmEvalHarnessConfig):
        def to_task_dict(self) -> Any:
            return get_task_dict(["words"], TaskManager(include_path="tasks", include_defaults=False))

    trainer = TrainerConfig(
        require_accelerator=False,
        tracker=NoopConfig(),
        train_batch_size=BATCH,
        per_device_eval_parallelism=BATCH,
        mp=jmp.get_policy("f32"),
        distributed=DistributedConfig(initialize_jax_distributed=False),
    )
    trainer.initialize()
    tokenizer = load_tokenizer("model")
    with trainer.use_device_mesh():
        converter = HFCheckpointConverter(LlamaConfig, reference_checkpoint="model", tokenizer=tokenizer)
        model = converter.load_pretrained(None, ref="model", axis_mapping=trainer.parameter_axis_mapping)
        answer = run_lm_eval_harness(
            Config(task_spec=["words"], max_length=LENGTH, log_samples=True, bootstrap_iters=100),
            model,
            tokenizer,
            trainer.EvalBatch,
            trainer.compute_axis_mapping,
            trainer.mp,
        )
    assert answer is not None
    Path("out-bare.json").write_text(json.dumps(answer["samples"], default=str))
    return float(answer["results"]["words"]["acc,none"])


def main() -> None:
    side, items = sys.argv[1], int(sys.argv[2])
    os.environ |= {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled"}
    os.environ |= {"HF_HOME": os.path.abspath("hf-home"), "MARIN_PREFIX": os.path.abspath("prefix")}
    if side == "make":
        make(items)
        return
    score = {"ours": ours, "bare": bare}[side]()
    Path(f"{side}.json").write_text(json.dumps({"score": score}))


if __name__ == "__main__":
    main()
