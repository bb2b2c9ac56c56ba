"""Tokens as Levanter trains and evaluates on them: rows of one sequence each, read from the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.training.baselines import HeldOut
from marin_rules.pipeline.training.data import TrainingData

if TYPE_CHECKING:
    from marin_rules.pipeline.training.baselines import Array

_AT_A_TIME = 1 << 20
"""Tokens. Levanter reads a row after another, which takes twenty times as long as reading them in one piece."""


def rows_of(cache: str, length: int, most: int | None = None) -> Array:
    """The first rows of a finished cache, at most this many: its tokens from the first on, cut into rows."""
    import numpy
    from levanter.store.cache import TreeCache
    from levanter.utils.thread_utils import blocking_wait

    tokens = TreeCache.load(cache, exemplar={"input_ids": numpy.zeros((0,), numpy.int32)})
    count = tokens.flat_field_length("input_ids") // length
    wanted = length * (count if most is None else min(count, most))
    parts = [
        blocking_wait(tokens.get_flat_field_batch("input_ids", [start], min(_AT_A_TIME, wanted - start)))[0]
        for start in range(0, wanted, _AT_A_TIME)
    ]
    flat = numpy.concatenate(parts) if parts else numpy.zeros((0,), numpy.int32)
    return flat.reshape(-1, length)


def training_sample(data: TrainingData, length: int, largest: int) -> Array:
    """Rows of what is trained on, each component by its weight in the first stage that has it."""
    import numpy

    weights = {
        name: next(stage.weights[name] for stage in data.stages if stage.weights.get(name, 0) > 0)
        for name in data.trained()
    }
    total = sum(weights.values())
    parts = [
        rows_of(join(data.components[name].path, "train"), length, max(1, int(largest * weight / total / length)))
        for name, weight in weights.items()
    ]
    return numpy.concatenate(parts)


def held_out(data: TrainingData, length: int, most_rows: int | None, tokenizer: Any) -> HeldOut:
    """The rows that Levanter evaluates on: the first ones of each validation set."""
    import numpy
    from levanter.utils.hf_utils import byte_length_of_token

    rows = numpy.concatenate(
        [rows_of(join(data.components[name].path, "validation"), length, most_rows) for name in data.validation]
    )
    used, counts = numpy.unique(rows[:, 1:], return_counts=True)
    sizes = numpy.array([byte_length_of_token(tokenizer, int(token)) for token in used])
    return HeldOut(rows, int((sizes * counts).sum()))
