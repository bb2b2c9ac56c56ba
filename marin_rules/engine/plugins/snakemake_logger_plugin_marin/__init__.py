"""Found by Snakemake by its name: `--logger marin`. The handler is `marin_rules.engine.console`."""

from marin_rules.engine.console import LogHandler

__all__ = ["LogHandler"]
