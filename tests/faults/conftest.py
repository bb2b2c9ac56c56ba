"""Fixtures of the fault suite."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faults.nursery import Nursery
from support.faults.places import Disk, Objects, Place
from support.lab import Lab


@pytest.fixture
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """`make_place("local" | "gcs" | "s3")`: an empty one."""

    def make(kind: str) -> Place:
        if kind == "local":
            return Disk(tmp_path)
        return Objects(request.getfixturevalue(kind), {"gcs": "gs", "s3": "s3"}[kind])

    return make


@pytest.fixture
def make_nursery(tmp_path: Path, lab: Lab) -> Iterator[Callable[..., Nursery]]:
    """`make_nursery(place, count, lifetime=, turns=)`: one a test."""
    made: list[Nursery] = []

    def make(place: Place, count: int, *, lifetime: float | None = None, **options: Any) -> Nursery:
        lifetimes = {} if lifetime is None else {"MARIN_LEASE_LIFETIME_SECONDS": str(lifetime)}
        made.append(
            Nursery(tmp_path, place.prefix, count, {**lab.environment, **place.environment, **lifetimes}, **options)
        )
        return made[-1]

    yield make
    for nursery in made:
        nursery.close()


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """`tell(text)` prints a measurement, whatever pytest captures."""

    def print_it(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}")

    return print_it
