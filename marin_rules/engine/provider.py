"""Snakemake's storage provider for steps: a target exists when the status of its step is SUCCESS.

Data never passes through Snakemake: there is nothing to retrieve, store or remove. Steps done before this run have a
constant modification time, so that only identity decides what runs. Statuses are read in bulk before the DAG is built;
a finished step is never looked up again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake_interface_storage_plugins.io import IOCacheStorageInterface, Mtime
from snakemake_interface_storage_plugins.storage_object import StorageObjectRead, StorageObjectWrite
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    Operation,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)

from marin_rules.engine import plan_in_process
from marin_rules.engine.names import SEPARATOR


class StorageProvider(StorageProviderBase):
    """Answers for all steps of the plan in this process."""

    def __post_init__(self) -> None:
        self._local_paths: dict[str, Path] = {}

    def local_path(self, query: str) -> Path:
        """Snakemake requests it several times per job, and paths are slow to build."""
        path = self._local_paths.get(query)
        if path is None:
            path = self._local_paths[query] = self.local_prefix / query
        return path

    @classmethod
    def example_queries(cls) -> list[ExampleQuery]:
        return [
            ExampleQuery(
                query=f"tokenized/books-1a2b3c{SEPARATOR}tokenize",
                type=QueryType.ANY,
                description="The step tokenized/books with the hash 1a2b3c, which the rule tokenize runs.",
            )
        ]

    def use_rate_limiter(self) -> bool:
        return False

    def default_max_requests_per_second(self) -> float:
        return 1000.0

    def rate_limiter_key(self, query: str, operation: Operation) -> str:
        return "marin"

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        return StorageQueryValidationResult(
            query=query, valid=SEPARATOR in query, reason=f"a step's target is <name>-<hash>{SEPARATOR}<rule>"
        )


class StorageObject(StorageObjectRead, StorageObjectWrite):
    """The target of one step."""

    def __post_init__(self) -> None:
        self._key = self.query.rsplit(SEPARATOR, 1)[0]

    def local_suffix(self) -> str:
        return self.query

    def local_path(self) -> Path:
        assert isinstance(self.provider, StorageProvider)
        return self._overwrite_local_path or self.provider.local_path(self.query)

    def cache_key(self, local_suffix: str | None = None) -> str:
        return str(self.local_path()) if local_suffix is None else super().cache_key(local_suffix)

    def get_inventory_parent(self) -> str | None:
        return None

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        key = self.cache_key()
        done = self.exists()
        cache.exists_in_storage[key] = done
        if done:
            cache.mtime[key] = Mtime(storage=self.mtime())
            cache.size[key] = 0

    def exists(self) -> bool:
        return plan_in_process.current().is_done(self._key)

    def mtime(self) -> float:
        return plan_in_process.current().finished_at(self._key)

    def size(self) -> int:
        return 0

    def retrieve_object(self) -> None:
        raise NotImplementedError(f"{self.query} is a step: its data is read by the steps that use it")

    def store_object(self) -> None:
        """The worker has already written the data and the status."""

    def remove(self) -> None:
        """Output of failed steps is kept: it may hold checkpoints, and its status says that it is not done."""

    def cleanup(self) -> None:
        """No local copies are made."""

    def list_candidate_matches(self) -> Iterable[Any]:
        return ()
