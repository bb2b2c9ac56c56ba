"""Tokenizers, tokens and mixtures of them, one line each, with everything that changes results in the versions.

    tokenizer = default_train_tokenizer("docs", corpus, 32_000)
    tokens = default_tokenize("docs", corpus, tokenizer, tasks=64)

docs/data.md has the configs behind these helpers and the files that they write.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from experiments.making_steps import PICTURES_AND_TABLES, Data, Division, data_step, in_processes, input_of, path_of
from marin_rules import ExecutorStep, InputName, versioned
from marin_rules.pipeline.core.tokenizer_files import check_tokenizer_name
from marin_rules.pipeline.count import CountConfig, count
from marin_rules.pipeline.mixture import MixtureConfig, mixture
from marin_rules.pipeline.tokenize import DatasetFormat, SpecialTokens, TextDatasetFormat, TokenizeConfig, tokenize
from marin_rules.pipeline.train_tokenizer import TrainTokenizerConfig, special_tokens_of, train_tokenizer


def default_train_tokenizer(
    name: str,
    documents: Data,
    vocabulary: int,
    *,
    special_tokens: Sequence[str] = (),
    chat_template: str | None = None,
    min_frequency: int = 2,
    sample_documents: int | None = None,
    seed: int = 0,
    ram: str = "4g",
) -> ExecutorStep[Any]:
    """A byte-level BPE tokenizer, with `<|begin_of_text|>`, `<|end_of_text|>` and `<|padding|>`."""
    config = TrainTokenizerConfig(
        input_of(documents),
        vocabulary,
        special_tokens=list(special_tokens),
        chat_template=chat_template,
        min_frequency=min_frequency,
        sample_documents=sample_documents,
        seed=seed,
    )
    special_tokens_of(config)
    names = ("vocabulary", "special_tokens", "chat_template", "min_frequency", "sample_documents", "seed")
    config = replace(config, **{field_name: versioned(getattr(config, field_name)) for field_name in names})
    return data_step(
        f"tokenizers/{name}", train_tokenizer, config, ram=ram, groups=["train"], report=PICTURES_AND_TABLES
    )


def default_tokenize(
    name: str,
    dataset: Data,
    tokenizer: Data,
    format: DatasetFormat | None = None,
    *,
    sample_count: int | None = None,
    is_validation: bool = False,
    special_tokens: SpecialTokens = "as_tokens",
    allow_test_in_train: bool = False,
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """The tokens of a data set, as training or as validation data. A tokenizer of the hub needs its `@revision`."""
    paths = [input_of(dataset)]
    config = TokenizeConfig(
        _tokenizer(tokenizer),
        train_paths=[] if is_validation else paths,
        validation_paths=paths if is_validation else [],
        format=versioned(TextDatasetFormat() if format is None else format),
        sample_count=versioned(sample_count),
        special_tokens=versioned(special_tokens),
        allow_test_in_train=allow_test_in_train,
        shards=in_processes(division),
    )
    return data_step(f"tokenized/{name}", tokenize, config, **division, groups=["train"], report=PICTURES_AND_TABLES)


def default_count(
    name: str,
    documents: Data,
    *,
    tokenizer: Data | None = None,
    filtered: Data | None = None,
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """How many documents, characters, bytes and words there are, in total and by source; with a tokenizer also tokens.

    With `filtered`, a step of `default_consolidate` over the same documents, also how many it left out, by reason.
    """
    config = CountConfig(
        input_of(documents),
        None if tokenizer is None else _tokenizer(tokenizer),
        None if filtered is None else input_of(filtered),
        shards=in_processes(division),
    )
    return data_step(name, count, config, **division, groups=["data" if tokenizer is None else "train"])


def default_mixture(name: str, config: MixtureConfig) -> ExecutorStep[Any]:
    """A mixture of tokenized data, from `lm_mixture_data_config` or a related function."""
    names = ("stages", "train_tokens", "train_steps", "simulated_epoching", "block_size")
    config = replace(
        config,
        components={component: input_of(place) for component, place in config.components.items()},
        **{field_name: versioned(getattr(config, field_name)) for field_name in names},
    )
    return data_step(f"mixtures/{name}", mixture, config, groups=["train"], report=PICTURES_AND_TABLES)


def _tokenizer(tokenizer: Data) -> str | InputName:
    """The output of a step, or a name that is part of the version: another tokenizer makes other tokens."""
    place = path_of(tokenizer)
    if not isinstance(place, str):
        return place
    check_tokenizer_name(place)
    return versioned(place)
