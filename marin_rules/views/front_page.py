"""The overview as the front page of Snakemake's report.

Snakemake puts the report's text into its own page, where the overview gets a frame. A page in a frame asks for another
one with a message, and Snakemake's page has to answer. The overview brings the answer along: it has the origin of that
page, unlike those that are opened later.
"""

from __future__ import annotations

from marin_rules.views.markup import raw, tag

_STYLE = """
#app .prose:has(.marin-overview) { max-width: none; }
#app .items-start:has(.marin-overview) { flex-direction: column; align-items: stretch; align-self: flex-start; }
#app .items-start:has(.marin-overview) { padding: 0; gap: 0; min-width: 0; }
#app .items-start:has(.marin-overview) > * { padding: 0 0 0 1.5rem; }
#app .items-start:has(.marin-overview) > :has(.marin-overview) { padding: 0; }
#app .items-start:has(.marin-overview) > #rulegraph::before { content: "Rules"; font-weight: 600; }
.marin-overview iframe { width: 100%; height: 100vh; border: 0; display: block; }
"""
"""Snakemake puts its text in a narrow column beside the graph of rules; the overview gets the whole width, above it."""

_ANSWER = """
if (!window.answersPages) {
    window.answersPages = true;
    window.addEventListener("message", function (event) {
        const path = event.data && event.data.openPage;
        if (typeof path === "string" && Object.hasOwn(results, path)) {
            app.setView({ content: "html", contentPath: results[path].data_uri, resultPath: path });
        }
    });
}
"""

_INSTALL = """
const script = parent.document.createElement("script");
script.textContent = document.getElementById("answer").textContent;
parent.document.head.append(script);
const fit = () => { frameElement.style.height = document.documentElement.offsetHeight + 48 + "px"; };
new ResizeObserver(fit).observe(document.body);
"""
"""The frame is as high as the page in it, so that there is one scroll bar."""


def front_page(overview: str) -> str:
    """The overview (a whole document) in a frame.

    A frame's document is an attribute, in which all markup is escaped: Snakemake writes its page as a string into a
    script, where it could end that script otherwise.
    """
    answer = tag("script", raw(_ANSWER), type="text/plain", id="answer")
    document = overview.replace("</body>", f"{answer}{tag('script', raw(_INSTALL))}</body>")
    frame = tag("iframe", srcdoc=document, title="overview of the experiment")
    return tag("div", tag("style", raw(_STYLE)), frame, class_="marin-overview").text
