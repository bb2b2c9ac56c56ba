"""URLs of stored data, taken apart; and whether a prefix is one that steps can write to.

A wrong prefix is found here, before anything is planned or written: `gs:/bucket` would be a local folder named
`gs:`, and `gs://bucket/` would give every path an empty part that no listing shows.
"""

from __future__ import annotations

import difflib
import os
import re

from marin_rules.errors import SettingsError

PREFIX_SCHEMES = ("gs", "s3")
"""Object stores that hold steps."""

_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
_ONE_SLASH = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/(?!/)")
_LOCAL_SCHEMES = ("file", "local")
_OTHER_SPELLINGS = {"gcs": "gs", "google": "gs", "s3a": "s3", "s3n": "s3"}


def is_url(path: str) -> bool:
    """Whether `path` belongs to fsspec: `gs://...` does, `/data`, `data` and `file:///data` do not."""
    scheme, separator, _ = path.partition("://")
    return separator != "" and scheme != "" and "/" not in scheme and scheme not in _LOCAL_SCHEMES


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, bucket and key: `gs://b/x/y` -> `("gs", "b", "x/y")`. A local path has neither scheme nor bucket."""
    if not is_url(url):
        return "", "", url
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return scheme, bucket, key


def bucket_root(url: str) -> str:
    """The bucket that a URL is in: `gs://b/x/y` -> `gs://b`. ValueError for a local path."""
    scheme, bucket, _ = split_url(url)
    if not bucket:
        raise ValueError(f"{url!r} is in no bucket")
    return f"{scheme}://{bucket}"


def check_prefix(prefix: str) -> str:
    """The prefix, if steps can be stored below it; otherwise a `SettingsError` that says what to write instead."""
    if not prefix.strip():
        raise SettingsError("the prefix is empty: write a folder such as 'out', or a bucket such as 'gs://my-bucket'")
    mangled = _ONE_SLASH.match(prefix)
    if mangled is not None:
        scheme = _spelt(mangled["scheme"])
        raise SettingsError(
            f"prefix {prefix!r} has one slash after the colon, so it would be a folder named"
            f" {mangled['scheme'] + ':'!r}. Write '{scheme}://{prefix[mangled.end() :]}', or './{prefix}' if you do"
            " mean a folder."
        )
    if prefix.startswith("~"):
        raise SettingsError(
            f"prefix {prefix!r} would be a folder named {prefix.partition('/')[0]!r}: it was not expanded"
            f" to a home directory. Write {os.path.expanduser(prefix)!r}, or './{prefix}' if you mean it."
        )
    scheme, separator, folder = prefix.partition("://")
    if separator and scheme in _LOCAL_SCHEMES:
        raise SettingsError(
            f"prefix {prefix!r}: the functions of steps get paths that they can open. Write the folder itself,"
            f" {folder or '/'!r}."
        )
    if not is_url(prefix):
        return prefix
    given, _, rest = prefix.partition("://")
    _check_scheme(prefix, given, rest)
    if prefix != "".join(prefix.split()):
        raise SettingsError(f"prefix {prefix!r} holds white space. Write {''.join(prefix.split())!r}.")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise SettingsError(
            f"prefix {prefix!r} names no bucket. Write '{given}://BUCKET/{key.strip('/') or 'FOLDER'}'."
        )
    if not _BUCKET.fullmatch(bucket):
        raise SettingsError(
            f"prefix {prefix!r}: {bucket!r} cannot be the name of a bucket. Use lower-case letters, digits, '-', '_'"
            " and '.'."
        )
    if rest.endswith("/"):
        raise SettingsError(f"prefix {prefix!r} ends with a slash. Write {prefix.rstrip('/')!r}.")
    if "//" in rest:
        raise SettingsError(f"prefix {prefix!r} has an empty part. Write '{given}://{re.sub('/+', '/', rest)}'.")
    return prefix


def _check_scheme(prefix: str, given: str, rest: str) -> None:
    if given in PREFIX_SCHEMES:
        return
    meant = _spelt(given)
    if given.strip().lower() == "mirror":
        advice = "mirror:// is for reading. Write the bucket where steps are to be stored, as in 'gs://my-bucket'."
    elif meant == "memory":
        advice = "What is in memory ends with the process that put it there. Write a folder, as in '/tmp/mine'."
    elif meant in PREFIX_SCHEMES:
        advice = f"Write '{meant}://{rest.strip()}'."
    else:
        advice = "Write a folder, or a bucket as in 'gs://my-bucket' or 's3://my-bucket'."
    raise SettingsError(f"prefix {prefix!r}: steps cannot be stored under {given + '://'!r}. {advice}")


def _spelt(scheme: str) -> str:
    """The scheme that was probably meant."""
    plain = scheme.strip().lower()
    if plain in PREFIX_SCHEMES or plain in _LOCAL_SCHEMES or plain == "memory":
        return plain
    close = difflib.get_close_matches(plain, PREFIX_SCHEMES, n=1, cutoff=0.6)
    return _OTHER_SPELLINGS.get(plain) or (close[0] if close else plain)
