"""Which requests are worth repeating, and how long to wait first: what downloads and crawls have in common.

No message made here holds a secret: of a URL it shows neither query nor user, of an error its kind alone, because the
texts of HTTP libraries quote signed addresses.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from marin_rules.pipeline.core.errors import DataError

WORTH_REPEATING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that another attempt may change."""

LONGEST_WAIT = 900.0
"""Seconds. A server that asks for more is reported instead of waited for."""


class Transient(Exception):
    """A failure that may not recur; with the seconds that the server asks to wait, if it does."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


class NotAvailable(DataError):
    """An answer that another attempt would not change."""


def without_secrets(url: str) -> str:
    """A URL fit for a log: without user, query and fragment."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    place = host + (f":{parts.port}" if parts.port else "")
    return urlunsplit((parts.scheme, place, parts.path, "", ""))


def kind_of_failure(error: BaseException) -> str:
    """What went wrong on the way, in words."""
    from requests import exceptions as requested
    from urllib3 import exceptions as transport

    if isinstance(error, (requested.Timeout, transport.TimeoutError)):
        return "timed out"
    if isinstance(error, requested.SSLError):
        return "no secure connection (certificate)"
    if isinstance(error, requested.ConnectionError):
        return "could not connect"
    if isinstance(error, requested.TooManyRedirects):
        return "redirected too often"
    if isinstance(error, (requested.InvalidSchema, requested.MissingSchema, requested.InvalidURL)):
        return "redirected to something that is not an http(s) URL"
    if isinstance(error, (requested.ChunkedEncodingError, transport.ProtocolError)):
        return "the connection was cut"
    return type(error).__name__


def seconds_asked_for(headers: Mapping[str, str]) -> float | None:
    """`Retry-After`, which is a number of seconds or a date."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def seconds_to_wait(failures: int, first: float, asked: float | None) -> float:
    """As the server asks, or twice as long after each failure; plus up to half as much, so that many clients do not
    return at the same moment."""
    if asked is not None:
        return asked
    backed_off: float = min(first * 2 ** (failures - 1), LONGEST_WAIT)
    return backed_off * (1 + random.random() / 2)


def new_session(connections: int) -> Any:
    """Connections that are kept open, with the proxies and certificates configured on the machine."""
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    session.headers["User-Agent"] = "marin-rules"
    session.headers["Accept-Encoding"] = "identity"  # Files as they are stored: their sizes and digests are known.
    adapter = HTTPAdapter(pool_connections=connections, pool_maxsize=connections)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session
