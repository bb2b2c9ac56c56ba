"""Markup comes from templates alone: whatever a page is given shows as text, and nothing of it is executed."""

from html.parser import HTMLParser

import jinja2
import pytest

from marin_rules.views.front_page import front_page
from marin_rules.views.overview_page import ExperimentFacts, overview_page
from marin_rules.views.rendering import render
from marin_rules.views.spreadsheet_page import spreadsheet_page
from marin_rules.views.step_facts import Reference, StepFacts
from marin_rules.views.step_page import step_page

EVIL = "</title></script></pre><img src=x onerror='alert(1)'>\"&amp;{{ 7 * 7 }}{% raw %}名"


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def evil_step(index: int = 0) -> StepFacts:
    """A step of which everything that can be chosen is hostile."""
    other = Reference(index - 1, EVIL, EVIL, EVIL)
    run = dict.fromkeys(("error", "host", "finished", "user", "git_commit", "caller_path", "id", "started"), EVIL)
    environment = {"path": EVIL, "conda_file": EVIL, "packages": {EVIL: EVIL}, "pip_packages": {EVIL: EVIL}}
    return StepFacts(
        name=EVIL,
        description=EVIL,
        function=EVIL,
        output_path=EVIL,
        version={EVIL: EVIL},
        config={EVIL: f"{EVIL}{index}"},
        dependencies=[other],
        status="FAILED",
        run=run | {"environment": environment, "gpus": [EVIL], "attempt": EVIL},
        index=index,
        page=EVIL,
        dependents=[other],
        log_path=EVIL,
        log=[EVIL, EVIL],
        returned={EVIL: 1.5 + index},
        report_files=[EVIL],
        missing_report_files=[EVIL],
        troubles=[EVIL],
    )


def overview() -> str:
    return overview_page(ExperimentFacts(EVIL, EVIL, EVIL, EVIL, EVIL), [evil_step(0), evil_step(1)])


PAGES = {
    "overview": overview,
    "step": lambda: step_page(evil_step(), overview=EVIL),
    "spreadsheet": lambda: spreadsheet_page(EVIL, f'"{EVIL.replace(chr(34), chr(34) * 2)}",b\n<b>,2\n'),
}


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_is_given_shows_as_text(name: str) -> None:
    page = Seen(PAGES[name]())
    assert "img" not in page.tags
    assert "b" not in page.tags
    assert page.tags.count("script") == 1
    assert page.tags.count("title") == (3 if name == "overview" else 1)  # Each box of the picture has one, too.
    assert "onerror" not in page.attributes
    assert EVIL in page.text


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_a_whole_document_that_loads_nothing(name: str) -> None:
    text = PAGES[name]()
    page = Seen(text)
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("</body>") == 1
    assert page.tags.count("h1") == 1
    assert not page.attributes.keys() & {"src", "srcset", "action"}
    assert set(page.attributes.get("href", [])) <= {"#"}
    assert "@import" not in text
    assert "url(" not in text


def test_links_name_the_page_they_lead_to() -> None:
    page = Seen(step_page(evil_step(), overview="o.html"))
    assert page.attributes["data-page"] == ["o.html", EVIL, EVIL]
    assert Seen(overview()).attributes["data-from"] == ["0"]


def test_the_frame_holds_the_very_overview_and_its_answer() -> None:
    [document] = Seen(front_page(overview())).attributes["srcdoc"]
    assert document.startswith(overview().partition("</body>")[0])
    inner = Seen(document)
    assert inner.tags.count("script") == 3
    assert "answer" in inner.attributes["id"]
    assert "img" not in inner.tags


def test_a_template_that_lacks_a_fact_is_an_error_and_no_blank() -> None:
    with pytest.raises(jinja2.UndefinedError, match="'title' is undefined"):
        render("spreadsheet.html", description=None, head=[], body=[])
