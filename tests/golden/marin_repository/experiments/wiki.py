"""Pages of an encyclopedia, downloaded and cleaned: a pipeline of StepSpecs."""

import json

from marin.execution.artifact import Artifact
from marin.execution.step_runner import StepRunner
from marin.execution.step_spec import StepSpec
from rigging.filesystem import open_url

DUMP = "20260601"
MIN_WORDS = 3


def download(output_path: str, dump: str) -> dict:
    pages = [f"page {number} of the dump of {dump}" for number in range(5)] + ["a stub"]
    with open_url(f"{output_path}/pages.json", "w") as file:
        json.dump(pages, file)
    return {"pages": len(pages)}


def clean(input_path: str, output_path: str, min_words: int) -> dict:
    with open_url(f"{input_path}/pages.json", "r") as file:
        pages = json.load(file)
    kept = [page for page in pages if len(page.split()) >= min_words]
    with open_url(f"{output_path}/pages.json", "w") as file:
        json.dump(kept, file)
    return {"kept": len(kept), "of": Artifact.from_path(input_path)["pages"]}


def wiki_step(dump: str = DUMP, min_words: int = MIN_WORDS) -> StepSpec:
    raw = StepSpec(
        name="raw/wiki",
        hash_attrs={"dump": dump},
        fn=lambda output_path: download(output_path, dump),
    )
    return StepSpec(
        name="clean/wiki",
        deps=[raw],
        hash_attrs={"min_words": min_words},
        fn=lambda output_path: clean(raw.output_path, output_path, min_words),
    )


if __name__ == "__main__":
    StepRunner().run([wiki_step()])
