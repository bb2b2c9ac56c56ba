"""Small corpora for the tests of stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.shard_map import list_shards


class Corpus:
    """Folders of shards below a test's folder, written and read by the simplest means."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, shards: Mapping[str, Iterable[Any]]) -> str:
        """A folder of `.jsonl` shards; a record that is text is a line as it stands."""
        for shard, records in shards.items():
            path = self.folder / name / shard
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
            path.write_text("".join(f"{line}\n" for line in lines))
        return str(self.folder / name)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def read(self, name: str) -> dict[str, list[Any]]:
        """All records of all shards, whatever their format."""
        return {
            shard.name: [row.record for row in shard.rows(Account(shard.name, lambda row: None), lambda record: None)]
            for shard in list_shards(self.path(name))
        }

    def records(self, name: str) -> list[Any]:
        return [record for records in self.read(name).values() for record in records]

    def rejects(self, name: str) -> list[Any]:
        files = sorted((self.folder / name / "rejects").rglob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def summary(self, name: str) -> Any:
        return json.loads((self.folder / name / "summary.json").read_text())

    def bytes_of(self, name: str) -> dict[str, bytes]:
        """Every file, as it is."""
        root = self.folder / name
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`as_task(1, 4)`: from now on this process is that task of a step."""

    def become(task: int, tasks: int) -> None:
        from marin_rules import ThisProcess

        for name, value in ThisProcess(task=task, tasks=tasks).to_variables().items():
            monkeypatch.setenv(name, value)

    return become
