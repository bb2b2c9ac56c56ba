"""Credentials in URLs: refused in requirements, which are recorded, and hidden in uv's output.

`${NAME}` is not a credential: uv replaces it with the variable's value when it installs.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_USER = re.compile(r"(?<=://)[^/\s'\"`]+@")
_SECRET_QUERY = re.compile(
    r"(?P<name>[?&][^=&#\s]*(?:auth|credential|key|passw|secret|sig|token)[^=&#\s]*=)(?P<value>[^&#\s'\"`]+)",
    re.IGNORECASE,
)
_VARIABLES = re.compile(r"(?:\$\{[A-Za-z0-9_]+\}:?)+")


def has_credentials(url: str) -> bool:
    """Whether a URL contains more than an address: a user with a password, or a token."""
    location = urlsplit(url)
    user = location.netloc.rpartition("@")[0]
    is_ssh_login = location.scheme.endswith("ssh") and ":" not in user
    if user and not is_ssh_login and not _VARIABLES.fullmatch(user):
        return True
    return any(not _VARIABLES.fullmatch(found["value"]) for found in _SECRET_QUERY.finditer(url))


def without_credentials(text: str) -> str:
    """The text with `***` for whatever may be a credential in one of its URLs."""
    return _SECRET_QUERY.sub(r"\g<name>***", _USER.sub("***@", text))
