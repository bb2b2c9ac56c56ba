"""Texts of a step's, made fit to be said by its worker."""

from __future__ import annotations


def sayable(text: str) -> str:
    """A text as it can be written everywhere: names of files may hold what is no Unicode."""
    return text.encode(errors="backslashreplace").decode()
