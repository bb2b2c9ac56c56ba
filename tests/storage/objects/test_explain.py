"""Errors of stores' clients in our words: refused and what to do, not answered, or none of ours."""

import errno
import http.client

import aiohttp
import botocore.exceptions
import google.api_core.exceptions
import google.auth.exceptions
import pytest
import requests

from marin_rules.storage.explain import (
    StorageError,
    UnansweredError,
    explain,
    explained_store_errors,
    http_code,
    missing_client,
)

URL = "gs://bucket/step/.executor_status"


def client_error(status: int, code: str) -> botocore.exceptions.ClientError:
    answer = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(answer, "PutObject")  # type: ignore[arg-type]


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


UNANSWERED = [
    google.api_core.exceptions.ServiceUnavailable("why"),
    google.api_core.exceptions.TooManyRequests("why"),
    google.api_core.exceptions.InternalServerError("why"),
    caused_by(
        google.api_core.exceptions.RetryError("gave up", cause=None), google.api_core.exceptions.BadGateway("why")
    ),
    google.api_core.exceptions.RetryError("gave up", cause=None),
    google.auth.exceptions.TransportError("why"),
    requests.exceptions.ConnectionError("why"),
    requests.exceptions.ReadTimeout("why"),
    requests.exceptions.ChunkedEncodingError("why"),
    client_error(503, "SlowDown"),
    client_error(409, "ConditionalRequestConflict"),
    client_error(500, "InternalError"),
    botocore.exceptions.EndpointConnectionError(endpoint_url="http://x"),
    botocore.exceptions.ReadTimeoutError(endpoint_url="http://x"),
    botocore.exceptions.ConnectionClosedError(endpoint_url="http://x"),
    botocore.exceptions.ResponseStreamingError(error="why"),
    aiohttp.ClientConnectionError("why"),
    aiohttp.ServerDisconnectedError(),
    http.client.IncompleteRead(b"half"),
    ConnectionResetError(errno.ECONNRESET, "why"),
    TimeoutError("why"),
]


@pytest.mark.parametrize("error", UNANSWERED, ids=lambda error: type(error).__name__)
def test_what_is_worth_another_try(error: Exception) -> None:
    explained = explain(error, "write", URL)
    assert type(explained) is UnansweredError
    assert explained.errno == errno.EAGAIN
    assert str(explained).startswith(f"cannot write {URL}: ")


REFUSED = [
    (google.api_core.exceptions.Forbidden("why"), "permission denied", errno.EACCES),
    (client_error(403, "AccessDenied"), "permission denied", errno.EACCES),
    (PermissionError(errno.EACCES, "why"), "permission denied", errno.EACCES),
    (google.api_core.exceptions.Unauthorized("why"), "no valid credentials", errno.EACCES),
    (google.auth.exceptions.DefaultCredentialsError("why"), "gcloud auth application-default login", errno.EACCES),
    (google.auth.exceptions.RefreshError("why"), "no valid credentials", errno.EACCES),
    (botocore.exceptions.NoCredentialsError(), "no valid credentials", errno.EACCES),
    (google.api_core.exceptions.NotFound("why"), "there is no bucket bucket", errno.ENOENT),
    (client_error(404, "NoSuchBucket"), "there is no bucket bucket", errno.ENOENT),
    (google.api_core.exceptions.BadRequest("why"), "the store answered 400", errno.EIO),
    (client_error(301, "PermanentRedirect"), "the store answered 301", errno.EIO),
    (OSError(errno.ENOSPC, "No space left"), "No space left", errno.ENOSPC),
]


@pytest.mark.parametrize(("error", "text", "number"), REFUSED, ids=lambda value: type(value).__name__)
def test_what_a_person_has_to_clear(error: Exception, text: str, number: int) -> None:
    explained = explain(error, "read", URL)
    assert type(explained) is StorageError
    assert text in str(explained)
    assert URL in str(explained)
    assert explained.errno == number


@pytest.mark.parametrize("error", [KeyError("a"), ZeroDivisionError(), AssertionError("why")], ids=repr)
def test_what_is_no_trouble_of_a_store_passes(error: Exception) -> None:
    assert explain(error, "read", URL) is None
    with pytest.raises(type(error)), explained_store_errors("read", URL):
        raise error


@pytest.mark.parametrize("error", [FileNotFoundError(URL), FileExistsError(URL), UnansweredError(0, "x")], ids=repr)
def test_what_says_enough_by_itself_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, explained_store_errors("read", URL):
        raise error
    assert caught.value is error


def test_the_cause_is_kept() -> None:
    cause = google.api_core.exceptions.Forbidden("why")
    with pytest.raises(StorageError) as caught, explained_store_errors("read", URL):
        raise cause
    assert caught.value.__cause__ is cause
    assert caught.value.filename == URL


def test_a_long_text_of_a_client_is_cut_and_put_on_one_line() -> None:
    explained = explain(google.api_core.exceptions.Forbidden("a\n" * 1000), "read", URL)
    assert len(str(explained)) < 600
    assert "\n" not in str(explained)


def test_the_code_is_found_behind_other_errors() -> None:
    inner = google.api_core.exceptions.TooManyRequests("why")
    assert http_code(caused_by(RuntimeError("outer"), caused_by(OSError("middle"), inner))) == 429
    assert http_code(RuntimeError("none")) is None
    assert http_code(client_error(412, "PreconditionFailed")) == 412


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("gs://b/a", r"marin-rules\[gcp\]"),
        ("gcs://b/a", r"marin-rules\[gcp\]"),
        ("s3://b/a", r"marin-rules\[s3\]"),
        ("abfs://b/a", "fsspec filesystem"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(url: str, advice: str) -> None:
    with pytest.raises(StorageError, match=rf"cannot use {url}: no module.*{advice}"):
        raise missing_client(url, ImportError("no module"))
