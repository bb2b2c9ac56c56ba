"""Found on PYTHONPATH by the children of a process that serves Marin's modules: serves them there as well."""

from marin_rules_stub import take_over  # type: ignore[import-not-found]  # Beside this package.

take_over(__name__)
