"""Papers of arXiv as LaTeXML renders them, such as ar5iv's pages.

A record is `{"id", "html"}`. Authors, dates, footnotes, the bibliography, figures, tables, numbers of equations and
LaTeXML's own notes are removed; formulas become TeX, each displayed line on a line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from marin_rules.pipeline.cleaners.pages import (
    Unusable,
    formulas_to_tex,
    parsed,
    put_title,
    remove,
    remove_matching,
    tex_of,
)
from marin_rules.pipeline.core.records import Record

if TYPE_CHECKING:
    from resiliparse.parse.html import HTMLTree

_SURROUNDINGS = (
    *("style", "script", "nav", "header.ltx_page_header", ".ltx_page_footer", ".ltx_page_navbar", ".ar5iv-footer"),
    *(".ltx_authors", ".ltx_dates", ".ltx_classification", ".ltx_note", ".ltx_TOC", ".ltx_ERROR", ".ltx_tag_equation"),
    *(".ltx_eqn_eqno", ".ltx_bibliography", ".ltx_index", ".ltx_figure", ".ltx_table", ".ltx_tag_section"),
    *(".ltx_tag_subsection", ".ltx_tag_subsubsection"),
)


@dataclass(frozen=True)
class Ar5ivCleaner:
    keep_citations: bool = True
    """References in the text, such as "[3]" or "Melville (1851)"; they are often words of a sentence."""

    used_fields: ClassVar[Sequence[str]] = ()

    kind: Literal["ar5iv"] = field(default="ar5iv", init=False)

    def clean(self, record: Record) -> HTMLTree:
        tree = parsed(record["html"])
        if tree.body.query_selector(".ltx_document") is None:
            raise Unusable("not a page of LaTeXML")
        remove_matching(tree, (*_SURROUNDINGS, *(() if self.keep_citations else ("cite",))))
        _equations_to_paragraphs(tree)
        formulas_to_tex(tree)
        put_title(tree, record.get("title"))
        return tree


def _equations_to_paragraphs(tree: HTMLTree) -> None:
    """LaTeXML sets equations in tables, a row a line: each becomes a paragraph."""
    for table in list(tree.body.query_selector_all("table.ltx_eqn_table")):
        for row in table.query_selector_all("tr"):
            formulas = [tex_of(formula).strip("$") for formula in row.query_selector_all("math[alttext]")]
            line = " ".join(formula for formula in formulas if formula)
            if line:
                paragraph = tree.create_element("p")
                paragraph.append_child(tree.create_text_node(f"$${line}$$"))
                table.parent.insert_before(paragraph, table)
        remove([table])
