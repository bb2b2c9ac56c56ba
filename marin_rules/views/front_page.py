"""The overview as the front page of Snakemake's report.

Snakemake puts the report's text into its own page, where the overview gets a frame. A page in a frame asks for another
one with a message, and Snakemake's page has to answer. The overview includes the script that answers: it has the origin
of that page, unlike those that are opened later.
"""

from __future__ import annotations

from marin_rules.views.rendering import render


def front_page(overview: str) -> str:
    """The overview (a whole document) in a frame.

    A frame's document is an attribute, in which all markup is escaped: Snakemake writes its page as a string into a
    script, where it could end that script otherwise.
    """
    document = overview.replace("</body>", f"{render('front_page_scripts.html')}</body>")
    return render("front_page.html", document=document)
