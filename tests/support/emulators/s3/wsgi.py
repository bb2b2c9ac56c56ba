"""Calls a WSGI application without a server in between."""

from __future__ import annotations

import io
import sys
from typing import Any
from urllib.parse import unquote_to_bytes

from werkzeug.test import run_wsgi_app

from support.emulators.common.messages import Answer, Request

_SET_BY_THE_FRONT = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})


def call(application: Any, request: Request, dropped: tuple[str, ...] = ()) -> Answer:
    """The application's answer to the request, without these of its headers."""
    chunks, status, headers = run_wsgi_app(application, _environ(request, dropped), buffered=True)
    body = b"".join(chunks)
    kept = {name: value for name, value in headers if name.lower() not in _SET_BY_THE_FRONT}
    if request.method == "HEAD" and "Content-Length" in headers:
        kept["Content-Length"] = headers["Content-Length"]
    return Answer(int(status.split()[0]), body, kept)


def _environ(request: Request, dropped: tuple[str, ...]) -> dict[str, Any]:
    host, _, port = request.headers.get("Host", "127.0.0.1:80").partition(":")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        # WSGI wants the path's bytes, unescaped, as a string of Latin-1 characters.
        "PATH_INFO": unquote_to_bytes(request.raw_path).decode("latin-1"),
        "QUERY_STRING": request.raw_query,
        "RAW_URI": request.target,
        "REQUEST_URI": request.target,
        "SERVER_NAME": host,
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    unwanted = {"content-length", "transfer-encoding", *(name.lower() for name in dropped)}
    for name, value in request.headers.items():
        if name.lower() == "content-type":
            environ["CONTENT_TYPE"] = value
        elif name.lower() not in unwanted:
            environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ
