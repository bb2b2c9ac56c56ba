"""Texts of a step's code, made safe to print and to store."""

from __future__ import annotations


def sayable(text: str) -> str:
    """The text in a form that can be written anywhere: file names may hold bytes that are not Unicode."""
    return text.encode(errors="backslashreplace").decode()
