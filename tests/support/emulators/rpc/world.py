"""What the resources of one emulated service share: a folder, and the states that a test holds them in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class World:
    """From one reset to the next."""

    folder: Path
    held: set[Any] = field(default_factory=set)
    """States that nothing leaves."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self) -> None:
        """Let all look again at what is above."""
        self.changed.set()
        self.changed = asyncio.Event()
