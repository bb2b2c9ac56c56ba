"""Well-known sets to train on, as pinned download steps: `pretraining_dataset("fineweb_edu_10bt")`.

Nothing is fetched when this file is imported. Each set is pinned by the commit of its repository on the Hugging Face
hub, under which the hub never serves anything else; `download` verifies each file by the digest that the hub lists for
it. The commits are those that Marin and other public projects name for these repositories. Sizes and licences are
those of the sets' cards: read the card before you train on a set, because licences of collected text are not simple.

    documents = pretraining_dataset("tiny_stories")
    tokens = default_tokenize("tiny-stories", documents, tokenizer)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.data_defaults import default_download
from marin_rules import ExecutorStep
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.task_files import near_matches


@dataclass(frozen=True)
class PretrainingDataset:
    """A set on the hub, or a part of one."""

    repository: str
    revision: str
    size: str
    licence: str
    patterns: tuple[str, ...] = ("*",)
    """Which files of the repository it consists of."""

    text_field: str = "text"
    """Where the text is, for `TextDatasetFormat(text_field)`."""

    is_gated: bool = False
    """Whether the hub wants an account that has accepted terms: set HF_TOKEN."""


_FINEWEB_EDU = "87f09149ef4734204d70ed1d046ddc9ca3f2b8f9"
_FINEWEB = "9bb295ddab0e05d785b879661af7260fed5140fc"

PRETRAINING_DATASETS: Mapping[str, PretrainingDataset] = {
    "c4_en": PretrainingDataset(
        "allenai/c4",
        "1588ec454efa1a09f29cd18ddd04fe05fc8653a2",
        "305 GB",
        "ODC-By 1.0, and the terms of Common Crawl",
        ("en/c4-train.*.json.gz",),
    ),
    "dclm_baseline": PretrainingDataset(
        "mlfoundations/dclm-baseline-1.0",
        "a3b142c183aebe5af344955ae20836eb34dcf69b",
        "7.2 TB in 27,838 files, about 4T tokens",
        "CC BY 4.0",
        ("*.jsonl.zst",),
    ),
    "finemath_3plus": PretrainingDataset(
        "HuggingFaceTB/finemath",
        "e92b25a616738fe95dc186b64dfb19f9c8525594",
        "34B tokens",
        "ODC-By 1.0, and the terms of Common Crawl",
        ("finemath-3plus/*.parquet",),
    ),
    "fineweb_10bt": PretrainingDataset(
        "HuggingFaceFW/fineweb",
        _FINEWEB,
        "28 GB, 10B tokens",
        "ODC-By 1.0, and the terms of Common Crawl",
        ("sample/10BT/*.parquet",),
    ),
    "fineweb_100bt": PretrainingDataset(
        "HuggingFaceFW/fineweb",
        _FINEWEB,
        "277 GB, 100B tokens",
        "ODC-By 1.0, and the terms of Common Crawl",
        ("sample/100BT/*.parquet",),
    ),
    "fineweb_edu": PretrainingDataset(
        "HuggingFaceFW/fineweb-edu",
        _FINEWEB_EDU,
        "1.3T tokens",
        "ODC-By 1.0, and the terms of Common Crawl",
        ("data/*.parquet",),
    ),
    "fineweb_edu_10bt": PretrainingDataset(
        "HuggingFaceFW/fineweb-edu",
        _FINEWEB_EDU,
        "28.5 GB in 14 files, 10B tokens",
        "ODC-By 1.0, and the terms of Common Crawl",
        ("sample/10BT/*.parquet",),
    ),
    "open_web_math": PretrainingDataset(
        "open-web-math/open-web-math",
        "fde8ef8de2300f5e778f56261843dab89f230815",
        "27.4 GB in 114 files, 6.3 million documents",
        "ODC-By 1.0, and the terms of Common Crawl",
        ("data/*.parquet",),
    ),
    "proof_pile_2": PretrainingDataset(
        "EleutherAI/proof-pile-2",
        "901a9273a770e9d4138c5ddd91802f9c5c6cdc4b",
        "55B tokens",
        "those of its sources: arXiv papers, OpenWebMath, code",
        ("*/train/*.jsonl.zst",),
    ),
    "starcoderdata": PretrainingDataset(
        "bigcode/starcoderdata",
        "9fc30b578cedaec69e47302df72cf00feed7c8c4",
        "783 GB of code, about 250B tokens",
        "those of its files, all permissive; the terms of The Stack",
        ("*.parquet",),
        text_field="content",
        is_gated=True,
    ),
    "tiny_stories": PretrainingDataset(
        "roneneldan/TinyStories",
        "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
        "2 GB of text",
        "CDLA-Sharing-1.0",
        ("data/train-*.parquet",),
    ),
    "wikipedia_en": PretrainingDataset(
        "wikimedia/wikipedia",
        "b04c8d1ceb2f5cd4588862100d08de323dccfbaa",
        "6.4 million articles of 1 November 2023, in 41 files",
        "CC BY-SA 3.0 and GFDL",
        ("20231101.en/*.parquet",),
    ),
    "wikitext_103": PretrainingDataset(
        "Salesforce/wikitext",
        "b08601e04326c79dfdd32d625aee71d232d685c3",
        "0.5 GB of text",
        "CC BY-SA 3.0 and GFDL",
        ("wikitext-103-raw-v1/train-*.parquet",),
    ),
}


def pretraining_dataset(name: str, *, tasks: int | None = None) -> ExecutorStep[Any]:
    """The step that downloads a set; with `tasks` as an array, each task its share of the files."""
    if name not in PRETRAINING_DATASETS:
        raise DataError(f"no set to train on is called {name!r}: {near_matches(name, list(PRETRAINING_DATASETS))}")
    found = PRETRAINING_DATASETS[name]
    return default_download(
        name, found.repository, found.revision, patterns=found.patterns, licence=found.licence, tasks=tasks
    )
