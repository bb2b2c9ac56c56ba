"""Where pip looks for packages, translated for uv: for machines that name their index only in pip's settings.

uv does not read those. Without them it would fail where there is no other index, and worse where there is one: it would
mistake a stranger's package for one of our own. If uv's own settings say where to look, nothing is added.

The values may hold credentials. They are for the environment of a uv process, never for a file or a message.
"""

from __future__ import annotations

import configparser
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

_UV_KEYS = ("index", "index-url", "extra-index-url", "find-links", "no-index")
_UV_VARIABLES = ("UV_DEFAULT_INDEX", *(f"UV_{key.upper().replace('-', '_')}" for key in _UV_KEYS))
_PIP_KEYS = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert")


def index_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for uv that mirror pip's settings; none if uv has settings of its own."""
    if any(environment.get(name) for name in _UV_VARIABLES) or _is_index_in_uv_files(environment):
        return {}
    settings = _pip_settings(environment)
    links = [os.path.expanduser(link) for link in settings.get("find-links", "").split()]
    extra = settings.get("extra-index-url", "").split()
    variables = {
        "UV_DEFAULT_INDEX": settings.get("index-url", ""),
        "UV_INDEX": " ".join(extra),
        # To pip all indexes are one, and the best version wins. uv would stop at the first that has the package.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if extra else "",
        "UV_FIND_LINKS": ",".join(links),
        "UV_NO_INDEX": "1" if settings.get("no-index", "").lower() in ("1", "true", "yes", "on") else "",
        "UV_INSECURE_HOST": " ".join(settings.get("trusted-host", "").split()),
        "SSL_CERT_FILE": os.path.expanduser(settings.get("cert", "")),
    }
    return {name: value for name, value in variables.items() if value and not environment.get(name)}


def _pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What applies to `pip install`: a variable, or else `[install]` of the last file that has it, or else
    `[global]`."""
    named = environment.get("PIP_CONFIG_FILE", "")
    files = [] if named == os.devnull else [*_pip_files(environment), *([Path(named)] if named else [])]
    contents = [_read_ini(file) for file in files]
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        for content in contents:
            settings.update({key.replace("_", "-"): value for key, value in content.get(section, {}).items()})
    for key in _PIP_KEYS:
        if value := environment.get(f"PIP_{key.upper().replace('-', '_')}"):
            settings[key] = value
    return settings


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    home = Path.home()
    machine = [Path(folder) / "pip" for folder in _listed(environment, "XDG_CONFIG_DIRS", "/etc/xdg")]
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
    return [folder / "pip.conf" for folder in (*machine, Path("/etc"), home / ".pip", own, Path(sys.prefix))]


def _is_index_in_uv_files(environment: Mapping[str, str]) -> bool:
    machine = [Path(folder) / "uv" for folder in _listed(environment, "XDG_CONFIG_DIRS", "/etc/xdg")]
    own = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "uv"
    files = [folder / "uv.toml" for folder in (*machine, Path("/etc/uv"), own)]
    if named := environment.get("UV_CONFIG_FILE"):
        files.append(Path(named))
    return any(_names_index(file) for file in files)


def _names_index(file: Path) -> bool:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # No such file; or a broken one, which uv itself will report.
    for_pip = content.get("pip", {})
    return any(key in content or key in for_pip for key in _UV_KEYS)


def _read_ini(file: Path) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (OSError, ValueError, configparser.Error):
        return {}  # Unreadable, or not what pip would accept: then pip has no settings there either.
    return {section: dict(parser[section]) for section in parser.sections()}


def _listed(environment: Mapping[str, str], name: str, default: str) -> list[str]:
    return [folder for folder in (environment.get(name) or default).split(os.pathsep) if folder]
