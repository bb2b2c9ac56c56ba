"""What a script logs on the terminal."""

from __future__ import annotations

import logging


def configure_logging(level: int = logging.INFO) -> None:
    """Show log records from `level` on, unless logging was set up before."""
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s")
