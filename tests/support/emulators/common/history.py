"""Every content an object ever had: what a race really did to it, which its last content does not tell."""

from __future__ import annotations

from collections import defaultdict


class History:
    """Contents by bucket and name, oldest first; a deletion is None."""

    def __init__(self) -> None:
        self._contents: defaultdict[tuple[str, str], list[bytes | None]] = defaultdict(list)

    def record(self, bucket: str, name: str, content: bytes | None) -> None:
        self._contents[bucket, name].append(content)

    def of(self, bucket: str, name: str) -> list[bytes | None]:
        return list(self._contents.get((bucket, name), ()))

    def clear(self) -> None:
        self._contents.clear()
