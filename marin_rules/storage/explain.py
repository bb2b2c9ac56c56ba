"""What went wrong with a store, in terms that a person can act on, whichever client noticed it.

There are three kinds of trouble. If a person must clear it, `StorageError` names the path, the cause and what to do.
If the store did not answer or asked for patience, `UnansweredError` says that it is worth another try. Anything else
passes through.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

from marin_rules.errors import MarinRulesError


class StorageError(MarinRulesError, OSError):
    """Storage refused, and a person has to act. The text is one paragraph that says how."""

    def __str__(self) -> str:
        return str(self.strerror)


class UnansweredError(StorageError):
    """The store did not answer, or asked for patience. A change may have been made: look before changing it again."""


_CREDENTIALS = {
    "gs": "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file.",
    "s3": "Run `aws configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
}
_EXTRAS = {"gs": "gcp", "gcs": "gcp", "s3": "s3"}

_TRY_AGAIN_CODES = frozenset({408, 409, 425, 429})
"""In addition to all from 500 on. S3 answers 409 to one of two conditional writes that arrive at the same moment."""

_DENIED_NAMES = ("AccessDenied", "Forbidden", "PermissionError")
_CREDENTIAL_NAMES = (
    "DefaultCredentialsError",
    "RefreshError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "NoAuthTokenError",
    "TokenRetrievalError",
)
_UNANSWERED_NAMES = (
    "ConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ChunkedEncodingError",
    "RetryError",
    "TransportError",
    "DataCorruption",
    "EndpointConnectionError",
    "ConnectionClosedError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "IncompleteReadError",
    "ResponseStreamingError",
    "HTTPClientError",
    "ClientError",  # of aiohttp; that of botocore has a code and is recognised by it first
    "TimeoutError",
    "IncompleteRead",
    "ChecksumError",
)


@contextlib.contextmanager
def explained_store_errors(action: str, url: str) -> Iterator[None]:
    """Turn the errors of a store's client into ours."""
    try:
        yield
    except (StorageError, FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        explained = explain(error, action, url)
        if explained is None:
            raise
        raise explained from error


def explain(error: BaseException, action: str, url: str) -> StorageError | None:
    """The error as one of ours, `None` for one that is not the store's."""
    scheme = url.partition("://")[0]
    scheme = "gs" if scheme == "gcs" else scheme
    bucket = url.partition("://")[2].partition("/")[0]
    text = " ".join(str(error).split())[:300] or type(error).__name__
    code = http_code(error)
    names = {kind.__name__ for kind in type(error).__mro__}
    if code == 401 or not names.isdisjoint(_CREDENTIAL_NAMES):
        advice = _CREDENTIALS.get(scheme, "Give the store's client its credentials.")
        return StorageError(errno.EACCES, f"cannot {action} {url}: no valid credentials ({text}). {advice}", url)
    if code == 403 or not names.isdisjoint(_DENIED_NAMES) or text.startswith("Forbidden"):  # so says gcsfs
        return StorageError(
            errno.EACCES,
            f"cannot {action} {url}: permission denied ({text}). Ask for read and write access to the bucket {bucket},"
            " or choose another prefix.",
            url,
        )
    if code == 404:
        return StorageError(
            errno.ENOENT,
            f"cannot {action} {url}: there is no bucket {bucket}. Check its name, make it, or choose another prefix.",
            url,
        )
    if code is not None and (code >= 500 or code in _TRY_AGAIN_CODES):
        return UnansweredError(errno.EAGAIN, f"cannot {action} {url}: the store answered {code} ({text})", url)
    if code is not None:
        return StorageError(errno.EIO, f"cannot {action} {url}: the store answered {code} ({text})", url)
    if not names.isdisjoint(_UNANSWERED_NAMES):
        message = f"cannot {action} {url}: no answer from the store ({text}). Check the network."
        return UnansweredError(errno.EAGAIN, message, url)
    if isinstance(error, OSError):
        return StorageError(error.errno or errno.EIO, f"cannot {action} {url}: {text}.", url)
    return None


def missing_client(url: str, error: BaseException) -> StorageError:
    """A library that the store needs is not installed."""
    scheme = url.partition("://")[0]
    extra = _EXTRAS.get(scheme)
    advice = f"Install it: pip install 'marin-rules[{extra}]'." if extra else "Install the fsspec filesystem for it."
    return StorageError(errno.ENOSYS, f"cannot use {url}: {error}. {advice}", url)


def http_code(error: BaseException) -> int | None:
    """The HTTP status that an error of any client carries, even one that wraps another."""
    seen: BaseException | None = error
    while seen is not None:
        code = _own_code(seen)
        if code is not None:
            return code
        seen = seen.__cause__
    return None


def _own_code(error: Any) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        code = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        code = getattr(error, "code", None) or getattr(response, "status_code", None) or getattr(error, "status", None)
    try:
        return int(code) if code is not None and not callable(code) else None
    except (TypeError, ValueError):
        return None
