"""A project of Google Cloud as its REST services tell of it, on loopback, in a thread of the test's own process.

Which APIs are enabled, who may do what, quotas, subnetworks and secrets: a test sets the attributes, and asks. A
request that Google's discovery documents do not have is refused, and remembered in `objections`.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from support.emulators.rpc.judge import rest_method

NUMBER = "123456789"
"""Of the project."""


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class RestServer:
    """Services of one project."""

    enabled: set[str] = field(default_factory=set)
    permissions: set[str] = field(default_factory=set)
    """Of whoever asks, in the project and for all its accounts."""

    accounts: dict[str, bool] = field(default_factory=dict)
    """Whether each is disabled."""

    bindings: list[dict[str, Any]] = field(default_factory=list)
    bucket_bindings: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    """The limits of each region."""

    subnetworks: dict[str, bool] = field(default_factory=dict)
    """Whether each, `project/region/name`, has Private Google Access."""

    secrets: dict[str, str] = field(default_factory=dict)
    """The state of each version."""

    values: dict[str, bytes] = field(default_factory=dict)
    """What each version of a secret holds."""

    faults: list[int] = field(default_factory=list)
    """Statuses of the next answers, whatever is asked."""

    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    """What a method, by its id in the discovery documents, answers instead."""

    objections: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """The ids of the methods that were called."""

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def answer(self, verb: str, target: str, body: Any) -> tuple[int, Mapping[str, Any]]:
        """Status and document."""
        parts = urlsplit(target)
        _, service, path = unquote(parts.path).split("/", 2)
        query = parse_qsl(parts.query)
        method = rest_method(service, verb, path)
        if method is None:
            self.objections.append(f"no such method: {verb} {service} {path}")
            return _error(404, self.objections[-1])
        self.calls.append(method.id)
        if wrong := method.objections([name for name, _ in query], body):
            self.objections += wrong
            return _error(400, "; ".join(wrong))
        try:
            if self.faults:
                raise _RefusedError(self.faults.pop(0), "asked for by the test")
            if method.id in self.refusals:
                raise _RefusedError(*self.refusals[method.id])
            return 200, self._methods[method.id](self, path, [value for _, value in query], body)
        except _RefusedError as error:
            return _error(error.status, str(error))

    def _services(self, path: str, names: list[str], body: Any) -> dict[str, Any]:
        found = [name.rpartition("/")[2] for name in names]
        states = {name: "ENABLED" if name in self.enabled else "DISABLED" for name in found}
        services = [{"name": f"projects/{NUMBER}/services/{name}", "state": state} for name, state in states.items()]
        return {"services": services}

    def _test_permissions(self, path: str, query: list[str], body: Any) -> dict[str, Any]:
        granted = [permission for permission in body["permissions"] if permission in self.permissions]
        return {"permissions": granted} if granted else {}

    def _bucket_policy(self, path: str, query: list[str], body: Any) -> dict[str, Any]:
        bucket = path.split("/")[3]
        if bucket not in self.bucket_bindings:
            raise _RefusedError(404, "The specified bucket does not exist.")
        return {"bindings": self.bucket_bindings[bucket]}

    def _account(self, path: str, query: list[str], body: Any) -> dict[str, Any]:
        email = path.rpartition("/")[2]
        if email not in self.accounts:
            raise _RefusedError(404, f"Unknown service account {email}")
        return {"email": email, **({"disabled": True} if self.accounts[email] else {})}

    def _region(self, path: str, query: list[str], body: Any) -> dict[str, Any]:
        region = path.rpartition("/")[2]
        if region not in self.quotas:
            raise _RefusedError(404, f"The resource '{path}' was not found")
        limits = self.quotas[region]
        return {"name": region, "quotas": [{"metric": name, "limit": limit} for name, limit in limits.items()]}

    def _subnetwork(self, path: str, query: list[str], body: Any) -> dict[str, Any]:
        _, _, _, project, _, region, _, name = path.split("/")
        place = f"{project}/{region}/{name}"
        if place not in self.subnetworks:
            raise _RefusedError(404, f"The resource '{path}' was not found")
        return {"name": name, "privateIpGoogleAccess": self.subnetworks[place]}

    def _secret(self, path: str, query: list[str], body: Any) -> dict[str, Any]:
        place = path.removeprefix("v1/")
        if place not in self.secrets:
            raise _RefusedError(404, f"Secret Version [{place}] not found.")
        return {"name": place, "state": self.secrets[place]}

    def _value(self, path: str, query: list[str], body: Any) -> dict[str, Any]:
        place = path.removeprefix("v1/").removesuffix(":access")
        if place not in self.values:
            raise _RefusedError(404, f"Secret Version [{place}] not found.")
        return {"name": place, "payload": {"data": base64.b64encode(self.values[place]).decode()}}

    _methods: Mapping[str, Callable[..., dict[str, Any]]] = field(
        init=False,
        default_factory=lambda: {
            "serviceusage.services.batchGet": RestServer._services,
            "cloudresourcemanager.projects.get": lambda *_: {"projectNumber": NUMBER},
            "cloudresourcemanager.projects.getIamPolicy": lambda server, *_: {"bindings": server.bindings},
            "cloudresourcemanager.projects.testIamPermissions": RestServer._test_permissions,
            "storage.buckets.getIamPolicy": RestServer._bucket_policy,
            "iam.projects.serviceAccounts.get": RestServer._account,
            "iam.projects.serviceAccounts.testIamPermissions": RestServer._test_permissions,
            "compute.regions.get": RestServer._region,
            "compute.subnetworks.get": RestServer._subnetwork,
            "secretmanager.projects.secrets.versions.get": RestServer._secret,
            "secretmanager.projects.secrets.versions.access": RestServer._value,
        },
    )


def _error(status: int, message: str) -> tuple[int, Mapping[str, Any]]:
    return status, {"error": {"code": status, "message": message}}


def _handler_of(server: RestServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            status, document = server.answer(self.command, self.path, body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: tests read the calls."""

    return Handler
