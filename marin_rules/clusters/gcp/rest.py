"""Google's services without a light client, over REST: Compute Engine, IAM, Resource Manager and the like.

Read-only, and for people who wait: a request is retried for a short while, then its trouble is reported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from marin_rules.clusters.gcp.calls import LOGIN, Calls, open_client
from marin_rules.clusters.protocol import RefusedError

EMULATOR_VARIABLE = "GOOGLE_REST_EMULATOR_HOST"
"""Where these services are emulated, as `host:port`; the first part of a path is then the service."""

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Rest:
    """Makes requests with the machine's credentials."""

    def __init__(self, project: str, calls: Calls | None = None) -> None:
        """Raises `RefusedError` if there are no credentials, or if they are no longer valid."""
        self._call = calls or Calls(retry_seconds=10.0, call_seconds=10.0)
        self._emulator = os.environ.get(EMULATOR_VARIABLE)
        self._session, self.account = _open_session(project, is_emulated=bool(self._emulator))

    def get(self, service: str, path: str, parameters: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
        """What is at a path of a service, such as `compute`."""
        return self._ask("GET", service, path, {"params": list(parameters)})

    def post(self, service: str, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a question that has a body."""
        return self._ask("POST", service, path, {"json": dict(body)})

    def close(self) -> None:
        self._session.close()

    def _ask(self, verb: str, service: str, path: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        root = f"http://{self._emulator}/{service}" if self._emulator else f"https://{service}.googleapis.com"
        answer: Mapping[str, Any] = self._call(
            f"ask {service} about {path}", self._send, {"method": verb, "url": f"{root}/{path}", **content}
        )
        return answer

    def _send(self, *, request: Mapping[str, Any], retry: Any, timeout: float) -> Any:
        from google.api_core import exceptions
        from requests.exceptions import RequestException

        def once() -> Any:
            try:
                response = self._session.request(timeout=timeout, **request)
            except RequestException as error:
                raise exceptions.ServiceUnavailable(f"no answer ({_cause(error)})") from error
            if not response.ok:
                raise exceptions.from_http_response(response)
            return response.json()

        return retry(once)()


def _cause(error: BaseException) -> str:
    """What the system says about a connection, without the request and all the layers that repeat it."""
    causes = [error]
    while (next_one := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(next_one)
    words = [found.strerror for found in causes if isinstance(found, OSError) and found.strerror]
    return words[-1] if words else type(error).__name__


def _open_session(project: str, *, is_emulated: bool) -> tuple[Any, str]:
    """A session with credentials that work, and whose they are, in the form of `gcloud --member`."""

    def make() -> tuple[Any, str]:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession, Request
        from google.oauth2.credentials import Credentials as UserCredentials

        if is_emulated:
            return AuthorizedSession(AnonymousCredentials()), "user:YOU"
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        if isinstance(credentials, UserCredentials) and not credentials.quota_project_id:
            credentials = credentials.with_quota_project(project)
        try:
            credentials.refresh(Request())
        except GoogleAuthError as error:
            raise RefusedError(
                f"the credentials for Google Cloud here are not valid: {error}. Run `{LOGIN}`"
            ) from error
        account = getattr(credentials, "service_account_email", None)
        person = getattr(credentials, "account", None) or "YOU"
        return AuthorizedSession(credentials), f"serviceAccount:{account}" if account else f"user:{person}"

    found: tuple[Any, str] = open_client(make)
    return found
