"""The parts of the training step: its config, what it is translated into, and what is kept while it trains.

Only functions import Levanter and JAX, so an experiment is planned without them. `marin_rules.pipeline.train` puts the
parts together.
"""
