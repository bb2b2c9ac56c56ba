"""robots.txt, by examples of RFC 9309 and of sites."""

from __future__ import annotations

import time

import pytest

from marin_rules.pipeline.crawl.robots import parse_robots

FILE = """\ufeff# A site's wishes
User-agent: otherbot
Disallow: /

User-Agent: MARIN-rules-crawl
user-agent: friend
Disallow: /private/
Allow: /private/open
Disallow: /*.pdf$
Disallow: /search?q=
Disallow: /caf%C3%A9
Crawl-delay: 2.5

User-agent: *
Disallow: /for-others
"""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/private/x", False),
        ("/private/open/x", True),
        ("/a/b.pdf", False),
        ("/a/b.pdf?x", True),
        ("/search?q=1", False),
        ("/search", True),
        ("/café", False),
        ("/caf%c3%a9/x", False),
        ("/for-others", True),
    ],
)
def test_the_longest_rule_of_our_group_decides(path: str, allowed: bool) -> None:
    assert parse_robots(FILE, "marin-rules-crawl").allows(path) is allowed


def test_delay_and_other_groups() -> None:
    assert parse_robots(FILE, "marin-rules-crawl").delay == 2.5
    assert not parse_robots(FILE, "stranger").allows("/for-others")
    assert parse_robots(FILE, "stranger").delay == 0
    assert not parse_robots(FILE, "otherbot").allows("/x")


@pytest.mark.parametrize("text", ["", "Disallow: /", "User-agent: *\nDisallow:", "<html>not found</html>", "\0" * 99])
def test_what_forbids_nothing(text: str) -> None:
    assert parse_robots(text, "marin-rules-crawl").allows("/x")


def test_of_two_rules_as_long_the_one_that_allows() -> None:
    assert parse_robots("User-agent: *\nDisallow: /page\nAllow: /page", "x").allows("/page")


def test_a_hostile_pattern_takes_no_time() -> None:
    robots = parse_robots("User-agent: *\nDisallow: /" + "a*" * 500 + "b$", "x")
    began = time.process_time()
    assert robots.allows("/" + "a" * 2000)
    assert time.process_time() - began < 1
