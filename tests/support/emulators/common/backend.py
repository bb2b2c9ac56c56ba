"""What the front needs of a store."""

from __future__ import annotations

from typing import Protocol

from support.emulators.common.history import History
from support.emulators.common.messages import Answer, Call, Request


class Backend(Protocol):
    """A store behind the front. Nothing here may wait: one call at a time is what makes them atomic."""

    history: History

    def describe(self, request: Request) -> Call:
        """What the request is about, without acting on it."""

    def answer(self, request: Request) -> Answer: ...

    def refuse(self, status: int) -> Answer:
        """An error as the real store words it."""

    def reset(self) -> None:
        """Forget every bucket, object and upload, and their history."""

    def set_quirks(self, quirks: frozenset[str]) -> None:
        """From now on behave as services that differ from the real store."""

    def create_bucket(self, name: str, location: str) -> None: ...

    def put(self, bucket: str, name: str, data: bytes) -> None: ...

    def get(self, bucket: str, name: str) -> bytes | None: ...

    def names(self, bucket: str, prefix: str) -> list[str]: ...
