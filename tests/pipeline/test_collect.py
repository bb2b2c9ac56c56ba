"""Several sources as one corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.collect import CollectConfig, Source, collect
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.shard_map import ShardSettings


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    pages, texts = tmp_path / "pages", tmp_path / "texts"
    (pages / "deep").mkdir(parents=True)
    texts.mkdir()
    (pages / "a.html").write_bytes("<meta charset='latin-1'><p>Käse".encode("latin-1"))
    (pages / "deep" / "b.HTM").write_text("<p>two")
    (pages / "style.css").write_text("p {}")
    (texts / "one.txt").write_bytes("\ufeffone".encode())
    (texts / "bad.txt").write_bytes(b"\xff\xfe\xfa")
    (texts / "left.out.txt").write_text("no")
    return {"pages": str(pages), "texts": str(texts)}


def test_files_and_shards_become_one_corpus(corpus: Any, folders: dict[str, str]) -> None:
    earlier = corpus.write(
        "earlier", {"x/0.jsonl": [{"id": "1", "text": "t", "source": "old", "more": 1}, {"text": "t"}]}
    )
    sources = {
        "docs": Source(folders["pages"]),
        "books": Source(folders["texts"], without=["left*"]),
        "mail": Source(earlier),
    }
    collect(CollectConfig(sources, file_shards=2, output_path=corpus.path("out")))
    records = {record["id"]: record for record in corpus.records("out")}
    assert records == {
        "docs/a.html": {"id": "docs/a.html", "source": "docs", "html": "<meta charset='latin-1'><p>Käse"},
        "docs/deep/b.HTM": {"id": "docs/deep/b.HTM", "source": "docs", "html": "<p>two"},
        "books/one.txt": {"id": "books/one.txt", "source": "books", "text": "one"},
        "mail/1": {"id": "mail/1", "source": "mail", "text": "t", "more": 1},
    }
    assert "mail/x/0.jsonl.zst" in corpus.read("out")
    summary = corpus.summary("out")
    assert (summary["read"], summary["written"], summary["rejected"]) == (6, 4, {"no id": 1, "not UTF-8": 1})


def test_another_file_changes_one_shard(corpus: Any, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text(str(number))
    collect(CollectConfig({"s": Source(str(folder))}, file_shards=4, output_path=corpus.path("before")))
    (folder / "new.txt").write_text("new")
    collect(CollectConfig({"s": Source(str(folder))}, file_shards=4, output_path=corpus.path("after")))
    before, after = corpus.read("before"), corpus.read("after")
    assert len(before) == 4
    assert sum(before[name] != after[name] for name in before) == 1


def test_other_files_of_the_same_size_are_read_when_an_attempt_goes_on(corpus: Any, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "old.txt").write_text("one")
    config = CollectConfig({"s": Source(str(folder))}, file_shards=1, output_path=corpus.path("out"))
    collect(config)
    (folder / "old.txt").unlink()
    (folder / "new.txt").write_text("two")
    collect(config)
    assert corpus.records("out") == [{"id": "s/new.txt", "source": "s", "text": "two"}]


def test_a_shard_with_the_name_of_one_for_files_is_refused(corpus: Any) -> None:
    """Such as one that an earlier step has made of other files: of the two only one would be there."""
    given = corpus.write("in", {"files-00000-of-00001.jsonl": [{"id": "1", "text": "t"}]})
    Path(given, "a.txt").write_text("a")
    config = CollectConfig({"s": Source(given)}, file_shards=1, output_format=".jsonl", output_path=corpus.path("out"))
    with pytest.raises(DataError, match=r"source 's': .*/in/files-00000-of-00001.jsonl has the name of a shard that"):
        collect(config)
    collect(replace(config, file_shards=2))
    assert sorted(record["id"] for record in corpus.records("out")) == ["s/1", "s/a.txt"]


def test_a_file_that_is_too_large_is_rejected(corpus: Any, folders: dict[str, str]) -> None:
    settings = ShardSettings(largest_record_bytes=10)
    config = CollectConfig({"s": Source(folders["pages"])}, shards=settings, output_path=corpus.path("out"))
    collect(config)
    assert corpus.summary("out")["rejected"] == {"too large": 1}
    assert [reject["id"] for reject in corpus.rejects("out")] == ["s/a.html"]


@pytest.mark.parametrize(
    ("name", "patterns", "message"),
    [
        ("s", ["*.pdf"], "source 's': no pages, texts or shards below .* match \\*.pdf"),
        ("a/b", ["*"], "a source cannot be called 'a/b'"),
        ("rejects", ["*"], "a source cannot be called 'rejects'"),
        ("", ["*"], "a source cannot be called ''"),
    ],
)
def test_bad_sources_are_refused(
    name: str, patterns: list[str], message: str, corpus: Any, folders: dict[str, str]
) -> None:
    with pytest.raises(DataError, match=message):
        collect(CollectConfig({name: Source(folders["pages"], patterns)}, output_path=corpus.path("out")))
