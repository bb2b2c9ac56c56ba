"""fsspec's filesystem for a URL, with an error that a person can act on."""

from __future__ import annotations

from typing import Any

from marin_rules.storage.explain import missing_client


def open_filesystem(url: str) -> tuple[Any, str]:
    """The filesystem and what it calls the URL."""
    # Imported here, to spare local runs fsspec and its start-up time.
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(url)  # type: ignore[no-any-return, unused-ignore]
    except (ImportError, ValueError) as error:
        raise missing_client(url, error) from error
