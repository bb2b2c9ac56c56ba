"""Names of steps and prefixes: what people type, what breaks shells, and what no file system takes."""

from __future__ import annotations

import random

PLAIN = ("data", "model", "train/base", "a", "evaluate-7", "v1.2", "x_y", "sweep/lr=0.1,wd=0", "Straße", "データ")
ODD = (
    *(
        "with space",
        "two  spaces",
        "it's",
        'say "hi"',
        "a<b",
        "<script>",
        "{x}",
        "{{",
        "{0}",
        "${HOME}",
        "$(touch hacked)",
    ),
    *(
        "`touch hacked`",
        "a;touch hacked",
        "a&b",
        "a|b",
        "100%",
        "#1",
        "*",
        "a?",
        "[ab]",
        "back\\slash",
        "~",
        "~/x",
        "~root",
    ),
    *(
        "-rf",
        "--help",
        ".hidden",
        "dots..",
        "a=b",
        "wörter/größe",
        "日本語のステップ",
        "🙂",
        "e\u0301",
        "a:b",
        "!x",
        "a,b",
        "@",
    ),
)
EXTREME = (
    *("x" * 120, "x" * 243, "x" * 244, "x" * 300, "長" * 30, "長" * 90, "🙂" * 50, "a/" * 60 + "a"),
    *("tab\there", "new\nline", "bell\a", "a/../b", "..", ".", "a//b", "/abs", "a/", "", " ", "\u202e", "a\u0000b"),
)
"""Names for which one clear refusal is as good as a run."""


def step_names(chance: random.Random, count: int, *, extreme: bool) -> list[str]:
    """Names that differ from each other, one of them extreme if asked."""
    found: list[str] = []
    while len(found) < count:
        kind = chance.random()
        name = chance.choice(PLAIN if kind < 0.5 else ODD)
        if kind > 0.9:
            name = f"{name}{chance.choice(('/', '-', ' '))}{chance.choice(PLAIN + ODD)}"
        if name not in found:
            found.append(name)
    if extreme:
        found[chance.randrange(count)] = chance.choice(EXTREME)
    return found


PREFIXES = {
    "relative": "out",
    "dotted": "./some/../out",
    "slash": "out/",
    "absolute": "FOLDER/out",
    "double": "FOLDER//out",
    "space": "FOLDER/my results",
    "quote": 'FOLDER/it\'s my "own" out',
    "unicode": "FOLDER/größe-結果",
    "shell": "FOLDER/$(touch hacked);x&y",
    "angle": "FOLDER/<out>",
    "glob": "FOLDER/o*[u]t?",
    "link": "FOLDER/link",
    "home": "~/out",
    "braces": "FOLDER/o{x}ut",
    "file": "file://FOLDER/out",
    "memory": "memory://out",
}
"""FOLDER is that of the case, which is HOME as well; `link` leads to a folder elsewhere in it."""

REFUSABLE_PREFIXES = frozenset({"home", "braces", "file", "memory"})
"""One clear refusal is as good as a run."""
