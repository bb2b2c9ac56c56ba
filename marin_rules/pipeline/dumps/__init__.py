"""Published dumps and folders of files, as shards of records: the stage `read_dump`."""

from marin_rules.pipeline.dumps.stage import DumpConfig, DumpKind, read_dump

__all__ = ["DumpConfig", "DumpKind", "read_dump"]
