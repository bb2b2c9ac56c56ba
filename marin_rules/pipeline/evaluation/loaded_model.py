"""A model in memory, through Levanter: probabilities of tokens, and continuations of text.

The only module that knows JAX. Probabilities come from batches of packed rows, text from Levanter's inference engine.
Everything is computed on the devices of one host, however many they are: batches are divided among them, and so are
parameters, as Levanter's default mesh does it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.library_logs import quiet_libraries
from marin_rules.pipeline.evaluation.model_files import ModelFiles, layers_by_themselves, settings_here
from marin_rules.pipeline.evaluation.packing import Scored, pack, row_length

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

type Precision = Literal["float32", "bfloat16"]

_LEVANTER_NAMES = {"qwen2": "qwen"}
"""Levanter's name of a model, where it is not the `model_type` of Hugging Face."""

_PAGE_TOKENS = 16
_ROUNDS = 8
"""Tokens that the engine makes between two checks of what is finished."""

_SEQUENCES_AT_ONCE = 16


class Scores(NamedTuple):
    """Of one sequence, for each token of its continuation."""

    log_probabilities: Array
    """Natural logarithms."""

    is_greedy: Array
    """Whether it is the most probable token at its place."""


@dataclass(frozen=True)
class Generation:
    """How to continue a text."""

    most_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


class LoadedModel:
    """Made by `loaded`, and good inside its block."""

    def __init__(
        self, model: Any, tokenizer: Any, trainer: Any, longest: int, batch_rows: int, precision: Precision
    ) -> None:
        self._model, self.tokenizer, self._trainer = model, tokenizer, trainer
        self.longest = longest
        """Tokens that it sees at once."""

        self._batch_rows, self._precision = batch_rows, precision
        self._compiled: Any = None
        self._engines: dict[int, Any] = {}

    @property
    def parameters(self) -> int:
        from levanter.utils.jax_utils import parameter_count

        return int(parameter_count(self._model))

    @property
    def vocabulary(self) -> int:
        size: int = self._model.Vocab.size
        return size

    @property
    def first_token(self) -> int:
        """What a text begins after: the token that begins texts, or else the one that ends them."""
        token = self.tokenizer.bos_token_id
        return self.end_token if token is None else int(token)

    @property
    def end_token(self) -> int:
        token = self.tokenizer.eos_token_id
        if token is None:
            raise DataError(f"the tokenizer of {self.tokenizer.name_or_path} has no token that ends a text (eos_token)")
        return int(token)

    @property
    def unknown_token(self) -> int | None:
        """What stands for text that the tokenizer has no tokens for, if it is that alone."""
        token = self.tokenizer.unk_token_id
        return None if token in (None, self.tokenizer.bos_token_id, self.tokenizer.eos_token_id) else int(token)

    def encode(self, text: str) -> list[int]:
        """Tokens of the text alone, without any that the tokenizer likes to add."""
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text that tokens stand for, special ones included."""
        text: str = self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        return text

    def score(self, sequences: Sequence[Scored]) -> list[Scores]:
        """In the order given. Sequences longer than `longest` are an error of the caller's."""
        import numpy

        if not sequences:
            return []
        rows = pack(sequences, row_length(sequences, self.longest))
        self._refuse_unknown_token(max(int(rows.tokens.max()), int(rows.targets.max())))
        losses, greedy = self._losses(rows)
        found: list[Scores | None] = [None] * len(sequences)
        for place in rows.places:
            one = sequences[place.sequence]
            start = place.start + len(one.context) - 1
            span = slice(start, start + len(one.continuation))
            found[place.sequence] = Scores(-losses[place.row, span], greedy[place.row, span])
        scores = [one for one in found if one is not None]
        if not all(numpy.isfinite(one.log_probabilities).all() for one in scores):
            raise DataError(
                f"the model gives some tokens no probability (NaN, or none at all) in {self._precision}: no score of it"
                " would mean anything" + ("" if self._precision == "float32" else ". Try precision float32")
            )
        return scores

    def _refuse_unknown_token(self, highest: int) -> None:
        """The lookup of a token that a model does not know gives any other's, and fails nothing."""
        if highest >= self.vocabulary:
            raise DataError(
                f"the tokenizer of {self.tokenizer.name_or_path} makes token {highest}"
                f" ({self.tokenizer.convert_ids_to_tokens(highest)!r}), but the model knows {self.vocabulary} tokens"
                " only: are config.json and tokenizer.json of the same model?"
            )

    def _losses(self, rows: Any) -> tuple[Array, Array]:
        import haliax
        import numpy

        if self._compiled is None:
            self._compiled = self._compile()
        losses, greedy = [], []
        batch = self._batch_rows
        for start in range(0, len(rows.tokens), batch):
            arrays = [
                _filled(array[start : start + batch], batch)
                for array in (rows.tokens, rows.targets, rows.segments, rows.positions)
            ]
            axes = (haliax.Axis("batch", batch), haliax.Axis("position", arrays[0].shape[1]))
            answer = self._compiled(self._model, *(haliax.named(array, axes) for array in arrays))
            losses.append(numpy.asarray(answer[0].array, numpy.float64))
            greedy.append(numpy.asarray(answer[1].array))
        return numpy.concatenate(losses), numpy.concatenate(greedy)

    def _compile(self) -> Any:
        import haliax
        import jax.numpy
        from levanter.layers.attention import AttentionMask
        from levanter.models.lm_model import split_activations
        from levanter.models.loss import fused_cross_entropy_loss_and_logsumexp_penalty

        def losses(model: Any, tokens: Any, targets: Any, segments: Any, positions: Any) -> Any:
            model = self._trainer.mp.cast_to_compute(model)
            mask = AttentionMask.causal().with_segment_ids(segments)
            activations, _ = split_activations(model.activations(tokens, attn_mask=mask, pos_ids=positions))
            loss, best = fused_cross_entropy_loss_and_logsumexp_penalty(
                activations.astype(jax.numpy.float32),
                model.get_lm_head().astype(jax.numpy.float32),
                Contract=model.Embed,
                Label=model.Vocab,
                target_y=targets,
                reduction=None,
                return_argmax=True,
            )
            return loss.rearrange(("batch", "position")), (best == targets).rearrange(("batch", "position"))

        return haliax.named_jit(losses, axis_resources=self._trainer.compute_axis_mapping, out_axis_resources={})

    def generate(self, prompts: Sequence[Sequence[int]], how: Generation) -> list[list[int]]:
        """Tokens that follow each prompt, up to the one that ends a text."""
        import haliax
        import jax
        from levanter.inference.engine import Request
        from levanter.inference.jit_scheduler import SeqDecodingParams

        self._refuse_unknown_token(max((max(prompt) for prompt in prompts), default=0))
        engine = self._engine()
        stop = haliax.named(jax.numpy.asarray([[self.end_token]], jax.numpy.int32), ("stop_seq", "position"))
        made: list[list[int]] = []
        for start in range(0, len(prompts), _SEQUENCES_AT_ONCE):
            some = prompts[start : start + _SEQUENCES_AT_ONCE]
            requests = [
                Request(
                    prompt_tokens=[int(token) for token in prompt],
                    request_id=number,
                    n_generations=1,
                    decode_params=SeqDecodingParams(
                        max_num_tokens=jax.numpy.array(len(prompt) + how.most_tokens, jax.numpy.int32),
                        stop_tokens=stop,
                        temperature=jax.numpy.array(how.temperature, jax.numpy.float32),
                        top_p=jax.numpy.array(how.top_p, jax.numpy.float32),
                        key=jax.random.fold_in(jax.random.PRNGKey(how.seed), start + number),
                    ),
                )
                for number, prompt in enumerate(some)
            ]
            made += [_before(tokens, self.end_token) for tokens in engine.generate(requests).tokens]
        return made

    def _engine(self) -> Any:
        import jax.numpy
        from levanter.inference.engine import InferenceEngine, InferenceEngineConfig

        if not hasattr(self._model, "initial_cache"):
            raise DataError(
                f"{type(self._model).__name__} cannot generate text with Levanter's engine: leave out tasks that do"
            )
        if self.longest not in self._engines:
            pages = -(-self.longest // _PAGE_TOKENS)
            config = InferenceEngineConfig(
                max_seq_len=self.longest,
                max_pages=pages * _SEQUENCES_AT_ONCE,
                page_size=_PAGE_TOKENS,
                max_seqs=_SEQUENCES_AT_ONCE,
                max_seqs_in_prefill=_SEQUENCES_AT_ONCE,
                max_prefill_size=self.longest * _SEQUENCES_AT_ONCE,
                max_rounds=_ROUNDS,
                max_stop_seqs=1,
                max_stop_tokens=1,
                compute_dtype=self._trainer.mp.compute_dtype or jax.numpy.float32,
            )
            self._engines[self.longest] = InferenceEngine.from_model_with_config(
                model=self._model,
                tokenizer=self.tokenizer,
                config=config,
                axis_resources=self._trainer.compute_axis_mapping,
            )
        return self._engines[self.longest]


def prepare_libraries(*, offline: bool) -> None:
    """Call before JAX and the Hugging Face libraries are imported, because they read these variables then."""
    os.environ.setdefault("WANDB_MODE", "disabled")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TQDM_DISABLE", "1")  # Bars fill a log.
    # lm-eval's bootstrap: processes that are forked from one in which JAX has threads may wait for ever.
    os.environ.setdefault("DISABLE_MULTIPROC", "1")
    quiet_libraries()
    if offline:
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1")


@contextlib.contextmanager
def loaded(
    files: ModelFiles, *, precision: Precision = "float32", longest: int | None = None, batch_rows: int = 8
) -> Iterator[LoadedModel]:
    """The model of these files, on all devices of this host."""
    import jax
    import jmp
    from levanter.compat.hf_checkpoints import load_tokenizer
    from levanter.distributed import DistributedConfig
    from levanter.tracker import NoopConfig
    from levanter.trainer import TrainerConfig
    from levanter.utils.tree_utils import inference_mode

    if jax.process_count() > 1:
        raise DataError("evaluation runs on one host: ask for resources of one machine")
    devices = jax.device_count()
    batch_rows = -(-batch_rows // devices) * devices
    trainer = TrainerConfig(
        require_accelerator=False,
        tracker=NoopConfig(),
        mp=jmp.get_policy(f"params=float32,compute={precision},output=float32"),
        train_batch_size=batch_rows,
        per_device_eval_parallelism=batch_rows // devices,
        distributed=DistributedConfig(initialize_jax_distributed=False),
    )
    with settings_here(files) as settings, trainer.use_device_mesh():
        tokenizer = load_tokenizer(settings, trust_remote_code=False)
        config = _levanter_config(files, settings)
        if longest is not None and longest > config.max_seq_len:
            raise DataError(
                f"{files.path} sees {config.max_seq_len} tokens at once, not {longest}: lower max_length, or leave it"
                " out"
            )
        model = inference_mode(_weights(files, settings, config, tokenizer, trainer), True)
        _refuse_broken(model, files.path)
        yield LoadedModel(model, tokenizer, trainer, longest or config.max_seq_len, batch_rows, precision)


def _refuse_broken(model: Any, path: str) -> None:
    """Weights that are not numbers make every answer the first one, which is right as often as chance, or more."""
    import equinox
    import jax

    for place, weight in jax.tree_util.tree_leaves_with_path(equinox.filter(model, equinox.is_inexact_array)):
        if not bool(jax.numpy.isfinite(weight).all()):
            name = jax.tree_util.keystr(place).partition("[<")[0].lstrip(".")
            raise DataError(f"the weights {name} of {path} are not all numbers (NaN or infinite): was training stable?")


def _levanter_config(files: ModelFiles, settings: str) -> Any:
    from levanter.compat.hf_checkpoints import HFCompatConfig
    from levanter.models.lm_model import LmConfig

    name = files.hugging_face_config["model_type"]
    known = {one: kind for one, kind in LmConfig.get_known_choices().items() if issubclass(kind, HFCompatConfig)}
    kind = known.get(_LEVANTER_NAMES.get(name, name))
    if kind is None:
        raise DataError(
            f"{files.reference_path}: Levanter knows no model_type {name!r}, but {', '.join(sorted(known))}"
        )
    if capping := files.hugging_face_config.get("final_logit_softcapping"):
        raise DataError(
            f"{files.reference_path} caps its logits (final_logit_softcapping {capping}), which Levanter leaves out:"
            " no score would be the model's"
        )
    from transformers import AutoConfig

    return kind.from_hf_config(AutoConfig.from_pretrained(settings, trust_remote_code=False))


def _weights(files: ModelFiles, settings: str, config: Any, tokenizer: Any, trainer: Any) -> Any:
    import haliax
    import jax
    from levanter.compat.hf_checkpoints import HFCheckpointConverter
    from levanter.model_loading import load_levanter_checkpoint

    if files.kind == "levanter":
        vocabulary = haliax.Axis("vocab", int(files.hugging_face_config["vocab_size"]))
        layers = layers_by_themselves(files.path)
        if layers is not None and layers != config.num_layers:
            raise _another_model(files, f"its layers are {layers}, not {config.num_layers}")
        if layers is not None:
            config = replace(config, scan_layers=False)
        try:
            model = load_levanter_checkpoint(
                config,
                files.path,
                Vocab=vocabulary,
                axis_mapping=trainer.parameter_axis_mapping,
                key=jax.random.PRNGKey(0),
            )
        except (FileNotFoundError, ValueError) as error:
            raise _another_model(files, str(error)) from error
        return model if layers is None else _with_layers_in_one(model, trainer)
    prefix = "transformer" if files.hugging_face_config["model_type"] == "gpt2" else None
    converter = HFCheckpointConverter(
        type(config), reference_checkpoint=settings, tokenizer=tokenizer, ignore_prefix=prefix
    )
    return converter.load_pretrained(
        config.model_type,
        ref=files.path,
        config=config,
        axis_mapping=trainer.parameter_axis_mapping,
        dtype=jax.numpy.float32,
    )


def _with_layers_in_one(model: Any, trainer: Any) -> Any:
    """The same model in the only form from which Levanter's engine generates text."""
    import equinox
    import haliax
    from haliax.nn import Stacked

    def in_one(model: Any) -> Any:
        layers = model.transformer.layers
        arrays = haliax.tree_util.tree_map(lambda *parts: haliax.stack(layers.Block, parts), *layers.blocks)
        stacked = Stacked(arrays, layers.Block, layers.gradient_checkpointing)
        return equinox.tree_at(lambda one: one.transformer.layers, model, stacked)

    return haliax.named_jit(in_one, out_axis_resources=trainer.parameter_axis_mapping)(model)


def _another_model(files: ModelFiles, reason: str) -> DataError:
    return DataError(
        f"the checkpoint {files.path} cannot be read as the model that {files.reference_path}/config.json describes"
        f" ({reason}): give a Hugging Face folder of the same model as reference_path"
    )


def _filled(array: Array, rows: int) -> Array:
    """With rows of padding, so that each batch has the same shape."""
    import numpy

    if len(array) == rows:
        return array
    return numpy.concatenate([array, numpy.repeat(array[-1:], rows - len(array), axis=0)])


def _before(tokens: Sequence[int], end: int) -> list[int]:
    kept = [int(token) for token in tokens if token >= 0]
    return kept[: kept.index(end)] if end in kept else kept
