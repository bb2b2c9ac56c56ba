"""Warm workers: local jobs are run by processes that have everything imported."""
