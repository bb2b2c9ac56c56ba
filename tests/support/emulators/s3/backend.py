"""moto behind the front: its application is called in this process, one request at a time.

By itself moto answers in many threads, and its conditional writes race: of 200 rounds of racing writers, 8 had two
winners. What an object held before and after each call goes to its history.
"""

from __future__ import annotations

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import FakeKey, s3_backends
from moto.s3.models import S3Backend as MotoBackend

from support.emulators.common.history import History
from support.emulators.common.messages import Answer, Call, Request
from support.emulators.s3 import conditions, wsgi
from support.emulators.s3.errors import error

_PARTITION = "aws"

_SUBRESOURCES = frozenset(
    {
        "acl",
        "attributes",
        "legal-hold",
        "partNumber",
        "restore",
        "retention",
        "tagging",
        "torrent",
        "uploads",
    }
)
"""Queries that make a call on an object's name about something else than its content."""


class S3Backend:
    """S3 behind the front."""

    def __init__(self) -> None:
        self.history = History()
        self._application = create_backend_app("s3")
        self._quirks: frozenset[str] = frozenset()

    # --- for the control API

    def reset(self) -> None:
        s3_backends[DEFAULT_ACCOUNT_ID][_PARTITION].reset()
        s3_backends.bucket_accounts.clear()
        self.history.clear()
        self._quirks = frozenset()

    def set_quirks(self, quirks: frozenset[str]) -> None:
        if unknown := quirks - conditions.QUIRKS:
            raise ValueError(f"no such quirks: {', '.join(sorted(unknown))}")
        self._quirks = quirks

    def create_bucket(self, name: str, location: str) -> None:
        self._moto.create_bucket(name, location)

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self._moto.put_object(bucket, name, data)
        self.history.record(bucket, name, data)

    def get(self, bucket: str, name: str) -> bytes | None:
        found = self._moto.get_bucket(bucket).keys.get(name)
        return found.value if isinstance(found, FakeKey) else None

    def names(self, bucket: str, prefix: str) -> list[str]:
        return sorted(name for name in self._live(bucket) if name.startswith(prefix))

    # --- for clients

    def describe(self, request: Request) -> Call:
        # Clients use the path style here: an endpoint that is an address leaves no other.
        bucket, _, name = "/".join(request.segments).partition("/")
        call = Call(request.method, request.path, request.raw_query, bucket or None, name or None)
        call.download = call.method == "GET" and bool(name) and not _SUBRESOURCES & request.query.keys()
        return call

    def refuse(self, status: int) -> Answer:
        return error(status)

    def answer(self, request: Request) -> Answer:
        call = self.describe(request)
        if request.method in ("GET", "HEAD") or call.bucket is None:
            return wsgi.call(self._application, request)
        before = self._live(call.bucket, call.object)
        dropped: tuple[str, ...] = ()
        if call.object is not None and _writes_content(request):
            current = before.get(call.object)
            etag = current.etag if current else None
            is_deletion = request.method == "DELETE"
            refused = conditions.refusal(request.headers, etag, deleting=is_deletion, quirks=self._quirks)
            if refused is not None:
                return refused
            dropped = conditions.HEADERS
        answer = wsgi.call(self._application, request, dropped)
        self._record(call.bucket, before, self._live(call.bucket, call.object))
        return answer

    @property
    def _moto(self) -> MotoBackend:
        return s3_backends[DEFAULT_ACCOUNT_ID][_PARTITION]

    def _live(self, bucket: str, name: str | None = None) -> dict[str, FakeKey]:
        """The bucket's objects, or only this one: a write must not cost more the more objects there are.

        Every write makes a new `FakeKey`; other kinds of entry mark deletions.
        """
        found = self._moto.buckets.get(bucket)
        if found is None:
            return {}
        keys = found.keys.items() if name is None else [(name, found.keys.get(name))]
        return {name: key for name, key in keys if isinstance(key, FakeKey)}

    def _record(self, bucket: str, before: dict[str, FakeKey], after: dict[str, FakeKey]) -> None:
        for name, key in after.items():
            if before.get(name) is not key:
                self.history.record(bucket, name, key.value)
        for name in before.keys() - after.keys():
            self.history.record(bucket, name, None)


def _writes_content(request: Request) -> bool:
    if request.method == "POST":
        # Completes an upload in parts; starting one, `?uploads`, writes nothing.
        return "uploadId" in request.query
    # An upload's parts, and aborting it, are no writes of the object.
    return not (_SUBRESOURCES | {"uploadId"}) & request.query.keys()
