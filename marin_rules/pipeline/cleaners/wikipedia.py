"""Articles of Wikipedia as MediaWiki renders them (Enterprise dumps, REST API, or the pages themselves).

A record is `{"id", "title", "url", "html"}`. References, infoboxes, boxes of navigation and maintenance, edit links,
figures and the sections that only list links or literature are removed; formulas become TeX; the title becomes the
first line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from marin_rules.pipeline.cleaners.pages import Unwanted, formulas_to_tex, parsed, put_title, remove, remove_matching
from marin_rules.pipeline.core.records import Record

if TYPE_CHECKING:
    from resiliparse.parse.html import DOMNode, HTMLTree

_SURROUNDINGS = (
    *("style", "script", "link", "figure", ".thumb", ".gallery", ".mw-editsection", ".mw-empty-elt", ".mw-jump-link"),
    *("sup.reference", "sup.mw-ref", ".mw-references-wrap", "ol.references", ".reflist", ".mw-cite-backlink"),
    *(".infobox", ".navbox", ".vertical-navbox", ".sidebar", ".metadata", ".ambox", ".hatnote", ".noprint"),
    *("#toc", ".toc", "#coordinates", ".portalbox", ".sistersitebox", ".succession-box", ".authority-control"),
    *(".catlinks", ".printfooter", "img.mwe-math-fallback-image-inline", "img.mwe-math-fallback-image-display"),
)

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


@dataclass(frozen=True)
class WikipediaCleaner:
    sections_without_prose: Sequence[str] = (
        *("See also", "References", "Notes", "Footnotes", "Citations", "Sources", "Bibliography"),
        *("Further reading", "External links"),
    )
    """Headings of sections that are left out with everything below them; case is ignored."""

    keep_tables: bool = False
    """Text has no columns, so cells run into each other; Markdown does."""

    used_fields: ClassVar[Sequence[str]] = ()

    kind: Literal["wikipedia"] = field(default="wikipedia", init=False)

    def clean(self, record: Record) -> HTMLTree:
        tree = parsed(record["html"])
        if tree.body.query_selector(".redirectMsg") is not None:
            raise Unwanted("a redirect")
        remove_matching(tree, (*_SURROUNDINGS, *(() if self.keep_tables else ("table",))))
        self._remove_sections(tree)
        formulas_to_tex(tree)
        put_title(tree, record.get("title"))
        return tree

    def _remove_sections(self, tree: HTMLTree) -> None:
        unwanted = {heading.casefold() for heading in self.sections_without_prose}
        for heading in list(tree.body.query_selector_all(", ".join(_HEADINGS))):
            if heading.text.strip().casefold() in unwanted:
                remove(_section_of(heading))


def _section_of(heading: DOMNode) -> list[DOMNode]:
    """Its element, if the page has one for each section; otherwise what follows, up to the next heading of its rank."""
    first = heading
    if first.parent is not None and "mw-heading" in first.parent.class_list:
        first = first.parent
    if first.parent is not None and first.parent.tag == "section":
        return [first.parent]
    section, node = [first], first.next
    while node is not None and not _is_heading(node, heading.tag):
        section.append(node)
        node = node.next
    return section


def _is_heading(node: DOMNode, lowest: str) -> bool:
    """Whether a node is, or wraps, a heading that ends a section of rank `lowest`."""
    if node.tag in _HEADINGS:
        return bool(node.tag <= lowest)
    if node.tag != "div" or "mw-heading" not in node.class_list:
        return False
    return any(child.tag in _HEADINGS and child.tag <= lowest for child in node.child_nodes)
