"""The helpers of `experiments/defaults.py`: steps whose versions hold what changes their results, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from marin_rules import ExecutorStep, MarinRulesError, compute_output_path
from marin_rules.pipeline.classify import FasttextClassifier, FunctionClassifier, HuggingFaceClassifier
from marin_rules.pipeline.cleaners import Ar5ivCleaner, StackExchangeCleaner, WikipediaCleaner
from marin_rules.pipeline.collect import Source as FilesOf
from marin_rules.pipeline.consolidate import Condition, Threshold
from marin_rules.pipeline.core.fingerprints import ShingleSettings
from marin_rules.pipeline.crawl import LinkRules, VisitSettings
from marin_rules.pipeline.download import FilesystemSource, RemoteFile
from marin_rules.pipeline.tokenize import ChatDatasetFormat, TextDatasetFormat
from marin_rules.pipeline.train_classifier import LabelledDocuments
from marin_rules.software.requirements import resolve_groups

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    import experiments.defaults

    return experiments.defaults


def path(step: ExecutorStep) -> str:
    return str(compute_output_path(step.name, step.config, prefix="p"))


PAGES = "gs://pages/docs"
COMMIT, DIGEST = "a" * 40, "b" * 64

VARIANTS: dict[str, Callable[..., ExecutorStep]] = {
    "download": lambda d, id="a/b", revision=COMMIT, **changes: d.default_download("x", id, revision, **changes),
    "download_package": lambda d, version="1", sha256=DIGEST, **changes: d.default_download_package(
        "x", "npm", "words", version, sha256, **changes
    ),
    "download_files": lambda d, url="https://a.test/b", **changes: d.default_download_files("x", [url], **changes),
    "copy": lambda d, path=PAGES, patterns=("*",), leave_out=(), **changes: d.download_step(
        "x", FilesystemSource(path, patterns, leave_out), **changes
    ),
    "crawl": lambda d, urls=PAGES, contact="me", **changes: d.default_crawl("x", urls, contact, **changes),
    "read_dump": lambda d, dump=PAGES, kind="ar5iv", **changes: d.default_read_dump("x", dump, kind, **changes),
    "collect": lambda d, name="docs", path=PAGES, patterns=("*",), without=(), **changes: d.default_collect(
        "x", {name: FilesOf(path, patterns, without)}, **changes
    ),
    "extract": lambda d, pages=PAGES, **changes: d.default_extract("x", pages, **changes),
    "convert": lambda d, records=PAGES, shape="sharegpt", **changes: d.default_convert("x", records, shape, **changes),
    "dedupe": lambda d, documents=PAGES, **changes: d.default_dedupe("x", documents, **changes),
    "decontaminate": lambda d, quiz="gs://quiz", name="quiz", **changes: d.default_decontaminate(
        "x", PAGES, {name: quiz}, **changes
    ),
    "sample": lambda d, fraction=0.1, **changes: d.default_sample("x", PAGES, fraction, **changes),
    "shuffle": lambda d, output_shards=4, **changes: d.default_shuffle(
        "x", PAGES, output_shards=output_shards, **changes
    ),
    "consolidate": lambda d, lower=0.5, scores="gs://scores", **changes: d.default_consolidate(
        "x", PAGES, [Threshold(scores, "quality", lower=lower)], **changes
    ),
    "classify": lambda d, function=len, version="", **changes: d.default_classify(
        "x", PAGES, FunctionClassifier(function, version), **changes
    ),
    "encoder": lambda d, model="a/b", batch_size=32, revision="c", longest_text=512, **changes: d.default_classify(
        "x", PAGES, HuggingFaceClassifier(model, revision, batch_size, longest_text), **changes
    ),
    "fasttext": lambda d, model="gs://model", **changes: d.default_classify(
        "x", PAGES, FasttextClassifier(model), **changes
    ),
    "identify_language": lambda d, **changes: d.default_identify_language("x", PAGES, **changes),
    "count": lambda d, documents=PAGES, **changes: d.default_count("x", documents, **changes),
    "funnel": lambda d, name="a", path=PAGES, **changes: d.default_funnel("x", {name: path}, **changes),
    "train_tokenizer": lambda d, documents=PAGES, vocabulary=300, **changes: d.default_train_tokenizer(
        "x", documents, vocabulary, **changes
    ),
    "tokenize": lambda d, dataset=PAGES, tokenizer="gs://tokenizer", **changes: d.default_tokenize(
        "x", dataset, tokenizer, **changes
    ),
}

ALL: dict[str, Any] = {"tasks": 64, "cpu": 8, "ram": "32g"}
DIVISIONS: dict[str, dict[str, Any]] = {
    **{one: {"tasks": 64, "licence": "CC0-1.0"} for one in ("download", "download_files", "copy")},
    "download_package": {"licence": "CC0-1.0"},
    "crawl": {"tasks": 64, "contact": "you", "visits": VisitSettings(seconds_between=9.0, attempts=7)},
    "dedupe": {**ALL, "ram_to_compare": "500g"},
    "funnel": {},
    "tokenize": {**ALL, "allow_test_in_train": True},
    "train_tokenizer": {"ram": "32g"},
}
"""What does not change results, where it is not all of it."""


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("download", {"id": "a/c"}),
        ("download", {"revision": "c" * 40}),
        ("download", {"kind": "model"}),
        ("download", {"patterns": ["*.json"]}),
        ("download", {"leave_out": ["*.json"]}),
        ("download_package", {"version": "2"}),
        ("download_package", {"sha256": "c" * 64}),
        ("download_package", {"patterns": ["*.txt"]}),
        ("download_package", {"leave_out": ["*.txt"]}),
        ("download_files", {"url": "https://a.test/c"}),
        ("download_files", {"url": RemoteFile("https://a.test/b", sha256=DIGEST)}),
        ("download_files", {"archives": "unpack"}),
        ("copy", {"path": "gs://other"}),
        ("copy", {"patterns": ["*.txt"]}),
        ("copy", {"leave_out": ["*.txt"]}),
        ("crawl", {"urls": "gs://other"}),
        ("crawl", {"parts": 2}),
        ("crawl", {"links": LinkRules()}),
        ("crawl", {"already": ["gs://before"]}),
        ("crawl", {"visits": VisitSettings(content_types=("text/plain",))}),
        ("crawl", {"visits": VisitSettings(longest_delay_seconds=1.0)}),
        ("read_dump", {"dump": "gs://other"}),
        ("read_dump", {"kind": "stack_exchange"}),
        ("read_dump", {"parts": 2}),
        ("read_dump", {"patterns": ["a*"]}),
        ("read_dump", {"source": "papers"}),
        ("collect", {"name": "books"}),
        ("collect", {"path": "gs://other"}),
        ("collect", {"patterns": ["*.txt"]}),
        ("collect", {"without": ["*.txt"]}),
        ("collect", {"file_shards": 9}),
        ("extract", {"pages": "gs://other"}),
        ("extract", {"library": "trafilatura"}),
        ("extract", {"text_format": "markdown"}),
        ("extract", {"main_content": False}),
        ("extract", {"largest_page": 9}),
        ("extract", {"html_field": "page"}),
        ("extract", {"source": "docs"}),
        ("extract", {"cleaner": WikipediaCleaner()}),
        ("extract", {"damaged_shards": "keep_what_is_readable"}),
        ("convert", {"records": "gs://other"}),
        ("convert", {"damaged_shards": "keep_what_is_readable"}),
        ("convert", {"shape": "pairs"}),
        ("convert", {"source": "chat"}),
        ("dedupe", {"documents": "gs://other"}),
        ("dedupe", {"threshold": 0.7}),
        ("dedupe", {"shortest_paragraph": 40}),
        ("dedupe", {"shingles": None}),
        ("dedupe", {"shingles": ShingleSettings(unit="character")}),
        ("decontaminate", {"ngram": 8}),
        ("decontaminate", {"quiz": "gs://other"}),
        ("decontaminate", {"name": "test"}),
        ("classify", {"attribute": "length"}),
        ("classify", {"function": max}),
        ("classify", {"function": "module:length"}),
        ("classify", {"version": "2"}),
        ("encoder", {"model": "c/d"}),
        ("encoder", {"revision": "e"}),
        ("encoder", {"batch_size": 8}),
        ("encoder", {"longest_text": 128}),
        ("fasttext", {"model": "gs://other"}),
        ("sample", {"fraction": 0.2}),
        ("sample", {"seed": 3}),
        ("sample", {"rest": True}),
        ("shuffle", {"output_shards": 5}),
        ("shuffle", {"seed": 3}),
        ("consolidate", {"damaged_shards": "keep_what_is_readable"}),
        ("consolidate", {"missing_attributes": "drop"}),
        ("consolidate", {"lower": 0.6}),
        ("consolidate", {"scores": "gs://other"}),
        ("count", {"documents": "gs://other"}),
        ("count", {"tokenizer": "gs://tokenizer"}),
        ("count", {"filtered": "gs://filtered"}),
        ("funnel", {"name": "b"}),
        ("funnel", {"path": "gs://other"}),
        ("funnel", {"counted": {"a": "gs://counts"}}),
        ("funnel", {"joins": ["a"]}),
        ("train_tokenizer", {"documents": "gs://other"}),
        ("train_tokenizer", {"vocabulary": 301}),
        ("train_tokenizer", {"special_tokens": ["<|user|>"]}),
        ("train_tokenizer", {"chat_template": "{{ messages }}"}),
        ("train_tokenizer", {"min_frequency": 3}),
        ("train_tokenizer", {"sample_documents": 9}),
        ("train_tokenizer", {"seed": 3}),
        ("tokenize", {"dataset": "gs://other"}),
        ("tokenize", {"tokenizer": "gs://other"}),
        ("tokenize", {"tokenizer": f"a/b@{COMMIT}"}),
        ("tokenize", {"is_validation": True}),
        ("tokenize", {"sample_count": 9}),
        ("tokenize", {"special_tokens": "as_text"}),
        ("tokenize", {"format": ChatDatasetFormat()}),
        ("tokenize", {"format": TextDatasetFormat("body")}),
    ],
)
def test_what_changes_the_result_changes_the_path(stage: str, change: dict[str, Any], defaults: Any) -> None:
    make = VARIANTS[stage]
    assert path(make(defaults, **change)) != path(make(defaults))


@pytest.mark.parametrize("stage", VARIANTS)
def test_how_the_work_is_done_does_not(stage: str, defaults: Any) -> None:
    make = VARIANTS[stage]
    assert path(make(defaults, **DIVISIONS.get(stage, ALL))) == path(make(defaults))


def test_tasks_cores_and_memory_are_those_of_the_steps(defaults: Any) -> None:
    step = defaults.default_dedupe("x", PAGES, tasks=64, cpu=8, ram="32g", ram_to_compare="500g")
    compared = step.config.duplicates_path.step
    fingerprints = compared.config.fingerprints_path.step
    for one in (step, fingerprints):
        assert (one.fn.tasks, one.fn.resources.cpu, one.fn.resources.ram) == (64, 8, "32g")
        assert one.config.shards.processes == 8
    assert (compared.fn.tasks, compared.fn.resources.ram) == (None, "500g")
    assert defaults.default_dedupe("x", PAGES).config.duplicates_path.step.fn.resources.ram == "4g"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda d: d.default_download("x", "a/b", "main"), "the revision is 'main', not a commit"),
        (lambda d: d.default_download_package("x", "npm", "words", "1", ""), "the sha256 of its file"),
        (lambda d: d.default_download_files("x", ["https://me:secret@a.test/b"]), "has a password in it"),
        (lambda d: d.default_download_files("x", ["gs://a/b"]), "there is FilesystemSource"),
        (lambda d: d.default_tokenize("x", PAGES, "a/b"), "has no revision"),
        (lambda d: d.default_train_tokenizer("x", PAGES, 258), "256 bytes and 3 special tokens need 259"),
        (lambda d: d.default_eval(PAGES, held_out=PAGES, name="x"), "held_out: give each set a name"),
        (lambda d: d.default_classify("x", PAGES, HuggingFaceClassifier("a/b")), "encoder 'a/b' .* has no revision"),
        (lambda d: d.default_funnel("x", {"a": PAGES}, joins=["b"]), "no stages are called"),
        (lambda d: d.default_read_dump("x", PAGES, "text"), "step 'x': kind 'text' is none of .*, text_files"),
        (lambda d: d.default_extract("x", PAGES, library="trafilatur"), "library 'trafilatur' is none of resiliparse"),
        (lambda d: d.default_download_package("x", "nmp", "words", "1", DIGEST), "kind 'nmp' is none of npm, pypi"),
        (lambda d: d.default_extract("x", PAGES, taks=3), "unexpected keyword argument 'taks'"),
    ],
)
def test_what_is_refused_before_anything_runs(make: Callable[[Any], ExecutorStep], why: str, defaults: Any) -> None:
    with pytest.raises((MarinRulesError, TypeError, ValueError), match=why) as refused:
        make(defaults)
    assert "secret" not in str(refused.value)


def test_each_cleaner_and_its_settings_are_part_of_the_version(defaults: Any) -> None:
    cleaners = [
        None,
        WikipediaCleaner(),
        WikipediaCleaner(keep_tables=True),
        Ar5ivCleaner(),
        StackExchangeCleaner(),
        StackExchangeCleaner(most_answers=3),
    ]
    paths = {path(defaults.default_extract("x", PAGES, cleaner=cleaner)) for cleaner in cleaners}
    assert len(paths) == len(cleaners)


def test_a_classifier_is_a_step_with_its_environment(defaults: Any) -> None:
    def trained(rate: float = 1.0, label: str = "bad", **settings: Any) -> ExecutorStep:
        datasets = [LabelledDocuments(PAGES, "good", rate), LabelledDocuments("gs://junk", label)]
        return defaults.default_train_classifier("classifier", datasets, **settings)

    variants = [
        trained(),
        trained(rate=0.5),
        trained(label="junk"),
        trained(seed=1),
        trained(val_frac=0.2),
        trained(fasttext_args={"epoch": 9}),
    ]
    scores = [defaults.default_classify("x", PAGES, step) for step in variants]
    assert len({path(step) for step in variants}) == len(variants)
    assert len({path(step) for step in scores}) == len(scores), "scores follow their classifier"
    assert {step.fn.pip_dependency_groups for step in (*variants, *scores)} == {("fasttext",)}
    by_function = defaults.default_classify("x", PAGES, FunctionClassifier(len))
    assert by_function.fn.pip_dependency_groups == ("data",)
    encoder = defaults.default_classify("x", PAGES, HuggingFaceClassifier("a/b", "c"), environment=["mine"])
    assert encoder.fn.pip_dependency_groups == ("mine",)
    encoder = defaults.default_classify("x", PAGES, HuggingFaceClassifier("./encoder"))
    needs = resolve_groups(encoder.fn.pip_dependency_groups, str(REPOSITORY), prefix="out")
    assert needs.lock is None
    assert {"torch", "transformers", "zstandard"} <= {Requirement(text).name for text in needs.requirements}


def test_languages_are_part_of_the_version(defaults: Any) -> None:
    languages = defaults.default_identify_language("languages", PAGES)
    filters = [defaults.in_languages(languages, *one) for one in ((["en"],), (["en", "de"],), (["en"], 0.9))]
    assert len({path(defaults.default_consolidate("x", PAGES, [one])) for one in filters}) == 3


def test_filters_come_from_steps(defaults: Any) -> None:
    documents = defaults.default_extract("documents", PAGES)
    duplicates = defaults.default_dedupe("duplicates", documents, shortest_paragraph=40)
    filters = [
        *defaults.without_duplicates(duplicates),
        defaults.without_repeated_paragraphs(duplicates),
        defaults.the_best("cut", duplicates, "duplicate", 0.5, "near"),
        Condition("len(text) > 10"),
    ]
    paths = {path(defaults.default_consolidate("x", documents, filters[:number])) for number in range(len(filters) + 1)}
    assert len(paths) == len(filters) + 1, "each filter is part of the version"
