"""One file from an HTTP server or another file system into a partial file: retried, resumed, and verified.

A cut connection is resumed where it ended, with `Range` and `If-Range`, if the server gave the version a strong ETag or
a date; a server that ignores the range, or now has another version, makes the file start over. A file counts as
whole only if its length was announced and reached, or its size or digest was known before; then everything known is
verified.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.http import (
    LONGEST_WAIT,
    WORTH_REPEATING,
    NotAvailable,
    Transient,
    kind_of_failure,
    seconds_asked_for,
    seconds_to_wait,
    without_secrets,
)
from marin_rules.pipeline.download.partial import Partial
from marin_rules.pipeline.download.progress import Progress
from marin_rules.pipeline.download.sources import RemoteFile

_CHUNK = 1 << 18
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class FetchSettings:
    """How files are fetched. None of it changes the result."""

    connections: int = 8
    """Files at a time, in each task."""

    attempts: int = 6
    """Attempts in a row that bring nothing before a file is given up. One that brings bytes restarts the count."""

    first_wait_seconds: float = 1.0
    """Before the second attempt; twice as long before each further one. A server's `Retry-After` goes first."""

    timeout_seconds: float = 60.0
    """For a connection, and for the next bytes of an answer."""


@dataclass(frozen=True)
class Fetcher:
    """What the fetches of a task share."""

    session: Any
    settings: FetchSettings
    progress: Progress
    authorize: Callable[[Any], Any] | None = None
    """Adds the source's credentials to a request. They are not sent on to another host by a redirect."""

    advice: str = ""
    """What to try when access is refused."""

    def fetch(self, file: RemoteFile, partial: Partial) -> None:
        """Bring the partial file to its end, whole and verified."""
        self.progress.expect_less(partial.size)
        was_wrong = False
        while True:
            if not partial.is_whole:
                self.until_whole(file, partial)
            wrong = fault_of(file, partial)
            if wrong is None:
                return
            partial.start_over("")
            if was_wrong:  # Once may be a transmission error; twice means the file is wrong.
                raise DataError(f"{file.name}: {wrong}. It is not what was asked for: {without_secrets(file.url)}")
            was_wrong = True

    def until_whole(self, file: RemoteFile, partial: Partial) -> None:
        """Attempts until one gets to the end, with waits between them."""
        attempt = self._from_http if file.url.startswith(("http://", "https://")) else self._from_filesystem
        failures = 0
        while True:
            before = partial.size
            try:
                attempt(file, partial)
                partial.flush()
                return
            except Transient as why:
                partial.flush()
                failures = 1 if partial.size > before else failures + 1
                if failures >= self.settings.attempts:
                    raise DataError(
                        f"{file.name}: {why}, {failures} times in a row: {without_secrets(file.url)}. What has arrived"
                        " is kept; run the step again to continue"
                    ) from None
                wait = seconds_to_wait(failures, self.settings.first_wait_seconds, why.wait)
                if wait > LONGEST_WAIT:
                    raise DataError(
                        f"{file.name}: {why}, and the server asks to come back in {wait:,.0f} seconds. Run the step"
                        " again then"
                    ) from None
                print(f"{file.name}: {why}; again in {wait:.1f} s, from byte {partial.size:,}", flush=True)
                time.sleep(wait)

    # --- HTTP

    def get(self, url: str, headers: dict[str, str] | None = None) -> Any:
        """An answer whose body is still to be read. Raises `Transient` or `NotAvailable` for a failure."""
        import requests

        try:
            response = self.session.get(
                url, headers=headers, stream=True, auth=self.authorize, timeout=self.settings.timeout_seconds
            )
        except (requests.TooManyRedirects, ValueError) as error:  # What is wrong with a URL is both.
            raise NotAvailable(f"{without_secrets(url)}: {kind_of_failure(error)}") from None
        except requests.RequestException as error:
            raise Transient(kind_of_failure(error)) from None
        status = response.status_code
        if status in (200, 206, 416):
            return response
        response.close()
        if status in WORTH_REPEATING:
            raise Transient(f"answered with {status}", seconds_asked_for(response.headers))
        advice = f". {self.advice}" if status in (401, 403, 404) and self.advice else ""
        raise NotAvailable(f"{without_secrets(url)} is answered with {status}{advice}")

    def get_small(self, url: str) -> tuple[bytes, Any]:
        """A whole answer and its headers, with the same patience as for a file."""
        failures = 0
        while True:
            try:
                with self.get(url) as response:
                    return b"".join(_chunks(response)), response.headers
            except Transient as why:
                failures += 1
                wait = seconds_to_wait(failures, self.settings.first_wait_seconds, why.wait)
                if failures >= self.settings.attempts or wait > LONGEST_WAIT:
                    raise DataError(f"{without_secrets(url)}: {why}, {failures} times in a row") from None
                time.sleep(wait)

    def _from_http(self, file: RemoteFile, partial: Partial) -> None:
        headers = {}
        if partial.size and partial.validator:
            headers = {"Range": f"bytes={partial.size}-", "If-Range": partial.validator}
        with self.get(file.url, headers) as response:
            total = _announced(response, partial, is_verified=bool(file.sha256 or file.git_sha1))
            for chunk in _chunks(response):
                partial.write(chunk)
                self.progress.add_bytes(len(chunk))
        if total is not None and partial.size != total:
            if partial.size > total:
                partial.start_over("")
            raise Transient(f"{partial.size:,} of {total:,} bytes arrived")
        if total is None and not (file.size or file.sha256 or file.git_sha1 or _ends_by_itself(response)):
            raise NotAvailable(
                f"{file.name}: {without_secrets(file.url)} does not say how long it is, so that a cut would go"
                " unnoticed: give its size or sha256, as RemoteFile(url, size=...)"
            )

    # --- other file systems

    def _from_filesystem(self, file: RemoteFile, partial: Partial) -> None:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(file.url)
        try:
            version = str(filesystem.ukey(path))
            if partial.validator != version:
                partial.start_over(version, filesystem.size(path))
            with filesystem.open(path, "rb") as remote:
                remote.seek(partial.size)
                chunks = iter(lambda: remote.read(_CHUNK), b"")
                while chunk := next(chunks, b""):
                    try:
                        partial.write(chunk)
                    except OSError as error:
                        raise DataError(f"{file.name} cannot be written: {error}") from error
                    self.progress.add_bytes(len(chunk))
            if str(filesystem.ukey(path)) != version or not partial.is_whole:
                partial.start_over("")
                raise Transient("it changed while it was read")
        except FileNotFoundError:
            raise NotAvailable(f"{file.url} is gone") from None
        except OSError as error:
            raise Transient(f"{type(error).__name__} while reading") from None


def fault_of(file: RemoteFile, partial: Partial) -> str | None:
    """How a file that has arrived differs from what is known about it."""
    if file.size is not None and partial.size != file.size:
        return f"it has {partial.size:,} bytes, not {file.size:,}"
    if file.sha256 and partial.sha256() != file.sha256:
        return f"its sha256 is {partial.sha256()}, not {file.sha256}"
    if file.git_sha1 and partial.git_sha1() != file.git_sha1:
        return f"its git hash is {partial.git_sha1()}, not {file.git_sha1}"
    return None


def _announced(response: Any, partial: Partial, *, is_verified: bool) -> int | None:
    """How long the whole file is, if the server says so. Afterwards the partial file is at the position where the
    answer continues.

    A part without the name of its version may be of another one, on a server that ignores `If-Range`: it is accepted
    only if a digest will verify it.
    """
    headers = response.headers
    if response.status_code == 416:
        partial.start_over("")
        raise Transient("the server now has fewer bytes")
    if response.status_code == 206:
        found = _RANGE.fullmatch(headers.get("Content-Range", "").strip())
        validator = _validator(headers)
        is_same = validator == partial.validator or (not validator and is_verified)
        if found is None or int(found[1]) != partial.size or not is_same:
            partial.start_over("")
            raise Transient("the server sent another part than was asked for")
        total = None if found[2] == "*" else int(found[2])
        if None not in (total, partial.total) and total != partial.total:
            partial.start_over("")
            raise Transient("the server sent a part of a file of another length")
        return total
    length = headers.get("Content-Length", "")
    partial.start_over(_validator(headers), int(length) if length.isascii() and length.isdigit() else None)
    return partial.total


def _validator(headers: Any) -> str:
    """A weak ETag names no exact bytes; a date does so to the second."""
    etag: str = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified", "")


def _ends_by_itself(response: Any) -> bool:
    """A chunked answer has an end of its own, whose absence is an error."""
    return "chunked" in response.headers.get("Transfer-Encoding", "").lower()


def _chunks(response: Any) -> Iterator[bytes]:
    """The body as it is sent: what a server calls its encoding is part of the file."""
    from urllib3.exceptions import HTTPError

    chunks = response.raw.stream(_CHUNK, decode_content=False)
    while True:
        try:
            chunk = next(chunks, None)
        except HTTPError as error:
            raise Transient(kind_of_failure(error)) from None
        if chunk is None:
            return
        yield chunk
