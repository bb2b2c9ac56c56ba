"""What the cleaners share: parsing, removing elements, formulas as TeX.

Elements are unlinked and never destroyed: if two nested ones are removed, the inner one would be freed twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resiliparse.parse.html import DOMNode, HTMLTree


class Unusable(Exception):
    """A record that is not what the cleaner is for. Its first argument is a fixed reason, the second a detail."""

    @property
    def reason(self) -> str:
        return str(self.args[0])

    @property
    def detail(self) -> str:
        return str(self.args[1]) if len(self.args) > 1 else ""


class Unwanted(Exception):
    """A good record that the cleaner's settings leave out, with a reason that can be counted."""


def parsed(html: str) -> HTMLTree:
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(html)
    if tree.body is None:
        raise Unusable("a page without a body")
    return tree


def remove(nodes: Iterable[DOMNode | None]) -> None:
    for node in nodes:
        if node is not None and node.parent is not None:
            node.parent.remove_child(node)


def remove_matching(tree: HTMLTree, selectors: Iterable[str]) -> None:
    remove(list(tree.body.query_selector_all(", ".join(selectors))))


def put_title(tree: HTMLTree, title: object) -> None:
    """As a heading of the page, if there is one and the page has none."""
    if not isinstance(title, str) or not title.strip() or tree.body.query_selector("h1") is not None:
        return
    heading = tree.create_element("h1")
    heading.append_child(tree.create_text_node(title.strip()))
    first = tree.body.first_child
    if first is None:
        tree.body.append_child(heading)
    else:
        tree.body.insert_before(heading, first)


def formulas_to_tex(tree: HTMLTree) -> None:
    """Each MathML formula becomes `$...$`, or `$$...$$` if it stands alone; one without TeX is left unchanged."""
    for formula in list(tree.body.query_selector_all("math[alttext]")):
        formula.parent.replace_child(tree.create_text_node(tex_of(formula)), formula)


def tex_of(formula: DOMNode) -> str:
    tex = " ".join((formula.getattr("alttext") or "").split())
    if tex.startswith("{\\displaystyle") and tex.endswith("}"):  # Around every formula of MediaWiki.
        tex = tex[len("{\\displaystyle") : -1].strip()
    mark = "$$" if formula.getattr("display") == "block" else "$"
    return f"{mark}{tex}{mark}" if tex else ""
