"""Errors in data, with the file's name."""

from __future__ import annotations

from marin_rules import MarinRulesError


class DataError(MarinRulesError):
    """Input that a stage refuses, or an account that does not add up."""


class DamagedShard(DataError):
    """A file that ends too early, or is not in the format of its name."""
