"""A tiny Llama with random weights as a Hugging Face folder, and the same model in numpy: an oracle of its own.

Neither half uses a library of the training environment: files are written byte by byte, and the tokenizer knows bytes
alone, so that tests can say what the tokens of a text are.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ("<|pad|>", "<|bos|>", "<|eos|>")
WIDTH, HEADS, KEY_HEADS, LAYERS, INNER, LENGTH = 16, 4, 2, 2, 24, 48
VOCABULARY = len(SPECIAL) + 256

type Weights = dict[str, numpy.ndarray[Any, Any]]


def tokens_of(text: str) -> list[int]:
    return [len(SPECIAL) + byte for byte in text.encode()]


def make_weights(seed: int) -> Weights:
    generator = numpy.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return (generator.normal(size=shape) * 0.4).astype(numpy.float32)

    head = WIDTH // HEADS
    weights = {"model.embed_tokens.weight": normal(VOCABULARY, WIDTH), "lm_head.weight": normal(VOCABULARY, WIDTH)}
    weights["model.norm.weight"] = 1 + normal(WIDTH)
    for layer in range(LAYERS):
        shapes = {
            "self_attn.q_proj": (WIDTH, WIDTH),
            "self_attn.k_proj": (KEY_HEADS * head, WIDTH),
            "self_attn.v_proj": (KEY_HEADS * head, WIDTH),
            "self_attn.o_proj": (WIDTH, WIDTH),
            "mlp.gate_proj": (INNER, WIDTH),
            "mlp.up_proj": (INNER, WIDTH),
            "mlp.down_proj": (WIDTH, INNER),
        }
        weights |= {f"model.layers.{layer}.{name}.weight": normal(*shape) for name, shape in shapes.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = 1 + normal(WIDTH)
    return weights


def write_model(folder: Path, weights: Weights) -> str:
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": WIDTH // HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, Any] = {}
    body = b""
    for name, array in weights.items():
        contents = array.astype("<f4").tobytes()
        places = [len(body), len(body) + len(contents)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": places}
        body += contents
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    write_tokenizer(folder)
    return str(folder)


def write_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {name: number for number, name in enumerate(SPECIAL)}
    vocabulary |= {letter: len(SPECIAL) + byte for byte, letter in enumerate(_letters())}
    shared = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": name, **shared} for number, name in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    named = dict(zip(("pad_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **named}))


def _letters() -> list[str]:
    """The letter that stands for each byte, as GPT-2 has it: itself if it can be seen, else one beyond Latin-1."""
    seen = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = iter(range(256))
    return [chr(byte) if byte in seen else chr(256 + next(unseen)) for byte in range(256)]


def log_probabilities(weights: Weights, tokens: list[int]) -> Any:
    """For each place the logarithm of the probability of each token that may follow."""
    x = weights["model.embed_tokens.weight"][tokens].astype(numpy.float64)
    count, head = len(tokens), WIDTH // HEADS
    frequencies = 10000.0 ** (-numpy.arange(0, head, 2) / head)
    angles = numpy.arange(count)[:, None] * numpy.concatenate([frequencies, frequencies])
    cosine, sine = numpy.cos(angles)[:, None], numpy.sin(angles)[:, None]

    def turned(one: Any) -> Any:
        half = head // 2
        return one * cosine + numpy.concatenate([-one[..., half:], one[..., :half]], axis=-1) * sine

    for layer in range(LAYERS):

        def times(name: str, one: Any, layer: int = layer) -> Any:
            return one @ weights[f"model.layers.{layer}.{name}.weight"].T

        normed = _norm(x, weights[f"model.layers.{layer}.input_layernorm.weight"])
        queries = turned(times("self_attn.q_proj", normed).reshape(count, HEADS, head))
        keys = turned(times("self_attn.k_proj", normed).reshape(count, KEY_HEADS, head))
        values = times("self_attn.v_proj", normed).reshape(count, KEY_HEADS, head)
        shared = HEADS // KEY_HEADS
        keys, values = keys.repeat(shared, axis=1), values.repeat(shared, axis=1)
        scores = numpy.einsum("ihd,jhd->hij", queries, keys) / numpy.sqrt(head)
        scores = numpy.where(numpy.tril(numpy.ones((count, count), bool)), scores, -numpy.inf)
        attention = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
        attention /= attention.sum(axis=-1, keepdims=True)
        mixed = numpy.einsum("hij,jhd->ihd", attention, values).reshape(count, WIDTH)
        x = x + times("self_attn.o_proj", mixed)
        normed = _norm(x, weights[f"model.layers.{layer}.post_attention_layernorm.weight"])
        gate = times("mlp.gate_proj", normed)
        x = x + times("mlp.down_proj", gate / (1 + numpy.exp(-gate)) * times("mlp.up_proj", normed))
    logits = _norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - numpy.log(numpy.exp(logits - top).sum(axis=-1, keepdims=True))


def _norm(x: Any, weight: Any) -> Any:
    return x / numpy.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * weight


def score(weights: Weights, context: list[int], continuation: list[int]) -> float:
    """The logarithm of the probability of a continuation."""
    whole = [*context, *continuation]
    logs = log_probabilities(weights, whole[:-1])
    return float(sum(logs[place - 1, whole[place]] for place in range(len(context), len(whole))))
