"""What keeps a model from being trained, with what to change."""

from __future__ import annotations

from marin_rules import MarinRulesError


class TrainingError(MarinRulesError):
    """A config, data or a device with which training cannot start or continue."""


class NonFiniteLoss(TrainingError):
    """A loss that is not a number, or infinite."""
