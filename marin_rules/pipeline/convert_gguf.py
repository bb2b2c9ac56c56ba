"""A model in a GGUF file, as llama.cpp runs it, to a Hugging Face folder that can be trained on and evaluated.

    <output>/config.json, model.safetensors, tokenizer.json, tokenizer_config.json

Weights become float32, whatever they were quantized to: the model is the one in the file, which is slightly worse than
the original. Llama models with a byte-level BPE tokenizer are supported; others are refused by name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import (
    into_place,
    is_url,
    join,
    open_to_read,
    put_into_place,
    sizes_below,
    write_json,
)

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL_TOKEN = 3


@dataclass(frozen=True)
class ConvertGgufConfig:
    """The one GGUF file below a path."""

    input_path: str | InputName
    output_path: str = THIS_OUTPUT_PATH


def convert_gguf(config: ConvertGgufConfig) -> dict[str, int]:
    """Write the folder; returns the numbers of tensors and of parameters."""
    from gguf import GGUFReader

    with tempfile.TemporaryDirectory() as scratch:
        reader = GGUFReader(_local_file(str(config.input_path), scratch))
        facts = {name: field.contents() for name, field in reader.fields.items()}
        _check(facts, str(config.input_path))
        tensors = _tensors(reader, facts)
        _write_weights(tensors, config.output_path, scratch)
        _write_tokenizer(facts, config.output_path)
    write_json(join(config.output_path, "config.json"), _hugging_face_config(facts, "lm_head.weight" not in tensors))
    return {"tensors": len(tensors), "parameters": sum(tensor.size for tensor in tensors.values())}


def _local_file(path: str, scratch: str) -> str:
    names = [name for name in sizes_below(path) if name.endswith(".gguf")]
    if len(names) != 1:
        raise DataError(f"{path} has {len(names)} files that end in .gguf, not one")
    if not is_url(path):
        return os.path.join(path, names[0])
    local = os.path.join(scratch, "model.gguf")
    with open_to_read(join(path, names[0])) as source, open(local, "wb") as target:
        shutil.copyfileobj(source, target)
    return local


def _check(facts: Mapping[str, Any], path: str) -> None:
    architecture, tokenizer = facts.get("general.architecture"), facts.get("tokenizer.ggml.model")
    if architecture != "llama":
        raise DataError(f"the model in {path} is of the kind {architecture!r}; only 'llama' is understood")
    if tokenizer != "gpt2":
        raise DataError(f"the tokenizer in {path} is of the kind {tokenizer!r}; only 'gpt2' (byte-level BPE) is")
    if (division := facts.get("tokenizer.ggml.pre", "default")) != "smollm":
        raise DataError(f"the tokenizer in {path} divides text as {division!r} does; only 'smollm' is understood")


def _tensors(reader: Any, facts: Mapping[str, Any]) -> dict[str, Array]:
    import numpy
    from gguf import dequantize

    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    found = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        weight = weight.reshape([int(size) for size in tensor.shape][::-1])
        place, number, part = _place_of(tensor.name)
        if place == "blk":
            if part in heads:
                weight = _rotary_halves(weight, heads[part])
            name = f"model.layers.{number}.{_LAYER[part]}.weight"
        else:
            name = f"{_OUTSIDE[place]}.weight"
        found[name] = numpy.ascontiguousarray(weight)
    return found


def _place_of(name: str) -> tuple[str, str, str]:
    """Where in the model a tensor is: `blk`, the number of its layer and its part there, or a place outside of them."""
    place, *rest = name.split(".")
    if place == "blk" and len(rest) == 3 and rest[1] in _LAYER and rest[2] == "weight":
        return place, rest[0], rest[1]
    if place in _OUTSIDE and rest == ["weight"]:
        return place, "", ""
    raise DataError(f"the model has a tensor {name!r}, which is not one of a plain Llama: it cannot be converted")


def _rotary_halves(weight: Array, heads: int) -> Array:
    """llama.cpp has the two parts of each rotated pair beside each other, Hugging Face one half after the other."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _write_weights(tensors: Mapping[str, Array], output: str, scratch: str) -> None:
    from safetensors.numpy import save_file

    # Beside its final place, because on a disk it is moved there by renaming it.
    folder = scratch if is_url(output) else output
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, ".model.safetensors.part")
    save_file(dict(tensors), part, metadata={"format": "pt"})
    put_into_place(part, join(output, "model.safetensors"))


def _hugging_face_config(facts: Mapping[str, Any], is_tied: bool) -> dict[str, Any]:
    hidden, heads = facts["llama.embedding_length"], facts["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "tie_word_embeddings": is_tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def _write_tokenizer(facts: Mapping[str, Any], output: str) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    with into_place(join(output, "tokenizer.json")) as file:
        file.write(tokenizer.to_str().encode())
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "model_max_length": facts["llama.context_length"],
    }
    padding = facts.get("tokenizer.ggml.padding_token_id")
    settings |= {} if padding is None else {"pad_token": tokens[padding]}
    settings |= {} if "tokenizer.chat_template" not in facts else {"chat_template": facts["tokenizer.chat_template"]}
    write_json(join(output, "tokenizer_config.json"), settings)
