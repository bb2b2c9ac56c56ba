"""Text for a terminal: columns, and what others have written.

Terminals obey some characters, and could show things that are not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def printable(text: str) -> str:
    """The text with a question mark for each character that a terminal would obey, except line ends."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
