"""Requests, answers and log entries as plain values.

A store's backend maps a `Request` to an `Answer` in one synchronous call on the only thread there is. No other request
can come between its checks and its changes: that, and not a lock, makes conditional writes atomic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote


@dataclass(frozen=True)
class Request:
    """A whole request: the front reads the body before anybody looks at it."""

    method: str
    target: str
    """Path and query as they stood on the request line, still escaped: `%2F` inside an object's name matters."""

    headers: Mapping[str, str]
    """Case-insensitive."""

    body: bytes

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The path's parts, unescaped after the split."""
        return tuple(unquote(part) for part in self.raw_path.lstrip("/").split("/"))

    @cached_property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.raw_query, keep_blank_values=True))

    @property
    def path(self) -> str:
        return unquote(self.raw_path)

    @property
    def raw_path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def raw_query(self) -> str:
        return self.target.partition("?")[2]

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; an absent body is an empty one."""
        return json.loads(self.body) if self.body.strip() else {}


@dataclass(frozen=True)
class Answer:
    """A whole response."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    content_type = {"Content-Type": "application/json; charset=UTF-8"}
    return Answer(status, json.dumps(document).encode(), content_type | dict(headers or {}))


@dataclass
class Call:
    """One request of a client, as the log keeps it."""

    method: str
    path: str
    """Unescaped, without the query."""

    query: str = ""
    """As sent."""

    bucket: str | None = None
    object: str | None = None
    """The object acted on. Of an upload too, whose name may stand in its body or belong to its session."""

    download: bool = False
    """It asks for an object's content."""

    fault: str | None = None
    """The kind of fault it met."""

    status: int | None = None
    """The answer's, also if it was lost on its way; None for a call that was not processed."""

    @property
    def place(self) -> str:
        """`bucket/object`, as far as known."""
        return "/".join(part for part in (self.bucket, self.object) if part is not None)
