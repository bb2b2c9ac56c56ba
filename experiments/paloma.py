"""The validation sets of Paloma: `default_eval(..., held_out=paloma_sets())`, or while a model is trained
`default_train(..., use_default_validation=True)`.

Paloma is a dataset on the Hugging Face hub behind a licence that must be accepted there (allenai/paloma, AI2 ImpACT;
the download needs HF_TOKEN). Its commit is the one that Marin uses, so that bits per byte can be compared. If you
already have the files, name their folder: `paloma_sets("/data/paloma")`.
"""

from collections.abc import Sequence
from typing import Any

from experiments.data_defaults import default_download
from experiments.making_steps import Data
from experiments.token_defaults import default_tokenize
from marin_rules import ExecutorStep, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.task_files import near_matches

DATASET = "allenai/paloma"
REVISION = "65cd6fc59dba021b21db414fa5e8d7765ffbe5e6"

SETS = {
    "4chan": "4chan_meta_sep",
    "c4_100_domains": "c4_100_domains",
    "c4_en": "c4_en",
    "dolma-v1_5": "dolma-v1_5",
    "dolma_100_programing_languages": "dolma_100_programing_languages",
    "dolma_100_subreddits": "dolma_100_subreddits",
    "falcon-refinedweb": "falcon-refinedweb",
    "gab": "gab",
    "m2d2_s2orc_unsplit": "m2d2_s2orc_unsplit",
    "m2d2_wikipedia_unsplit": "m2d2_wikipedia_unsplit",
    "manosphere_meta_sep": "manosphere_meta_sep",
    "mc4": "mc4",
    "ptb": "ptb",
    "redpajama": "redpajama",
    "twitterAAE_HELM_fixed": "twitterAAE_HELM_fixed",
    "wikitext_103": "wikitext_103",
}
"""Names of the sets, and their folders in the dataset."""


def download_paloma() -> ExecutorStep[Any]:
    """The validation splits, about 1 GB."""
    return default_download("paloma", DATASET, REVISION, patterns=["*/val/*"], licence="AI2 ImpACT, low risk")


def paloma_sets(
    download: ExecutorStep[Any] | str | None = None, names: Sequence[str] = tuple(SETS)
) -> dict[str, InputName | str]:
    """The validation split of each set, by name: of a download, or of a folder that has the same files."""
    for name in names:
        if name not in SETS:
            raise DataError(f"Paloma has no set {name!r}: {near_matches(name, list(SETS))}")
    if isinstance(download, str):
        return {f"paloma-{name}": f"{download.rstrip('/')}/{SETS[name]}/val" for name in names}
    step = download or download_paloma()
    return {f"paloma-{name}": step / f"{SETS[name]}/val" for name in names}


def default_validation_sets(tokenizer: Data, download: ExecutorStep[Any] | str | None = None) -> dict[str, Data]:
    """All sets as tokens, for `default_train(..., validation_sets=...)`."""
    return {
        name: default_tokenize(f"paloma/{name}", documents, tokenizer, is_validation=True)
        for name, documents in paloma_sets(download).items()
    }
