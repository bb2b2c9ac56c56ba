"""The emulator's routes: which request means what.

A path that no client of ours uses is a 400 that says so.
"""

from __future__ import annotations

import contextlib

from support.emulators.common.messages import Answer, Call, Request, json_answer
from support.emulators.gcs import conditions
from support.emulators.gcs.batch import batch
from support.emulators.gcs.copies import Copies
from support.emulators.gcs.downloads import download
from support.emulators.gcs.errors import GcsError, not_emulated
from support.emulators.gcs.listing import list_page
from support.emulators.gcs.resources import bucket_document, object_document, storage_layout_document
from support.emulators.gcs.store import Store
from support.emulators.gcs.uploads import Uploads

_API = ("storage", "v1")

QUIRKS = frozenset({"takes bare line feeds"})
"""What Google's service does, as it seems, and its testbench does not: for gcsfs without our mending of its uploads."""


class GcsBackend:
    """Google Cloud Storage behind the front."""

    def __init__(self) -> None:
        self._store = Store()
        self._uploads = Uploads(self._store)
        self._copies = Copies(self._store)
        self.history = self._store.history

    # --- for the control API

    def reset(self) -> None:
        self._store.reset()
        self._uploads.reset()
        self._copies.reset()

    def set_quirks(self, quirks: frozenset[str]) -> None:
        if unknown := quirks - QUIRKS:
            raise ValueError(f"no such quirks: {', '.join(sorted(unknown))}")
        self._uploads.strict = "takes bare line feeds" not in quirks

    def create_bucket(self, name: str, location: str) -> None:
        self._store.create_bucket(name, location)

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self._store.write(bucket, name, data, {}, {})

    def get(self, bucket: str, name: str) -> bytes | None:
        found = self._store.bucket(bucket).objects.get(name)
        return None if found is None else found.data

    def names(self, bucket: str, prefix: str) -> list[str]:
        return sorted(name for name in self._store.bucket(bucket).objects if name.startswith(prefix))

    # --- for clients

    def describe(self, request: Request) -> Call:
        call = Call(request.method, request.path, request.raw_query)
        match _route(request):
            case ("upload", "b", bucket, "o"):
                call.bucket = bucket
                with contextlib.suppress(GcsError, ValueError):  # malformed: the answer will say so
                    call.object = self._uploads.name_of(request)
            case ("b", bucket, "o", name, *_) | ("xml", bucket, name):
                call.bucket, call.object = bucket, name
                call.download = request.method == "GET" and (
                    request.query.get("alt") == "media" or _route(request)[0] == "xml"
                )
            case ("b", bucket, *_):
                call.bucket = bucket
        return call

    def refuse(self, status: int) -> Answer:
        return GcsError(status).answer()

    def answer(self, request: Request) -> Answer:
        try:
            return self._dispatch(request, f"http://{request.headers.get('Host')}")
        except GcsError as error:
            return error.answer()
        except (ValueError, KeyError) as error:
            return GcsError(400, f"malformed request: {error!r}").answer()

    def _dispatch(self, request: Request, url: str) -> Answer:
        match _route(request):
            case ("batch", *_):
                return batch(request, self.answer)
            case ("upload", "b", bucket, "o"):
                self._store.bucket(bucket)
                return self._uploads.answer(bucket, request, url)
            case ("b",):
                return self._buckets(request)
            case ("b", bucket):
                return self._bucket(bucket, request)
            case ("b", bucket, "storageLayout"):
                return json_answer(storage_layout_document(self._store.bucket(bucket)))
            case ("b", bucket, "o") if request.method == "GET":
                return self._list(bucket, request, url)
            case ("b", bucket, "o", name) | ("xml", bucket, name):
                return self._object(bucket, name, request, url)
            case ("b", bucket, "o", name, "compose"):
                return json_answer(object_document(self._copies.compose(bucket, name, request), url))
            case ("b", bucket, "o", name, "rewriteTo", "b", to_bucket, "o", to_name):
                return self._copies.rewrite(bucket, name, to_bucket, to_name, request, url)
            case ("b", bucket, "o", name, "copyTo", "b", to_bucket, "o", to_name):
                source = self._copies.source(bucket, name, request.query)
                return json_answer(object_document(self._copies.copy(source, to_bucket, to_name, request), url))
            case ("b", bucket, "o", name, "moveTo", "o", to_name):
                return json_answer(object_document(self._copies.move(bucket, name, to_name, request), url))
        raise not_emulated(f"{request.method} {request.raw_path}")

    def _buckets(self, request: Request) -> Answer:
        if request.method == "POST":
            document = request.json()
            fields = {key: value for key, value in document.items() if key in ("labels", "storageClass")}
            created = self._store.create_bucket(document["name"], document.get("location") or "US", fields)
            return json_answer(bucket_document(created))
        prefix = request.query.get("prefix", "")
        found = [self._store.buckets[name] for name in sorted(self._store.buckets) if name.startswith(prefix)]
        return json_answer({"kind": "storage#buckets", "items": [bucket_document(bucket) for bucket in found]})

    def _bucket(self, name: str, request: Request) -> Answer:
        bucket = self._store.bucket(name)
        conditions.check(bucket, request.query, reading=request.method == "GET")
        match request.method:
            case "GET":
                return json_answer(bucket_document(bucket))
            case "PATCH":
                bucket.fields |= {key: value for key, value in request.json().items() if key == "labels"}
                bucket.metageneration += 1
                return json_answer(bucket_document(bucket))
            case "DELETE":
                if bucket.objects:
                    raise GcsError(409, "The bucket you tried to delete is not empty.")
                del self._store.buckets[name]
                return Answer(204)
        raise not_emulated(f"{request.method} of a bucket")

    def _list(self, bucket: str, request: Request, url: str) -> Answer:
        page = list_page(self._store.bucket(bucket), request.query)
        document = {"kind": "storage#objects", "items": [object_document(found, url) for found in page.objects]}
        if page.prefixes:
            document["prefixes"] = page.prefixes
        if page.next_token:
            document["nextPageToken"] = page.next_token
        return json_answer(document)

    def _object(self, bucket: str, name: str, request: Request, url: str) -> Answer:
        found = self._store.live(bucket, name, request.query.get("generation"))
        reading = request.method in ("GET", "HEAD")
        conditions.check(found, request.query, reading=reading)
        match request.method:
            case "GET" | "HEAD" if request.query.get("alt") == "media" or _route(request)[0] == "xml":
                return download(found, request)
            case "GET":
                return json_answer(object_document(found, url))
            case "PATCH" | "PUT":
                self._store.patch(found, request.json())
                return json_answer(object_document(found, url))
            case "DELETE":
                self._store.delete(found)
                return Answer(204)
        raise not_emulated(f"{request.method} of an object")


def _route(request: Request) -> tuple[str, ...]:
    """The path without the API's version.

    `b/...` for the JSON API, `upload/b/...` for its uploads, `batch`, and `xml`, bucket, name for the XML API, which
    is anything else. The JSON API serves content under `/download/` too.
    """
    segments = request.segments
    if segments[0] == "batch":
        return ("batch",)
    if segments[0] == "upload":
        return ("upload", *segments[3:])
    if segments[0] == "download":
        return segments[3:]
    if segments[:2] == _API:
        return segments[2:]
    return ("xml", segments[0], "/".join(segments[1:]))
