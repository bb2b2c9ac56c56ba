"""fastText, whichever package provides it, with every prediction checked.

Several packages install a module named `fasttext`: `fasttext` and `fasttext-wheel` train and predict, and
`fasttext-predict` only predicts. With numpy 2, `predict` of the first two raises for one text, and for a list some
builds silently give every label the best label's score. So predictions are taken from the binding below `predict`,
which does not use numpy and is the same in all of them. Each prediction is checked too: a broken library must not fill
a corpus with wrong scores.

Text is given as fastText reads a training file: one line, words divided by spaces. A label's prefix or the mark of a
line's end within the text would be obeyed instead of read, so both are broken up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import is_url, open_to_read

PREFIX = "__label__"
_END_OF_LINE = "</s>"

_TOLERANCE = 1e-3
_ADDED = 1e-5
"""What fastText itself adds to each probability, before it takes a logarithm."""


def one_line(text: str) -> str:
    """A text as fastText may see it."""
    line = " ".join(text.replace("\0", " ").split())
    if PREFIX in line:
        line = line.replace(PREFIX, "label ")
    return line.replace(_END_OF_LINE, "< /s>") if _END_OF_LINE in line else line


class FasttextModel:
    """A model that classifies texts; its file is local, or at a URL."""

    def __init__(self, path: str) -> None:
        fasttext = library()
        with _as_local_file(path) as file:
            try:
                self._model = fasttext.load_model(file).f
            except (ValueError, AttributeError) as error:
                raise DataError(f"{path} cannot be read as a fastText model by {provider()}: {error}") from error
        self._path = path

    def probabilities(self, text: str) -> dict[str, float]:
        """The scores of all labels, the best first; empty for a text in which the model knows neither a word nor the
        end. Every model that fastText has trained knows that end as a word."""
        found = self.best(text, -1)
        total = sum(found.values())
        if found and abs(total - 1) > _TOLERANCE + 2 * _ADDED * len(found):
            raise DataError(
                f"{provider()} gives labels probabilities that add up to {total:.3f} instead of 1 ({self._path}): the"
                " library is broken, or the model was not trained with loss softmax. Use the environment `fasttext`"
                " of marin-rules, or the package fasttext-predict"
            )
        return found

    def best(self, text: str, labels: int) -> dict[str, float]:
        """The best labels, whose scores need not add up."""
        pairs = self._model.predict(one_line(text) + "\n", labels, 0.0, "strict")
        found = {label.removeprefix(PREFIX): round(min(float(score), 1.0), 6) for score, label in pairs}
        if len(found) != len(pairs):
            raise DataError(f"{provider()} names a label twice ({self._path}): {pairs}. The library is broken")
        return found


def library() -> Any:
    try:
        import fasttext
    except ImportError as error:
        raise DataError(
            "there is no fastText here: give the step the environment `fasttext` (to train and predict) or `data` (to"
            " predict) of marin-rules"
        ) from error
    return fasttext


def provider() -> str:
    """The package and version that the module `fasttext` comes from."""
    from importlib import metadata

    names = sorted(set(metadata.packages_distributions().get("fasttext", [])))
    return " and ".join(f"{name} {metadata.version(name)}" for name in names) or "a module fasttext of no package"


@contextlib.contextmanager
def _as_local_file(path: str) -> Iterator[str]:
    if not is_url(path):
        if not os.path.isfile(path):
            raise DataError(f"there is no fastText model at {path}: is it the output of train_classifier?")
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=".bin") as copy:
        try:
            with open_to_read(path) as file:
                shutil.copyfileobj(file, copy)
        except FileNotFoundError:
            raise DataError(f"there is no fastText model at {path}: is it the output of train_classifier?") from None
        copy.flush()
        yield copy.name
