"""One page: fetched as its site allows, within limits of size, time and redirects.

Private addresses are refused: URLs come from pages, so from anybody, and a machine in a cloud can reach what the public
cannot, such as the service that hands out its credentials. The address is checked once the connection is established
and before anything is sent, so a name that changes its address in between does not get around it. Behind a proxy this
is up to the proxy.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from marin_rules.pipeline.core.http import (
    WORTH_REPEATING,
    kind_of_failure,
    seconds_asked_for,
    seconds_to_wait,
)
from marin_rules.pipeline.crawl.robots import ALL_ALLOWED, LARGEST, Robots, parse_robots

AGENT = "marin-rules-crawl"
_CHUNK = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True)
class VisitSettings:
    """How pages are asked for."""

    seconds_between: float = 1.0
    """Between two requests to a host; more if its robots.txt says so."""

    longest_delay_seconds: float = 60.0
    """A site that asks for more between two requests is left out."""

    attempts: int = 3
    first_wait_seconds: float = 2.0
    longest_wait_seconds: float = 120.0
    """A page whose server asks to wait longer is given up."""

    timeout_seconds: float = 30.0
    """For a connection, and for the next bytes."""

    longest_visit_seconds: float = 300.0
    """For a whole page."""

    largest_page_bytes: int = 16 << 20
    most_redirects: int = 5
    content_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")
    """Which answers are read; others are left out after their headers."""

    private_addresses: bool = False
    """Whether hosts on private, local and link-local addresses may be visited."""


class Answer(NamedTuple):
    """One response, as it is kept."""

    url: str
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class Failed(Exception):
    """Why there is no page: `reason` can be counted, `detail` is particular."""

    def __init__(self, reason: str, detail: str = "", is_dropped: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.detail, self.is_dropped = reason, detail, is_dropped


class _PrivateAddress(Exception):
    pass


class _Repeat(Exception):
    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass
class Visitor:
    """Visits the pages of some hosts, one at a time."""

    settings: VisitSettings
    contact: str
    _session: Any = None
    _robots: dict[str, Robots | Failed] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    """Host -> when its last answer ended. From then on the delay counts: a slow host is not asked more often."""

    def visit(self, url: str) -> list[Answer]:
        """The page's answers: redirects, and the page last. Raises `Failed` if there is no page."""
        answers: list[Answer] = []
        while True:
            robots = self._robots_of(url)
            parts = urlsplit(url)
            if not robots.allows(f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"):
                raise Failed("robots.txt does not allow it", is_dropped=True)
            answer = self._repeatedly(url, robots.delay)
            answers.append(answer)
            if answer.status == 200:
                return answers
            target = next((value for name, value in answer.headers if name.lower() == "location"), "")
            if answer.status not in _REDIRECTS or not target:
                raise Failed(f"answered with {answer.status}")
            if len(answers) > self.settings.most_redirects:
                raise Failed("too many redirects", detail=target)
            url = urljoin(url, target)
            check_url(url)

    def _repeatedly(self, url: str, delay: float) -> Answer:
        failures = 0
        while True:
            self._wait_for_turn(url, delay)
            try:
                return self._ask(url)
            except _Repeat as why:
                failures += 1
                wait = seconds_to_wait(failures, self.settings.first_wait_seconds, why.wait)
                if failures >= self.settings.attempts or wait > self.settings.longest_wait_seconds:
                    raise Failed(str(why)) from None
                time.sleep(wait)

    def _wait_for_turn(self, url: str, delay: float) -> None:
        host = urlsplit(url).netloc.lower()
        between = max(self.settings.seconds_between, delay)
        wait = self._last.get(host, -between) + between - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    def _ask(self, url: str, robots: bool = False) -> Answer:
        try:
            return self._answer(url, robots)
        finally:
            self._last[urlsplit(url).netloc.lower()] = time.monotonic()

    def _answer(self, url: str, robots: bool) -> Answer:
        import requests
        from urllib3.exceptions import HTTPError

        settings = self.settings
        try:
            response = self._opened().get(url, stream=True, allow_redirects=False, timeout=settings.timeout_seconds)
        except (requests.RequestException, HTTPError) as error:
            raise _Repeat(kind_of_failure(error)) from None
        except _PrivateAddress:
            raise Failed("a private address") from None
        except (ValueError, UnicodeError):
            raise Failed("not an http(s) URL") from None
        with response:
            status = response.status_code
            if status in WORTH_REPEATING:
                raise _Repeat(f"answered with {status}", seconds_asked_for(response.headers))
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if status == 200 and not robots and kind not in settings.content_types:
                raise Failed("another content type", is_dropped=True)
            largest = LARGEST if robots else settings.largest_page_bytes
            body = b""
            if status == 200:
                body = b"".join(_limited(response, largest, settings.longest_visit_seconds, robots))
            headers = [(name, value) for name, value in response.raw.headers.items() if name.lower() not in _REWRITTEN]
            headers.append(("Content-Length", str(len(body))))
            return Answer(url, status, response.reason or "", headers, body)

    def _robots_of(self, url: str) -> Robots:
        """Without one everything is allowed; while a site cannot answer, nothing is."""
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        if site not in self._robots:
            try:
                self._robots[site] = self._read_robots(f"{site}/robots.txt")
            except Failed as failure:
                self._robots[site] = failure
        found = self._robots[site]
        if isinstance(found, Failed):
            raise Failed(found.reason, found.detail, found.is_dropped)
        return found

    def _read_robots(self, url: str) -> Robots:
        for _ in range(self.settings.most_redirects + 1):
            self._wait_for_turn(url, 0)
            try:
                answer = self._ask(url, robots=True)
            except _Repeat as why:
                raise Failed(f"no word about robots.txt ({why})") from None
            if answer.status == 200:
                robots = parse_robots(answer.body.decode(errors="replace"), AGENT)
                if robots.delay > self.settings.longest_delay_seconds:
                    raise Failed("robots.txt asks for too long a delay", is_dropped=True)
                return robots
            if answer.status >= 500:  # RFC 9309: then nothing is allowed.
                raise Failed(f"no word about robots.txt (answered with {answer.status})")
            target = next((value for name, value in answer.headers if name.lower() == "location"), "")
            if answer.status not in _REDIRECTS or not target:
                return ALL_ALLOWED
            url = urljoin(url, target)
            check_url(url)
        return ALL_ALLOWED

    def _opened(self) -> Any:
        if self._session is None:
            self._session = _session(self.settings.private_addresses)
            self._session.headers["User-Agent"] = f"{AGENT} (+{self.contact})"
        return self._session


_REWRITTEN = ("transfer-encoding", "content-encoding", "content-length", "set-cookie")
"""Headers that no longer match the stored body, and cookies, which are private."""


def check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and not parts.username and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise Failed("not an http(s) URL")


def _limited(response: Any, largest: int, seconds: float, may_cut: bool) -> Iterator[bytes]:
    """The body, decompressed; the limit applies to the output, so that nothing small becomes large."""
    from urllib3.exceptions import HTTPError

    began, length = time.monotonic(), 0
    chunks = response.raw.stream(_CHUNK, decode_content=True)
    while True:
        try:
            chunk = next(chunks, None)
        except HTTPError as error:
            raise _Repeat(kind_of_failure(error)) from None
        if chunk is None:
            return
        length += len(chunk)
        if length > largest:
            if may_cut:
                yield chunk[: len(chunk) - (length - largest)]
                return
            raise Failed("too large", detail=f"more than {largest} bytes")
        if time.monotonic() - began > seconds:
            raise Failed("timed out", detail=f"after {seconds:.0f} s")
        yield chunk


def _session(private_addresses: bool) -> Any:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    session = requests.Session()
    session.cookies.set_policy(_no_cookies())
    if private_addresses:
        return session

    class Checked:
        def _new_conn(self) -> Any:
            connection = super()._new_conn()  # type: ignore[misc]
            if not _is_public(connection.getpeername()[0]):
                connection.close()
                raise _PrivateAddress
            return connection

    http = type("Http", (Checked, HTTPConnection), {})
    https = type("Https", (Checked, HTTPSConnection), {})
    pools = {
        "http": type("HttpPool", (HTTPConnectionPool,), {"ConnectionCls": http}),
        "https": type("HttpsPool", (HTTPSConnectionPool,), {"ConnectionCls": https}),
    }

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *given: Any, **named: Any) -> None:
            super().init_poolmanager(*given, **named)
            self.poolmanager.pool_classes_by_scheme = pools

    session.mount("http://", Adapter())
    session.mount("https://", Adapter())
    return session


def _no_cookies() -> Any:
    from http.cookiejar import DefaultCookiePolicy

    return DefaultCookiePolicy(allowed_domains=[])


def _is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    return found.is_global and not found.is_multicast
