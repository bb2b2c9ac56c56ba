"""All helpers in the single import that Marin's experiments use: `from experiments.defaults import default_train`.

They are defined by topic: `data_defaults.py`, `corpus_defaults.py`, `filter_defaults.py`, `token_defaults.py`,
`training_defaults.py` and `evaluation_defaults.py`.
"""

from experiments.corpus_defaults import (
    default_classify,
    default_convert,
    default_decontaminate,
    default_dedupe,
    default_extract,
    default_funnel,
    default_identify_language,
    default_sample,
    default_shuffle,
    default_train_classifier,
)
from experiments.data_defaults import (
    default_collect,
    default_crawl,
    default_download,
    default_download_files,
    default_download_package,
    default_read_dump,
    download_step,
)
from experiments.evaluation_defaults import (
    default_compare,
    default_eval,
    default_leaderboard,
    default_scaling_law,
    default_speedrun,
    default_tasks,
)
from experiments.filter_defaults import (
    default_consolidate,
    in_languages,
    the_best,
    without_duplicates,
    without_repeated_paragraphs,
)
from experiments.token_defaults import (
    default_count,
    default_mixture,
    default_tokenize,
    default_train_tokenizer,
)
from experiments.training_defaults import (
    default_anneal,
    default_dpo,
    default_sft,
    default_train,
)

__all__ = [
    "default_anneal",
    "default_classify",
    "default_collect",
    "default_compare",
    "default_consolidate",
    "default_convert",
    "default_count",
    "default_crawl",
    "default_decontaminate",
    "default_dedupe",
    "default_download",
    "default_download_files",
    "default_download_package",
    "default_dpo",
    "default_eval",
    "default_extract",
    "default_funnel",
    "default_identify_language",
    "default_leaderboard",
    "default_mixture",
    "default_read_dump",
    "default_sample",
    "default_scaling_law",
    "default_sft",
    "default_shuffle",
    "default_speedrun",
    "default_tasks",
    "default_tokenize",
    "default_train",
    "default_train_classifier",
    "default_train_tokenizer",
    "download_step",
    "in_languages",
    "the_best",
    "without_duplicates",
    "without_repeated_paragraphs",
]
