"""Found on PYTHONPATH by the children of a process that serves Marin's modules: serves them there as well."""

from marin_rules.compat.children import take_over

take_over(__name__)
