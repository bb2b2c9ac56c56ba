"""Harnesses that tests of all folders share."""
