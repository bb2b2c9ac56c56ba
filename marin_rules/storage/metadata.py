"""The metadata server of Google's machines: in which zone does this process run, and what attributes does its machine
have?

It is asked for the zone at most once a process (and per address), with a timeout of two seconds; the answer is `None`
if there is none. `GCE_METADATA_HOST` names another address, as for Google's own libraries.

Outside Google Cloud the request takes those two seconds, so callers ask `is_google_machine()` first.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from marin_rules.geography import normalised, region_of_zone

HOST_VARIABLE = "GCE_METADATA_HOST"
TIMEOUT_SECONDS = 2.0

_DEFAULT_HOST = "169.254.169.254"
"""By number: looking up `metadata.google.internal` has no timeout of its own, and can take much longer."""

_LONGEST = 1 << 20
"""Bytes of an answer."""

_PRODUCT_NAME = "/sys/class/dmi/id/product_name"
_FLAVOUR = {"Metadata-Flavor": "Google"}

_zones: dict[str, str | None] = {}
"""Cached answers: a machine does not move."""

_asking = threading.Lock()


def _after_fork() -> None:
    # A thread of the parent may have held it; nobody in the child would release it.
    global _asking
    _asking = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def is_google_machine() -> bool:
    """Whether a metadata server is likely: the machine says it is Google's, or its address is given."""
    if os.environ.get(HOST_VARIABLE):
        return True
    try:
        with open(_PRODUCT_NAME, encoding="utf-8", errors="replace") as file:
            return file.read().startswith("Google")
    except OSError:
        return False


def machine_zone() -> str | None:
    """The zone of the machine, such as `us-central1-a`; None if unknown."""
    host = os.environ.get(HOST_VARIABLE) or _DEFAULT_HOST
    with _asking:
        if host not in _zones:
            text = _ask(host, "zone")
            _zones[host] = None if text is None else normalised(text.rpartition("/")[2]) or None
        return _zones[host]


def machine_region() -> str | None:
    """The region of the machine, such as `us-central1`; None if unknown."""
    zone = machine_zone()
    if zone is not None:
        with suppress(ValueError):
            return region_of_zone(zone)
    return None


def attribute(name: str) -> str | None:
    """The machine's attribute of this name, set when it was created; None if there is none, or it is unknown."""
    return _ask(os.environ.get(HOST_VARIABLE) or _DEFAULT_HOST, f"attributes/{name}")


def _ask(host: str, what: str) -> str | None:
    # Imported here: it takes longer than this package's whole storage room, and most processes never need it.
    import urllib.request

    request = urllib.request.Request(f"http://{host}/computeMetadata/v1/instance/{what}", headers=_FLAVOUR)
    # Never through a proxy: it would answer for its own machine, or not at all.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            # Any web server may answer at this address on other machines (a hotel's log-in page does).
            if response.headers.get("Metadata-Flavor") != "Google":
                return None
            text: str = response.read(_LONGEST).decode()
            return text
    except (OSError, ValueError):
        return None
