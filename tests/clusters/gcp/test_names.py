"""Ids and labels of jobs on Google Cloud."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_rules.clusters.gcp.names import job_id, label_value, request_id, tag_labels, tag_of
from marin_rules.clusters.protocol import ArrayTasks, JobTag

JOB_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train", "train"),
        ("Data/Tokenize_ALL", "data-tokenize-all"),
        ("7b", "j-7b"),
        ("--", "job"),
        ("ünïcode", "n-code"),
        ("x" * 100, "x" * 40),
        ("x" * 39 + "/y", "x" * 39),
    ],
)
def test_an_id_begins_with_the_words_of_the_name(name: str, expected: str) -> None:
    assert re.fullmatch(rf"{expected}-[0-9a-f]{{10}}-3", job_id(name, "identity", 3))


@settings(deadline=None)
@given(st.text(), st.text(), st.integers(1, 10_000))
def test_an_id_is_one_that_batch_takes_and_depends_on_all_it_is_made_of(name: str, identity: str, number: int) -> None:
    found = job_id(name, identity, number)
    assert JOB_ID.fullmatch(found)
    assert found == job_id(name, identity, number)
    assert found not in (job_id(name, f"{identity}x", number), job_id(name, identity, number + 1))


def test_a_request_id_is_a_uuid_of_the_job_alone() -> None:
    assert uuid.UUID(request_id("job-1")) == uuid.UUID(request_id("job-1")) != uuid.UUID(request_id("job-2"))


@pytest.mark.parametrize(("text", "expected"), [("run-7", "run-7"), ("a_b", "a_b"), ("x" * 63, "x" * 63)])
def test_what_can_be_a_label_stays_as_it_is(text: str, expected: str) -> None:
    assert label_value(text) == expected


@settings(deadline=None)
@given(st.text(min_size=1))
def test_every_text_becomes_a_label(text: str) -> None:
    assert LABEL.fullmatch(label_value(text))
    assert label_value(text)


def test_texts_that_differ_only_in_what_a_label_lacks_have_different_labels() -> None:
    assert len({label_value(text) for text in ("Run", "run", "rün", "x" * 63, "x" * 64, "x" * 65)}) == 6


@pytest.mark.parametrize(
    "tag",
    [
        JobTag.of("run-1", "train-0123ab", "gs://bucket/train-0123ab"),
        JobTag.of("Ünï:code run", "data/deep/name-0123ab", "/out", ArrayTasks(2, 640)),
        JobTag.of("r" * 200, "s" * 200, "/out"),
    ],
)
def test_a_tag_comes_back_from_labels_that_batch_takes(tag: JobTag) -> None:
    labels = tag_labels(tag)
    assert all(re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) and LABEL.fullmatch(labels[key]) for key in labels)
    assert len(labels) <= 20
    shuffled = dict(sorted(labels.items(), key=lambda item: item[1]))
    assert tag_of({**shuffled, "team": "speech"}) == tag


@pytest.mark.parametrize("labels", [{}, {"marin-tag-00": "not-base32!"}, {"marin-tag-00": "mfra"}, {"team": "x"}])
def test_labels_of_others_hold_no_tag(labels: dict[str, str]) -> None:
    assert tag_of(labels) is None
