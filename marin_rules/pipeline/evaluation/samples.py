"""What an evaluation recorded about each document or item."""

from __future__ import annotations

from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, open_to_read


def read_samples(whose: str, path: str, name: str) -> list[dict[str, Any]]:
    """The lines of `samples/<name>.jsonl` below the output of an evaluation."""
    import orjson

    where = join(path, "samples", f"{name}.jsonl")
    try:
        with open_to_read(where) as file:
            return [orjson.loads(line) for line in file]
    except (FileNotFoundError, ValueError) as error:
        raise DataError(f"{whose}: {where} is missing or damaged ({error}): evaluate it again") from error
