"""Text never becomes markup by itself."""

import pytest

from marin_rules.views.markup import as_json, code, join, link, page, raw, status_mark, tag

EVIL = "</script><img src=x onerror='alert(1)'>\"&"


@pytest.mark.parametrize(
    "element",
    [
        tag("p", EVIL),
        tag("p", [EVIL, [EVIL]]),
        tag("p", title=EVIL),
        code(EVIL),
        as_json({EVIL: EVIL}),
        link(EVIL, EVIL),
        link(EVIL, None),
        status_mark(EVIL),
        join("a", EVIL),
    ],
)
def test_what_comes_from_outside_is_escaped(element: object) -> None:
    text = str(element)
    assert "<img" not in text
    assert "</script" not in text
    assert "&lt;img" in text


def test_what_is_markup_already_stays_so() -> None:
    assert str(tag("p", tag("b", 1), " & ", raw("<i>x</i>"), None)) == "<p><b>1</b> &amp; <i>x</i></p>"
    assert str(tag("td", class_="a", data_value=1.5, title=None)) == '<td class="a" data-value="1.5"></td>'


def test_a_page_is_a_whole_document() -> None:
    text = page("<title>", "<about>", tag("p", "body")).text
    assert text.startswith("<!DOCTYPE html><html")
    assert "<h1>&lt;title&gt;</h1>" in text
    assert "&lt;about&gt;" in text
    assert text.count("</body>") == 1
