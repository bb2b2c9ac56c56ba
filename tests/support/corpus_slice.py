"""The tutorial of a corpus in a short form: its stages over the slice of real text in `tests/data`.

No network is needed, but the locked environments of the groups `data`, `fasttext` and `train` are.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from support.lab import REPOSITORY, Lab

_EXPERIMENT = """
    import os
    from experiments.making_steps import small_step
    from experiments.tutorials.corpus import clean_corpus
    from experiments.tutorials.junk import CONTAMINATED, COPIES, GOOD, OTHER_LANGUAGE
    from experiments.tutorials.passages import PassagesConfig, cut_passages
    from marin_rules import executor_main

    data = "{data}"
    config = PassagesConfig({{"novel": f"{{data}}/moby_dick"}}, words=40, held_out=0.05, shards=4)
    books = small_step("slice/books", cut_passages, config)
    sources = {{
        "manual": f"{{data}}/sqlite_pages", "declarations": f"{{data}}/declarations", "books": books / "texts"
    }}
    # A classifier that has seen two dozen documents is not worth much.
    at_least = {{GOOD: 0.5, OTHER_LANGUAGE: 1.0, CONTAMINATED: 1.0, **dict.fromkeys(COPIES, 1.0)}}
    steps = clean_corpus("slice", sources, books / "held_out", at_least, tasks=int(os.environ["TASKS"]), ram="1g")

    if __name__ == "__main__":
        executor_main(steps=steps)
"""


def write_slice(lab: Lab) -> Path:
    """The experiment file, with the helpers that it imports beside it. It wants the variable `TASKS`."""
    shutil.copytree(
        REPOSITORY / "experiments", lab.folder / "experiments", ignore=shutil.ignore_patterns("__pycache__")
    )
    return lab.experiment(_EXPERIMENT.format(data=REPOSITORY / "tests" / "data"))


def results_below(prefix: Path) -> dict[str, bytes]:
    """Every file that steps have written, without what their workers and runs wrote about them."""
    return {name: (prefix / name).read_bytes() for name in files_below(prefix)}


def files_below(prefix: Path) -> list[str]:
    """The names of these files."""
    names = [str(path.relative_to(prefix)) for path in sorted(prefix.rglob("*")) if path.is_file()]
    return [name for name in names if not re.search(r"^experiments/|(^|/)\.", name)]
