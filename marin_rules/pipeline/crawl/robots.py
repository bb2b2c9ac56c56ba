"""robots.txt as RFC 9309 has it: groups of agents, the longest rule that fits, `*` and `$`; and `Crawl-delay`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

LARGEST = 500 * 1024
"""Bytes of a robots.txt that are read, the least that the standard demands."""


@dataclass(frozen=True)
class Robots:
    """What a site asks of one crawler."""

    rules: tuple[tuple[str, bool], ...] = ()
    """Pattern, and whether it allows."""

    delay: float = 0.0
    """Seconds between two requests."""

    def allows(self, path: str) -> bool:
        """`path` is that of a URL, with its query. The longest pattern decides; of two as long, the one that allows."""
        path = _normal(path)
        fitting = [(len(pattern), allows) for pattern, allows in self.rules if _fits(pattern, path)]
        return max(fitting, default=(0, True))[1]


ALL_ALLOWED = Robots()


@dataclass
class _Group:
    agents: list[str] = field(default_factory=list)
    rules: list[tuple[str, bool]] = field(default_factory=list)
    delay: float = 0.0
    is_begun: bool = False


def parse_robots(text: str, agent: str) -> Robots:
    """The groups that name the agent, or else those for all (`*`), taken together."""
    groups: list[_Group] = []
    for line in text.lstrip("\ufeff").splitlines():
        name, colon, value = line.partition("#")[0].partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon:
            continue
        if name == "user-agent":
            if not groups or groups[-1].is_begun:
                groups.append(_Group())
            groups[-1].agents.append(value.lower())
        elif groups:
            _add(groups[-1], name, value)
    mine = [group for group in groups if agent.lower() in group.agents]
    return _together(mine or [group for group in groups if "*" in group.agents])


def _add(group: _Group, name: str, value: str) -> None:
    if name in ("allow", "disallow"):
        group.is_begun = True
        if value:
            group.rules.append((_normal(value), name == "allow"))
    elif name == "crawl-delay":
        group.is_begun = True
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            group.delay = float(value)


def _together(groups: Iterable[_Group]) -> Robots:
    groups = list(groups)
    rules = tuple(rule for group in groups for rule in group.rules)
    return Robots(rules, max((group.delay for group in groups), default=0.0))


def _normal(path: str) -> str:
    """A canonical spelling of each path, whatever was percent-encoded in it."""
    return quote(unquote(path, errors="surrogateescape"), safe="/*$?=&;:@!'()+,~-._%", errors="surrogateescape")


def _fits(pattern: str, path: str) -> bool:
    """Piece by piece, each at its first place: a regular expression would take ages over a hostile pattern."""
    must_end = pattern.endswith("$")
    first, *pieces = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    place = len(first)
    if not pieces:
        return not must_end or place == len(path)
    last = pieces.pop() if must_end else ""
    for piece in pieces:
        found = path.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return path.endswith(last) and len(path) - len(last) >= place
