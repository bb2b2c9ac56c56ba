"""An npm package without npm: from the registry that npm would use, by its settings.

It uses `NPM_CONFIG_REGISTRY`, and from `.npmrc` files (the user's, then the machine's) `registry`, `@scope:registry`
and `//host/:_authToken`, with `${VARIABLES}`. Without a setting there is no registry: npm knows its own address, and we
do not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.download.fetching import Fetcher
from marin_rules.pipeline.download.partial import Partial
from marin_rules.pipeline.download.sources import RemoteFile

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class NoRegistry(Exception):
    """No setting names one."""


def fetch_from_registry(package: str, version: str, partial: Partial, fetcher: Fetcher) -> None:
    """The package's `.tgz`, whose digest the caller knows better than the registry."""
    settings = _settings()
    scope = package.partition("/")[0] if package.startswith("@") else ""
    registry = settings.get(f"{scope}:registry") if scope else None
    registry = registry or settings.get("registry")
    if not registry:
        raise NoRegistry
    registry = registry.rstrip("/")
    fetcher = replace(fetcher, authorize=_authorization(settings, registry))
    body, _ = fetcher.get_small(f"{registry}/{quote(package, safe='@')}")
    try:
        address = json.loads(body)["versions"][version]["dist"]["tarball"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"npm package {package}: the registry has no version {version}") from None
    told, ours = urlsplit(address), urlsplit(registry)
    if told.netloc != ours.netloc:  # What npm calls replace-registry-host.
        address = registry + told.path
    elif told.scheme != ours.scheme:  # A token that was given for https is not sent without.
        address = told._replace(scheme=ours.scheme).geturl()
    partial.start_over("")
    fetcher.until_whole(RemoteFile(address, f"{package} {version}"), partial)


def _settings() -> dict[str, str]:
    """As npm reads them, the strongest last."""
    files = [Path("/usr/etc/npmrc"), Path("/usr/local/etc/npmrc"), Path("/etc/npmrc")]
    files.append(Path(os.environ.get("NPM_CONFIG_USERCONFIG") or Path.home() / ".npmrc"))
    found: dict[str, str] = {}
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                found[name.strip()] = _VARIABLE.sub(
                    lambda match: os.environ.get(match[1], ""), value.strip().strip("\"'")
                )
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            found["registry"] = os.environ[name]
    return found


def _authorization(settings: dict[str, str], registry: str) -> Callable[[Any], Any] | None:
    place = registry.partition(":")[2]
    token = settings.get(f"{place}/:_authToken") or settings.get(f"{place}:_authToken")
    if not token:
        return None

    def authorize(request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return authorize
