"""The steps from raw data to a corpus, one line each, with everything that changes the results in the versions.

    documents = default_extract("documents/docs", "gs://my-bucket/pages", tasks=64)
    duplicates = default_dedupe("duplicates/docs", documents, tasks=64)
    corpus = default_consolidate("corpus/docs", documents, without_duplicates(duplicates), tasks=64)

`tasks`, `cpu` and `ram` say how the work is divided and change no path. docs/data.md has the configs behind these
helpers and the files that they write; `default_consolidate` and its filters are in filter_defaults.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from experiments.making_steps import PICTURES_AND_TABLES, Data, Division, data_step, in_processes, input_of, small_step
from marin_rules import ExecutorStep, output_path_of, versioned
from marin_rules.pipeline.classify import (
    Classifier,
    ClassifyConfig,
    FasttextClassifier,
    FunctionClassifier,
    HuggingFaceClassifier,
    check_encoder,
    classify,
)
from marin_rules.pipeline.cleaners import Cleaner
from marin_rules.pipeline.convert import ConvertConfig, Shape, convert
from marin_rules.pipeline.core.fingerprints import ShingleSettings
from marin_rules.pipeline.core.shard_map import DamagedShards
from marin_rules.pipeline.decontaminate import DecontaminateConfig, decontaminate
from marin_rules.pipeline.dedupe import (
    FindDuplicatesConfig,
    FingerprintConfig,
    MarkDuplicatesConfig,
    find_duplicates,
    fingerprint,
    mark_duplicates,
)
from marin_rules.pipeline.extract import ExtractConfig, Library, TextFormat, extract
from marin_rules.pipeline.funnel import FunnelConfig, FunnelStage, funnel
from marin_rules.pipeline.identify_language import IdentifyLanguageConfig, identify_language
from marin_rules.pipeline.sample import SampleConfig, sample
from marin_rules.pipeline.shuffle import GatherConfig, ScatterConfig, gather, scatter
from marin_rules.pipeline.train_classifier import LabelledDocuments, TrainClassifierConfig, train_classifier


def default_extract(
    name: str,
    pages: Data,
    *,
    library: Library = "resiliparse",
    text_format: TextFormat = "text",
    main_content: bool = True,
    cleaner: Cleaner | None = None,
    largest_page: int = 4_000_000,
    html_field: str = "html",
    source: str = "web",
    damaged_shards: DamagedShards = "fail",
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """Documents from HTML pages."""
    config = ExtractConfig(
        input_of(pages),
        library=versioned(library),
        text_format=versioned(text_format),
        main_content=versioned(main_content),
        cleaner=versioned(cleaner),
        largest_page=versioned(largest_page),
        html_field=versioned(html_field),
        source=versioned(source),
        damaged_shards=versioned(damaged_shards),
        shards=in_processes(division),
    )
    return data_step(name, extract, config, **division)


def default_convert(
    name: str,
    records: Data,
    shape: Shape,
    *,
    source: str = "",
    damaged_shards: DamagedShards = "fail",
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """Conversations, preferences or question-answer sets in the project's schemas."""
    config = ConvertConfig(
        input_of(records),
        versioned(shape),
        versioned(source),
        damaged_shards=versioned(damaged_shards),
        shards=in_processes(division),
    )
    return data_step(name, convert, config, **division)


def default_dedupe(
    name: str,
    documents: Data,
    *,
    threshold: float = 0.8,
    shingles: ShingleSettings | None = ShingleSettings(),  # noqa: B008 - It is frozen.
    shortest_paragraph: int | None = None,
    ram_to_compare: str | None = None,
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """Attributes that mark duplicates; repeated paragraphs too if `shortest_paragraph` is given.

    One step compares all documents, which takes about 100 bytes of memory each: with `ram_to_compare` instead of `ram`.
    """
    fingerprints = data_step(
        f"{name}/fingerprints",
        fingerprint,
        FingerprintConfig(
            input_of(documents),
            shingles=versioned(shingles),
            shortest_paragraph=versioned(shortest_paragraph),
            shards=in_processes(division),
        ),
        **division,
    )
    found = data_step(
        f"{name}/found",
        find_duplicates,
        FindDuplicatesConfig(output_path_of(fingerprints), input_of(documents), threshold=versioned(threshold)),
        ram=ram_to_compare or division.get("ram", "4g"),
    )
    marks = MarkDuplicatesConfig(
        input_of(documents), output_path_of(found), versioned(shortest_paragraph), shards=in_processes(division)
    )
    return data_step(name, mark_duplicates, marks, **division)


def default_decontaminate(
    name: str,
    documents: Data,
    evaluation_sets: Mapping[str, Data],
    *,
    ngram: int = 13,
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """Attributes that say how much of the evaluation sets is in the documents."""
    sets = {set_name: input_of(data) for set_name, data in evaluation_sets.items()}
    config = DecontaminateConfig(input_of(documents), sets, ngram=versioned(ngram), shards=in_processes(division))
    return data_step(name, decontaminate, config, **division)


def default_train_classifier(
    name: str,
    datasets: Sequence[LabelledDocuments],
    *,
    fasttext_args: Mapping[str, Any] | None = None,
    seed: int = 0,
    val_frac: float = 0.1,
    ram: str = "4g",
) -> ExecutorStep[Any]:
    """A fastText classifier of `LabelledDocuments(path, label, sampling_rate)`, with held-out metrics."""
    config = TrainClassifierConfig(
        [
            LabelledDocuments(input_of(one.input_path), versioned(one.label), versioned(one.sampling_rate))
            for one in datasets
        ],
        fasttext_args=versioned(dict(fasttext_args or {})),
        seed=versioned(seed),
        val_frac=versioned(val_frac),
    )
    return data_step(name, train_classifier, config, ram=ram, groups=["fasttext"], report=PICTURES_AND_TABLES)


def default_classify(
    name: str,
    documents: Data,
    classifier: Classifier | ExecutorStep[Any],
    *,
    attribute: str = "quality",
    environment: Sequence[str] | None = None,
    **division: Unpack[Division],
) -> ExecutorStep[Any]:
    """Scores of documents; the classifier may be a step that `default_train_classifier` made.

    `environment` are groups or requirements for the step's own environment. By default a fastText model gets the group
    `fasttext`, an encoder `encoder`, which has torch, and a function `data`.
    """
    if isinstance(classifier, ExecutorStep):
        classifier = FasttextClassifier(output_path_of(classifier))
    if environment is None:
        environment = _ENVIRONMENTS.get(type(classifier), ["data"])
    config = ClassifyConfig(
        input_of(documents), _versioned_classifier(classifier), versioned(attribute), shards=in_processes(division)
    )
    return data_step(name, classify, config, **division, groups=environment)


_ENVIRONMENTS: Mapping[type, Sequence[str]] = {
    FasttextClassifier: ["fasttext"],
    HuggingFaceClassifier: ["encoder"],
}


def default_identify_language(name: str, documents: Data, **division: Unpack[Division]) -> ExecutorStep[Any]:
    """The languages of documents."""
    config = IdentifyLanguageConfig(
        input_of(documents), most_languages=versioned(3), lowest_score=versioned(0.01), shards=in_processes(division)
    )
    return data_step(name, identify_language, config, **division)


def default_sample(
    name: str, documents: Data, fraction: float, *, seed: int = 0, rest: bool = False, **division: Unpack[Division]
) -> ExecutorStep[Any]:
    """A part of the documents, chosen at random; with `rest`, the others, from which that part is held out."""
    config = SampleConfig(input_of(documents), versioned(fraction), versioned(seed), shards=in_processes(division))
    if rest:  # Not in the version of a sample: those that are there keep their paths.
        config = replace(config, rest=versioned(True))
    return data_step(name, sample, config, **division)


def default_shuffle(
    name: str, documents: Data, *, output_shards: int, seed: int = 0, **division: Unpack[Division]
) -> ExecutorStep[Any]:
    """All documents, in one random order."""
    config = ScatterConfig(
        input_of(documents), versioned(output_shards), versioned(seed), shards=in_processes(division)
    )
    scattered = data_step(f"{name}/scattered", scatter, config, **division)
    gathered = GatherConfig(output_path_of(scattered), versioned(output_shards), shards=in_processes(division))
    return data_step(name, gather, gathered, **division)


def default_funnel(
    name: str, stages: Mapping[str, Data], *, counted: Mapping[str, Data] | None = None, joins: Sequence[str] = ()
) -> ExecutorStep[Any]:
    """What happened to every document, as a chart: `stages` in order, by the names to show.

    `counted` are outputs of `default_count` over a stage's documents, and `joins` the stages that take in documents of
    other sources.
    """
    counted = counted or {}
    if unknown := {*counted, *joins} - stages.keys():
        raise ValueError(f"{name}: no stages are called {sorted(unknown)}, only {list(stages)}")
    rows = [
        FunnelStage(
            versioned(one), input_of(data), input_of(counted[one]) if one in counted else None, versioned(one in joins)
        )
        for one, data in stages.items()
    ]
    return small_step(name, funnel, FunnelConfig(rows))


def _versioned_classifier(classifier: Classifier) -> Classifier:
    """With its settings in the version; for a function its name, because code is not part of the version."""
    match classifier:
        case FasttextClassifier():
            return FasttextClassifier(input_of(classifier.model_path))
        case HuggingFaceClassifier():
            check_encoder(classifier)
            return HuggingFaceClassifier(
                input_of(classifier.model),
                revision=versioned(classifier.revision),
                batch_size=versioned(classifier.batch_size),
                longest_text=versioned(classifier.longest_text),
            )
        case FunctionClassifier():
            function = classifier.function
            called = function if isinstance(function, str) else getattr(function, "__qualname__", repr(function))
            return FunctionClassifier(function, versioned(f"{called} {classifier.version}"))
