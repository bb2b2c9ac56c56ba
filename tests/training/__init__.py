"""Tests that need the locked environments of marin-rules' own groups: Levanter, jax, lm-eval, fastText."""
