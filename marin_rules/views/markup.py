"""HTML that is escaped by construction: text becomes markup only through `tag` and `raw`.

The pages load nothing from anywhere. They are shown inside Snakemake's report, in frames of their own.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_VOID = frozenset({"meta", "br"})


@dataclass(frozen=True, slots=True)
class Html:
    """A piece of markup."""

    text: str

    def __str__(self) -> str:
        return self.text


type Content = Html | str | int | float | Iterable[Content] | None
"""What a tag may hold: markup stays as it is, everything else is escaped, None is nothing."""


def tag(name: str, *content: Content, **attributes: str | int | float | None) -> Html:
    """An element. `_` in the name of an attribute is written `-`, and one at the end is dropped (`class_`)."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{_joined(content)}</{name}>")


def raw(text: str) -> Html:
    """Markup, style or script that is written in this project; never anything that comes from outside."""
    return Html(text)


def join(*content: Content) -> Html:
    return Html(_joined(content))


def _joined(content: Iterable[Content]) -> str:
    parts = []
    for part in content:
        if isinstance(part, Html):
            parts.append(part.text)
        elif isinstance(part, str | int | float):
            parts.append(html.escape(str(part)))
        elif part is not None:
            parts.append(_joined(part))
    return "".join(parts)


def code(value: Content) -> Html:
    return tag("code", value)


def as_json(value: Any) -> Html:
    """A value as people read it."""
    return tag("pre", json.dumps(value, indent=2, ensure_ascii=False, default=str))


def link(text: Content, page: str | None, **attributes: str | None) -> Html:
    """A link to another page of the report, named as in the report; plain text without one."""
    if page is None:
        return tag("span", text, **attributes)
    return tag("a", text, href="#", data_page=page, **attributes)


def status_mark(status: str) -> Html:
    return tag("span", status, class_=f"status {status_class(status)}")


def status_class(status: str) -> str:
    """What a style sheet calls a status: one of its own for each, and one for steps without any."""
    return status if status.isupper() else "missing"


def page(title: str, description: str | None, *body: Content) -> Html:
    """A whole document."""
    head = tag("head", tag("meta", charset="utf-8"), tag("title", title), tag("style", raw(_STYLE)))
    about = tag("p", description, class_="description") if description else None
    content = tag("body", tag("h1", title), about, *body, tag("script", raw(_SCRIPT)))
    return Html("<!DOCTYPE html>" + tag("html", head, content, lang="en").text + "\n")


_STYLE = """
:root { --ink: #1f2933; --soft: #52606d; --line: #e4e7eb; --back: #f7f8fa; }
* { box-sizing: border-box; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; color: var(--ink); background: white; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: 0 0 .6rem; } p.description { color: var(--soft); }
a { color: #0b5cad; text-decoration: none; overflow-wrap: anywhere; } a:hover, a:focus { text-decoration: underline; }
.scroll { overflow-x: auto; }
.long { max-height: 30rem; overflow-y: auto; border-bottom: 1px solid var(--line); }
.long thead th { position: sticky; top: 0; background: white; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
th { white-space: nowrap; color: var(--soft); font-weight: 600; }
th[data-sort] { cursor: pointer; user-select: none; } th[data-sort]:hover { color: var(--ink); }
th[data-sort]::after { content: " \\2195"; color: #9aa5b1; }
th[aria-sort=ascending]::after { content: " \\2191"; color: var(--ink); }
th[aria-sort=descending]::after { content: " \\2193"; color: var(--ink); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.nowrap { white-space: nowrap; }
td.path { min-width: 14rem; }
code, pre { font: 12.5px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; margin: 0; }
pre.log { background: var(--back); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; }
pre.log { max-height: 26rem; overflow-y: auto; margin-bottom: 1rem; }
ul { margin: 0; padding-left: 1.1rem; }
.status { font-weight: 600; white-space: nowrap; }
.SUCCESS { color: #18794e; } .FAILED, .DEP_FAILED { color: #c62828; }
.RUNNING { color: #0b6bcb; } .CANCELLED, .missing { color: #8a6d00; }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; margin: .6rem 0; }
.counts > span { border: 1px solid var(--line); border-radius: 999px; padding: .1rem .7rem; background: var(--back); }
.warning { background: #fff8e1; border: 1px solid #e8cf7a; border-radius: 6px; padding: .5rem .8rem; margin: .6rem 0; }
.graph { overflow: auto; max-height: 34rem; background: var(--back); }
.graph { border: 1px solid var(--line); border-radius: 6px; }
.graph svg { display: block; margin: 0 auto; max-width: 100%; min-width: 44rem; height: auto; }
.graph path { fill: none; stroke: #9aa5b1; stroke-width: 1; opacity: .55; }
.graph path.near { stroke: #0b5cad; stroke-width: 2; opacity: 1; }
.graph rect { fill: white; stroke: currentColor; stroke-width: 1.2; }
.graph a:hover rect, .graph a:focus rect { stroke-width: 2.5; }
.graph a.near rect { fill: #e3f0fc; }
.graph a { outline: none; } .graph text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.graph text.function { font-size: 10px; fill: var(--soft); }
"""

_SCRIPT = """
"use strict";
document.addEventListener("click", function (event) {
    const target = event.target.closest("[data-page]");
    if (target) {
        event.preventDefault();
        parent.postMessage({ openPage: target.getAttribute("data-page") }, "*");
        return;
    }
    const head = event.target.closest("th[data-sort]");
    if (head) { sortBy(head); }
});
function sortBy(head) {
    const rows = [...head.closest("table").tBodies[0].rows];
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    const value = (row) => row.cells[column].getAttribute("data-value") ?? row.cells[column].innerText;
    const compare = head.getAttribute("data-sort") === "number"
        ? (a, b) => (a === "") - (b === "") || (down ? Number(b) - Number(a) : Number(a) - Number(b))
        : (a, b) => (down ? -1 : 1) * a.localeCompare(b, undefined, { numeric: true });
    const sorted = rows.map((row) => [value(row), row]).sort((a, b) => compare(a[0], b[0]));
    for (const other of head.parentNode.cells) { other.removeAttribute("aria-sort"); }
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    head.closest("table").tBodies[0].append(...sorted.map((pair) => pair[1]));
}
for (const log of document.querySelectorAll("pre.log")) { log.scrollTop = log.scrollHeight; }
function markNeighbours(event) {
    const number = event.currentTarget.getAttribute("data-node");
    const near = event.type === "mouseenter" || event.type === "focus";
    for (const edge of document.querySelectorAll(`.graph [data-from="${number}"], .graph [data-to="${number}"]`)) {
        edge.classList.toggle("near", near);
        for (const end of [edge.getAttribute("data-from"), edge.getAttribute("data-to")]) {
            document.querySelector(`.graph [data-node="${end}"]`).classList.toggle("near", near);
        }
    }
}
for (const node of document.querySelectorAll(".graph [data-node]")) {
    for (const name of ["mouseenter", "mouseleave", "focus", "blur"]) { node.addEventListener(name, markNeighbours); }
}
"""
