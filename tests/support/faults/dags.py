"""Whole experiments under faults: a random DAG of blobs on an emulator, the bytes it must come to, and the verdict."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping
from pathlib import Path

from support.faults.places import BUCKET, LEASE, STATUS, Objects

EXPERIMENT = Path(__file__).with_name("dag_experiment.py")
_REPEATS = 64


class Dag:
    """Steps `mix/0`, `mix/1` and so on, each with up to three of the steps before it as inputs."""

    def __init__(
        self, folder: Path, place: Objects, count: int, seed: int, gates: Mapping[int, Path] | None = None
    ) -> None:
        chance = random.Random(seed)
        self.place = place
        self.inputs = [
            sorted(chance.sample(range(max(0, number - 20), number), min(number, chance.randint(0, 3))))
            for number in range(count)
        ]
        self._shape = folder / "shape.json"
        waits = {str(number): str(path) for number, path in (gates or {}).items()}
        self._shape.write_text(json.dumps({"inputs": self.inputs, "repeats": _REPEATS, "gates": waits}))

    @property
    def environment(self) -> dict[str, str]:
        return {**self.place.environment, "FAULTS_SHAPE": str(self._shape)}

    def blobs(self) -> list[bytes]:
        """What each step must write."""
        made: list[bytes] = []
        for number, inputs in enumerate(self.inputs):
            parts = [hashlib.sha256(made[index]).digest() for index in inputs]
            made.append(hashlib.sha256(f"mix/{number}".encode() + b"".join(parts)).digest() * _REPEATS)
        return made

    def assert_nothing_wrong_counts(self) -> int:
        """Each step that is done has the right bytes and was committed once. Returns how many are done."""
        done = 0
        expected = self.blobs()
        for folder, number in self._folders().items():
            history = self.place.statuses(folder)
            assert history.count(b"SUCCESS") <= 1, (folder, history)
            if b"SUCCESS" in history:
                assert history[-1] == b"SUCCESS", (folder, history)
                assert self.place.read(f"{folder}/blob") == expected[number], folder
                done += 1
        return done

    def assert_finished(self) -> None:
        """Every step is done, with the right bytes, committed once."""
        assert self.assert_nothing_wrong_counts() == len(self.inputs)
        statuses = {self.place.read(f"{folder}/{STATUS}") for folder in self._folders()}
        assert statuses == {b"SUCCESS"}

    def leases(self) -> list[str]:
        return [name for name in self.place.names() if name.endswith(LEASE)]

    def _folders(self) -> dict[str, int]:
        """The output path of each step that has written anything, and its number."""
        found = {}
        for name in self.place.emulator.names(BUCKET):
            matched = re.match(r"out/mix/(\d+)-[0-9a-f]{6}/", name)
            if matched:
                found[f"{self.place.prefix.rpartition('/')[0]}/{matched[0].rstrip('/')}"] = int(matched[1])
        assert len(set(found.values())) == len(found), "a step has two output paths"
        return found
