"""Tests of environments, and what they share."""
