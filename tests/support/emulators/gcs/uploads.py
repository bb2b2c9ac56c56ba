"""The three ways to send an object: at once, at once with its metadata, and in chunks that can be resumed."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from support.emulators.common.messages import Answer, Request, json_answer
from support.emulators.gcs.errors import GcsError
from support.emulators.gcs.multipart import Part, split_parts
from support.emulators.gcs.resources import object_document
from support.emulators.gcs.store import Store, StoredObject

_OCTETS = "application/octet-stream"


@dataclass
class Session:
    """A resumable upload. Its conditions are checked when it starts and, what counts, when it completes."""

    bucket: str
    name: str
    fields: dict[str, Any]
    query: dict[str, str]
    received: bytearray = field(default_factory=bytearray)
    completed: StoredObject | None = None


class Uploads:
    """Uploads into one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, Session] = {}
        self.strict = True
        """Refuse bodies of several parts whose lines end with a bare line feed."""

    def reset(self) -> None:
        self._sessions.clear()
        self.strict = True

    def name_of(self, request: Request) -> str | None:
        """The object that this request uploads."""
        if "upload_id" in request.query:
            session = self._sessions.get(request.query["upload_id"])
            return session.name if session else None
        if request.query.get("uploadType") == "multipart":
            metadata, _ = _related(request, self.strict)
            return metadata.get("name") or request.query.get("name")
        if request.query.get("uploadType") == "resumable":
            return request.json().get("name") or request.query.get("name")
        return request.query.get("name")

    def answer(self, bucket: str, request: Request, url: str) -> Answer:
        query = request.query
        if "upload_id" in query:
            return self._continue(request, url)
        name = self.name_of(request)
        if not name:
            raise GcsError(400, "Required: name")
        match query.get("uploadType"):
            case "media":
                fields = {"contentType": request.headers.get("Content-Type", _OCTETS), **_sent_hashes(request)}
                return json_answer(object_document(self._store.write(bucket, name, request.body, fields, query), url))
            case "multipart":
                metadata, content = _related(request, self.strict)
                fields = {"contentType": content.headers.get("content-type", _OCTETS), **metadata}
                return json_answer(object_document(self._store.write(bucket, name, content.body, fields, query), url))
            case "resumable":
                return self._start(bucket, name, request, url)
            case other:
                raise GcsError(400, f"Invalid upload type: {other}")

    def _start(self, bucket: str, name: str, request: Request, url: str) -> Answer:
        self._store.check_write(bucket, name, request.query)
        content_type = request.headers.get("X-Upload-Content-Type", _OCTETS)
        identity = uuid.uuid4().hex
        fields = {"contentType": content_type, **request.json()}
        self._sessions[identity] = Session(bucket, name, fields, dict(request.query))
        location = f"{url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={identity}"
        return Answer(200, headers={"Location": location, "X-GUploader-UploadID": identity})

    def _continue(self, request: Request, url: str) -> Answer:
        session = self._sessions.get(request.query["upload_id"])
        if session is None:
            raise GcsError(404, "Upload session not found")
        if request.method == "DELETE":
            del self._sessions[request.query["upload_id"]]
            # Google's own code for an upload that its client cancelled.
            return Answer(499)
        if session.completed is None:
            total = _receive(session, request)
            if total is None or len(session.received) < total:
                end = len(session.received) - 1
                return Answer(308, headers={"Range": f"bytes=0-{end}"} if session.received else {})
            fields = session.fields | _sent_hashes(request)
            data = bytes(session.received)
            session.completed = self._store.write(session.bucket, session.name, data, fields, session.query)
            session.received.clear()
        # Asked again after it completed (its answer may have been lost), it answers the same.
        return json_answer(object_document(session.completed, url))


def _receive(session: Session, request: Request) -> int | None:
    """Take in a chunk; the upload's whole size, if the request tells."""
    body = request.body
    header = request.headers.get("Content-Range")
    if header is None:
        header = f"bytes 0-{len(body) - 1}/{len(body)}" if body else "bytes */0"
    match = re.fullmatch(r"bytes (?:\*|(\d+)-(\d+))/(\*|\d+)", header)
    if match is None:
        # gcsfs ends an empty file with the range `0--1/0`.
        if header == "bytes 0--1/0":
            return 0
        raise GcsError(400, f"Invalid Content-Range: {header}")
    if match[1] is not None:
        known = len(session.received) - int(match[1])
        if known < 0:
            raise GcsError(400, f"Invalid Content-Range: {header}, only {len(session.received)} bytes are stored")
        session.received += body[known:]
    return None if match[3] == "*" else int(match[3])


def _related(request: Request, strict: bool) -> tuple[dict[str, Any], Part]:
    """The metadata and the content of a `multipart/related` body."""
    parts = split_parts(request.headers.get("Content-Type", ""), request.body, strict=strict)
    if len(parts) != 2:
        raise GcsError(400, "Expected two parts")
    return json.loads(parts[0].body or b"{}"), parts[1]


def _sent_hashes(request: Request) -> dict[str, str]:
    """Checksums in the header `X-Goog-Hash: crc32c=...,md5=...`, by the names of an object's fields."""
    pairs = (pair.strip().partition("=") for pair in request.headers.get("X-Goog-Hash", "").split(","))
    names = {"crc32c": "crc32c", "md5": "md5Hash"}
    return {names[kind]: value for kind, _, value in pairs if kind in names}
