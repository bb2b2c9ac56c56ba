"""The files of a Hugging Face repository at a commit, as its API lists them.

Every file is listed with a digest: those in large-file storage with a sha256, the others with git's. The token goes
only to the hub, not to the storage that it redirects to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urljoin

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.http import without_secrets
from marin_rules.pipeline.download.fetching import Fetcher
from marin_rules.pipeline.download.sources import HubSource, RemoteFile, check_name, chosen

_HUB = "https://huggingface.co"
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')

ADVICE = (
    "Is the repository or the commit misspelt, or is it gated? Then accept its terms on its page, and set HF_TOKEN to a"
    " token that may read it"
)


def authorization() -> Callable[[Any], Any] | None:
    """`HF_TOKEN` as a header. requests would let a .netrc overwrite one that is not given as its `auth`."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        return None

    def authorize(request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return authorize


def hub_files(source: HubSource, fetcher: Fetcher) -> list[RemoteFile]:
    """The files that fit the patterns, with their sizes and digests."""
    hub = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    page: str | None = f"{hub}/api/{source.kind}s/{source.repository}/tree/{source.revision}?recursive=true"
    listed: dict[str, RemoteFile] = {}
    asked: set[str] = set()
    while page:
        if page in asked:
            raise DataError(f"{source.repository}: the hub's listing leads back to where it was: refused")
        asked.add(page)
        body, headers = fetcher.get_small(page)
        said = headers.get("X-Repo-Commit", source.revision)
        if said != source.revision:
            raise DataError(f"{source.repository}: asked for commit {source.revision}, the hub answers with {said}")
        for entry in _entries(body, page):
            if entry.get("type") != "file":
                continue
            file = _file(entry, source, hub)
            if file.name in listed:
                raise DataError(f"{source.repository} lists {file.name} twice")
            listed[file.name] = file
        following = _NEXT.search(headers.get("Link", ""))
        page = urljoin(page, following[1]) if following else None
        if page and not page.startswith(f"{hub}/"):
            raise DataError(f"{source.repository}: the hub's listing continues at another host: refused")
    return list(chosen(listed.items(), source, f"{source.repository} at {source.revision}").values())


def _entries(body: bytes, page: str) -> list[dict[str, Any]]:
    try:
        entries = json.loads(body)
    except ValueError:
        entries = None
    if not isinstance(entries, list) or not all(_is_entry(one) for one in entries):
        raise DataError(f"{without_secrets(page)} does not answer with a list of files. Is HF_ENDPOINT a hub?")
    return entries


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        return False
    large = entry.get("lfs") or {"oid": "", "size": 0}
    return isinstance(large, dict) and all(
        isinstance(one.get("oid", ""), str) and type(one.get("size", 0)) is int and one.keys() >= needed
        for one, needed in ((entry, set()), (large, {"oid", "size"}))
    )


def _file(entry: dict[str, Any], source: HubSource, hub: str) -> RemoteFile:
    name = entry["path"]
    check_name(name, source.repository)
    prefix = "datasets/" if source.kind == "dataset" else ""
    url = f"{hub}/{prefix}{source.repository}/resolve/{source.revision}/{quote(name)}"
    large = entry.get("lfs") or {}
    if large:
        return RemoteFile(url, name, sha256=large["oid"].removeprefix("sha256:"), size=large["size"])
    return RemoteFile(url, name, size=entry.get("size"), git_sha1=entry.get("oid", ""))
