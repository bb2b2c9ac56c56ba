"""Conversations that are longer than a sequence: Levanter cuts off their ends, and answers with them, without a word.

What is lost is counted here, and data of which no answer is left is refused: its loss would be 0 from the first step
to the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.tokenize import MASKS, TOKENS
from marin_rules.pipeline.training.data import TrainingData
from marin_rules.pipeline.training.errors import TrainingError

_AT_A_TIME = 1 << 20
"""Masks of tokens."""


@dataclass(frozen=True)
class Cut:
    """What fitting conversations into sequences does to them."""

    conversations: int
    cut: int
    """Those that lose their ends."""

    unanswered: int
    """Those of which nothing to learn is left."""


def check_answers(data: TrainingData, length: int) -> dict[str, dict[str, dict[str, int]]]:
    """What is cut off, by component and split. Refuse data that has no answer left."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    wanted = [(name, "train") for name in data.trained()] + [(name, "validation") for name in data.validation]
    for name, split in wanted:
        component = data.components[name]
        if component.format == "text":
            continue
        path = join(component.path, split)
        cut = cut_conversations(path, length)
        if cut.unanswered == cut.conversations:
            raise TrainingError(
                f"{path} has no answer in the first {length} tokens of any conversation, and sequences hold no more:"
                " nothing would be learned. Give a longer train_seq_len, or shorter conversations"
            )
        found.setdefault(name, {})[split] = asdict(cut)
    return found


def cut_conversations(cache: str, length: int) -> Cut:
    """Of a finished cache with masks."""
    import numpy
    from levanter.store.cache import TreeCache
    from levanter.utils.thread_utils import blocking_wait

    exemplar = {name: numpy.zeros((0,), numpy.int32) for name in (TOKENS, MASKS)}
    conversations = TreeCache.load(cache, exemplar=exemplar)
    ends = numpy.array(conversations.jagged_array_tree()[MASKS].offsets[0 : len(conversations) + 1].read().result())
    ends[0] = 0  # The store has the number of rows there.
    starts = ends[:-1][numpy.diff(ends) > length]
    unanswered = 0
    at_a_time = max(1, _AT_A_TIME // length)
    for first in range(0, len(starts), at_a_time):
        masks = blocking_wait(
            conversations.get_flat_field_batch(MASKS, starts[first : first + at_a_time].tolist(), length)
        )
        # Nothing comes before the first token from which it could be learned.
        unanswered += sum(not mask[1:].any() for mask in masks)
    return Cut(len(conversations), len(starts), unanswered)


def what_is_cut(found: Mapping[str, Mapping[str, Mapping[str, int]]], length: int) -> list[str]:
    """A line for each set that loses anything."""
    return [
        f"{name} ({split}): conversations that lose their ends, as sequences have {length} tokens: {counts['cut']} of"
        f" {counts['conversations']}; without any answer left: {counts['unanswered']}"
        for name, splits in found.items()
        for split, counts in splits.items()
        if counts["cut"]
    ]
