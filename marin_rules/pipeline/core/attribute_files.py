"""The attributes of a shard's documents, found by id.

The stages write them in the order of the documents, so that one is held at a time; in another order they are also
found, at the cost of memory.
"""

from __future__ import annotations

from typing import Any

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.core.records import attributes_fault
from marin_rules.pipeline.core.shard_files import read_rows
from marin_rules.pipeline.core.shard_map import Shard


class AttributeFile:
    def __init__(self, folder: str, shard: Shard) -> None:
        self._path = join(folder, shard.name)
        self._account = Account(shard.name, lambda row: None)
        self._rows = read_rows(
            self._path, shard.name, self._account, attributes_fault, shard.settings.largest_record_bytes
        )
        self._ahead: dict[str, dict[str, Any]] = {}

    def of(self, id: str) -> dict[str, Any] | None:
        """None if there are none."""
        if (attributes := self._ahead.pop(id, None)) is not None:
            return attributes
        try:
            for row in self._rows:
                if row.record["id"] == id:
                    found: dict[str, Any] = row.record["attributes"]
                    return found
                self._ahead[row.record["id"]] = row.record["attributes"]
        except FileNotFoundError:
            raise DataError(f"{self._path} does not exist: were the attributes made from the same documents?") from None
        return None

    def close(self) -> None:
        """Nothing may be left: attributes of missing documents show that something was mixed up."""
        for row in self._rows:
            self._ahead[row.record["id"]] = row.record["attributes"]
        if self._account.rejected:
            raise DataError(f"{self._path} has bad records: {dict(self._account.rejected)}. Make the attributes again")
        if self._ahead:
            raise DataError(
                f"{self._path} has attributes of {len(self._ahead)} documents that the shard does not have, such as"
                f" {next(iter(self._ahead))!r}: were they made from the same documents?"
            )
