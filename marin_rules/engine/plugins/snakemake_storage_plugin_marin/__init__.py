"""Found by Snakemake by its name: `storage.marin(...)`. The provider is `marin_rules.engine.provider`."""

from marin_rules.engine.provider import StorageObject, StorageProvider

__all__ = ["StorageObject", "StorageProvider"]
