"""Where pages lead: the links of a page that the rules let pass, as absolute URLs without fragments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urldefrag, urljoin, urlsplit

_LONGEST = 2000
"""Characters of a URL. Longer ones are mostly traps for crawlers."""


@dataclass(frozen=True)
class LinkRules:
    """Which links are kept for a further crawl."""

    same_host: bool = True
    """Only those that stay on the page's host."""

    include: str = ""
    """A regular expression that a URL must contain; empty for all."""

    exclude: str = ""
    """A regular expression that it must not."""

    most_per_page: int = 1000


def links_of(html: str, url: str, rules: LinkRules) -> Iterator[str]:
    """The links of a page, each once, in order; without those that ask not to be followed."""
    from resiliparse.parse.html import HTMLTree

    document = HTMLTree.parse(html).document
    base = document.query_selector("base[href]")
    start = _absolute(url, base.getattr("href").strip()) if base is not None else url
    seen: set[str] = set()
    for anchor in document.query_selector_all("a[href], area[href]"):
        if "nofollow" in (anchor.getattr("rel") or "").lower().split():
            continue
        link = _absolute(start or url, anchor.getattr("href").strip())
        if link is None or link in seen or not _passes(link, url, rules):
            continue
        seen.add(link)
        yield link
        if len(seen) >= rules.most_per_page:
            return


def _absolute(base: str, target: str) -> str | None:
    try:
        link = urldefrag(urljoin(base, target)).url
        parts = urlsplit(link)
        is_page = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        return None
    return link if is_page and len(link) <= _LONGEST and not re.search(r"\s", link) else None


def _passes(link: str, url: str, rules: LinkRules) -> bool:
    if rules.same_host and urlsplit(link).netloc.lower() != urlsplit(url).netloc.lower():
        return False
    if rules.include and not re.search(rules.include, link):
        return False
    return not (rules.exclude and re.search(rules.exclude, link))
