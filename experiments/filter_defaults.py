"""The documents that pass filters, in a line: `default_consolidate`, and filters by the results of other steps.

filters = [in_languages(languages, ["en"]), *without_duplicates(duplicates), the_best("cut", scores, "q", 0.3)]
corpus = default_consolidate("corpus/docs", documents, filters, tasks=64)
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Unpack

from experiments.making_steps import Data, Division, data_step, in_processes, input_of, path_of
from marin_rules import ExecutorStep, output_path_of, versioned
from marin_rules.pipeline.consolidate import (
    AnyOf,
    ConsolidateConfig,
    Filter,
    FindCutConfig,
    KeepFraction,
    MissingAttributes,
    RemoveSpans,
    Threshold,
    consolidate,
    find_cut,
)
from marin_rules.pipeline.core.shard_map import DamagedShards


def in_languages(languages: ExecutorStep[Any], codes: Sequence[str], lower: float = 0.5) -> Filter:
    """A filter that keeps documents in one of the languages, by the attributes of `default_identify_language`."""
    return AnyOf(output_path_of(languages), "language", tuple(codes), lower)


def without_duplicates(duplicates: ExecutorStep[Any]) -> list[Filter]:
    """Filters for `default_consolidate` that keep one of each group that `default_dedupe` has found."""
    path = output_path_of(duplicates)
    return [Threshold(path, "duplicate", label, upper=0.5) for label in ("id", "text", "near")]


def without_repeated_paragraphs(duplicates: ExecutorStep[Any]) -> Filter:
    """A filter that removes what `default_dedupe(..., shortest_paragraph=N)` has found."""
    return RemoveSpans(output_path_of(duplicates), "duplicate_paragraphs")


def the_best(name: str, attributes: Data, attribute: str, fraction: float, label: str | None = None) -> Filter:
    """A filter that keeps the documents with the highest scores; `name` is that of the step that looks for them."""
    config = FindCutConfig(input_of(attributes), versioned(attribute), versioned(fraction), versioned(label))
    return KeepFraction(path_of(attributes), attribute, output_path_of(data_step(name, find_cut, config)), label)


def default_consolidate(
    name: str,
    documents: Data,
    filters: Sequence[Filter],
    *,
    missing_attributes: MissingAttributes = "fail",
    damaged_shards: DamagedShards = "fail",
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """The documents that pass the filters; without any, all documents that could be read."""
    config = ConsolidateConfig(
        input_of(documents),
        [_versioned_filter(one) for one in filters],
        missing_attributes=versioned(missing_attributes),
        damaged_shards=versioned(damaged_shards),
        shards=in_processes(division),
    )
    return data_step(name, consolidate, config, **division)


def _versioned_filter(one: Filter) -> Filter:
    """With all settings in the version, so that another threshold is another corpus."""
    values = {item.name: getattr(one, item.name) for item in fields(one)}
    return replace(
        one,
        **{name: input_of(value) if name.endswith("_path") else versioned(value) for name, value in values.items()},
    )
