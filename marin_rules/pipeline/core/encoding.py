"""Texts to tokens, with only a Hugging Face tokenizer: no framework is imported for it.

Long texts are encoded in pieces, so that memory stays bounded. A run of 25,000 characters without white space, or of
white space alone, is cut, as Levanter does: byte-pair encoding takes quadratic time on such runs. Other texts are
divided at single spaces between letters or digits, where the pre-tokenizers in use divide too, so that the tokens are
those of the whole text. A tokenizer that puts a space of its own before each text (Llama 2's) is not given that space.

Parallelism is by processes, as in all stages: the library's own threads stay off unless TOKENIZERS_PARALLELISM asks for
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.core.tokenizer_files import TokenizerFolder

if TYPE_CHECKING:
    import numpy

    type Tokens = numpy.ndarray[Any, numpy.dtype[numpy.int32]]

BATCH_CHARACTERS = 1 << 19
"""Roughly this many are encoded at a time. An encoding takes about a hundred bytes a token until its ids are
extracted."""

_LONGEST_RUN = 25_000
_PIECE = 1 << 17
_OVERLONG_RUN = re.compile(rf"\s{{{_LONGEST_RUN},}}|\S{{{_LONGEST_RUN},}}")
_BOUNDARY = re.compile(r"(?<=[0-9A-Za-z]) (?=[0-9A-Za-z])")


class Encoder:
    """Encodes without adding tokens of its own, and without the padding and truncation that its files may ask for."""

    def __init__(self, folder: TokenizerFolder, *, special_tokens_as_text: bool = False) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import numpy
        from tokenizers import Tokenizer

        self._numpy = numpy
        self.tokenizer = Tokenizer.from_file(join(folder.path, "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.tokenizer.encode_special_tokens = special_tokens_as_text
        self.begin_id = self._id(folder.begin_token)
        self.end_id = self._id(folder.end_token)
        added = self.tokenizer.get_added_tokens_decoder()
        self._is_special = numpy.zeros(max([self.tokenizer.get_vocab_size(), *(id + 1 for id in added)]), bool)
        self._is_special[[id for id, token in added.items() if token.special]] = True
        self._keeps_space = self._ids("a b") == self._ids("a") + self._ids(" b")
        self.special_texts = sorted(token.content for token in added.values() if token.special)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text."""
        numpy = self._numpy
        made: list[list[Tokens]] = [[] for _ in texts]
        parts_of = ((number, pieces(text, self._keeps_space)) for number, text in enumerate(texts))
        for batch in batches((number, piece) for number, parts in parts_of for piece in parts):
            encodings = self.tokenizer.encode_batch_fast([piece for _, piece in batch], add_special_tokens=False)
            for (number, _), encoding in zip(batch, encodings, strict=True):
                made[number].append(numpy.array(encoding.ids, numpy.int32))
        return [parts[0] if len(parts) == 1 else numpy.concatenate(parts) for parts in made]

    def count_special(self, tokens: Tokens) -> int:
        return int(self._numpy.count_nonzero(self._is_special[tokens]))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _id(self, token: str | None) -> int | None:
        id: int | None = None if token is None else self.tokenizer.token_to_id(token)
        return id


def pieces(text: str, keeps_space: bool = True) -> Iterator[str]:
    """The text, in parts that can be encoded one by one. A space between two begins the second one, or is left out."""
    if len(text) < _LONGEST_RUN:
        yield text
        return
    last = 0
    for run in _OVERLONG_RUN.finditer(text):
        yield from _at_spaces(text, last, run.start(), keeps_space)
        for start in range(run.start(), run.end(), _LONGEST_RUN):
            yield text[start : min(start + _LONGEST_RUN, run.end())]
        last = run.end()
    yield from _at_spaces(text, last, len(text), keeps_space)


def _at_spaces(text: str, start: int, end: int, keeps_space: bool) -> Iterator[str]:
    while end - start > _PIECE:
        boundary = _BOUNDARY.search(text, start + _PIECE, end)
        if boundary is None:
            break
        yield text[start : boundary.start()]
        start = boundary.start() if keeps_space else boundary.end()
    if start < end:
        yield text[start:end]


def batches[T](texts: Iterable[tuple[T, str]]) -> Iterator[list[tuple[T, str]]]:
    """Texts, with whatever belongs to each, in lists of about `BATCH_CHARACTERS`."""
    batch: list[tuple[T, str]] = []
    characters = 0
    for item in texts:
        batch.append(item)
        characters += len(item[1])
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
