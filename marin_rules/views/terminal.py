"""Text for a terminal that others have written: terminals obey some characters, and would show what is not there."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with a question mark for each character, but for ends of lines, that a terminal would obey."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
