"""Artifacts that are saved and loaded by hand, and the registry that knows them by name."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest

from marin_rules import (
    Artifact,
    ArtifactAlreadyExistsError,
    ArtifactEntry,
    ArtifactNotFoundError,
    ArtifactRegistryError,
    ExecutorStep,
    FilesystemArtifactRegistry,
    InvalidArtifactIdError,
    PathMetadata,
    get_default_registry,
    set_default_registry,
    use_default_registry,
)
from marin_rules.state.artifacts import ArtifactError


@dataclass
class Stats:
    rows: int
    files: list[str]


class Model(pydantic.BaseModel):
    version: str = "v1"
    rows: int
    when: date = date(2026, 6, 1)


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path))
    monkeypatch.delenv("MARIN_ARTIFACT_REGISTRY", raising=False)
    return str(tmp_path)


@pytest.mark.parametrize("value", [None, 3, "text", [1, {"a": None}], {"a": 1.5}])
def test_plain_data_come_back(value: Any, prefix: str) -> None:
    Artifact.save(value, f"{prefix}/x")
    assert Artifact.from_path("x") == Artifact.from_path(f"{prefix}/x") == value
    assert json.loads(Path(prefix, "x", ".artifact.json").read_text()) == value


def test_dataclasses_and_models_come_back_as_what_they_are(prefix: str) -> None:
    Artifact.save(Stats(3, ["a", "b"]), f"{prefix}/x")
    assert Artifact.from_path("x", Stats) == Stats(3, ["a", "b"])
    assert Artifact.from_path("x") == {"rows": 3, "files": ["a", "b"]}
    Artifact.save(Model(rows=7), f"{prefix}/y")
    assert Artifact.from_path("y") == {"rows": 7, "version": "v1", "when": "2026-06-01"}
    assert Artifact.from_path("y", Model) == Model(rows=7)


class Split(StrEnum):
    TRAIN = "train"


@dataclass(frozen=True)
class Shard:
    path: Path
    split: Split
    loss: float = 0.0


@dataclass
class Box[T]:
    content: T


@dataclass
class Corpus:
    shards: list[Shard]
    by_number: dict[int, Shard]
    pair: tuple[Shard, int]
    model: Model | None
    best: Shard | None
    either: str | list[Shard] | Shard
    seen: set[str]
    box: Box[str]
    kind: Literal["a", "b"] = "a"
    extra: Any = None
    count: int = field(init=False, default=0)


def test_what_is_inside_of_a_dataclass_comes_back_as_well(prefix: str) -> None:
    one, two = Shard(Path("a/b"), Split.TRAIN, float("inf")), Shard(Path("c"), Split.TRAIN)
    corpus = Corpus([one, two], {3: one}, (two, 1), Model(rows=1), None, [one], {"x"}, Box("c"), "b", {"path": 1})
    Artifact.save(dataclasses.replace(corpus, seen=["x"]), f"{prefix}/x")  # type: ignore[arg-type]
    assert Artifact.from_path("x", Corpus) == corpus
    Artifact.save({**dataclasses.asdict(corpus), "seen": [], "shards": [3]}, f"{prefix}/x")
    with pytest.raises(ArtifactError, match="is not a Corpus: a Shard is an object, not 3"):
        Artifact.from_path("x", Corpus)


class Level(Enum):
    LOW = 1


@dataclass
class Keys:
    by_threshold: dict[float, int]
    by_split: dict[Split, dict[Level, int]]
    by_file: dict[Path, int]
    by_truth: dict[bool, int]
    by_name: dict[str, int]
    by_any: dict[Any, int]


def test_keys_come_back_as_what_they_are(prefix: str) -> None:
    """JSON has only strings for keys."""
    keys = Keys(
        {0.5: 1, 2.0: 2, float("inf"): 3}, {Split.TRAIN: {Level.LOW: 1}}, {Path("a/b"): 1}, {True: 1, False: 0},
        {"1": 1, "true": 2}, {"1": 1},
    )  # fmt: skip
    Artifact.save(keys, f"{prefix}/x")
    assert Artifact.from_path("x", Keys) == keys
    Artifact.save({**vars(keys), "by_split": {"test": {}}}, f"{prefix}/x")
    with pytest.raises(ArtifactError, match="is not a Keys: 'test'"):
        Artifact.from_path("x", Keys)


def test_annotations_that_name_nothing_leave_plain_data(prefix: str) -> None:
    @dataclass
    class Inner:
        rows: int

    @dataclass
    class Outer:
        inner: Inner  # Nobody else can look up the name of a class in a function.

    Artifact.save(Outer(Inner(3)), f"{prefix}/x")
    assert Artifact.from_path("x", Outer).inner == {"rows": 3}


def test_what_is_not_what_was_asked_for_is_named(prefix: str) -> None:
    Artifact.save({"rows": 3}, f"{prefix}/x")
    with pytest.raises(ArtifactError, match=r"x/\.artifact\.json is not a Stats"):
        Artifact.from_path("x", Stats)
    with pytest.raises(TypeError, match="a pydantic model or a dataclass, not int"):
        Artifact.from_path("x", int)
    for content in (b"", b"\x80\x04\x95.", b"[" * 100_000):
        Path(prefix, "x", ".artifact.json").write_bytes(content)
        with pytest.raises(ArtifactError, match=r"x/\.artifact\.json is not JSON"):
            Artifact.from_path("x")
    with pytest.raises(ArtifactError, match="cannot be saved: the return value is not JSON"):
        Artifact.save(object(), f"{prefix}/y")
    with pytest.raises(TypeError, match="takes the output path of a step or a StepSpec"):
        Artifact.from_path(ExecutorStep("a", print, None))  # type: ignore[call-overload]


def test_a_step_without_an_artifact_is_its_path_once_it_is_done(prefix: str) -> None:
    with pytest.raises(FileNotFoundError, match="its step has no status: run it first"):
        Artifact.from_path("x")
    Path(prefix, "x").mkdir()
    Path(prefix, "x", ".executor_status").write_text("SUCCESS")
    assert Artifact.from_path("x") == Artifact.from_path("x", PathMetadata) == PathMetadata(f"{prefix}/x")
    with pytest.raises(FileNotFoundError, match=r"no \.artifact\.json in .*/x, and so no Stats"):
        Artifact.from_path("x", Stats)


# -- the registry --------------------------------------------------------------------------------------------


def test_an_entry_is_a_file_with_marins_fields(prefix: str) -> None:
    registry = FilesystemArtifactRegistry(f"{prefix}/registry/")
    entry = registry.register("wiki/clean", "2026.06.01-a", f"{prefix}/clean/wiki_1")
    assert entry == ArtifactEntry("wiki/clean", "2026.06.01-a", f"{prefix}/clean/wiki_1", "clean/wiki_1")
    file = Path(prefix, "registry/wiki/clean/2026.06.01-a.json")
    assert json.loads(file.read_text()) == vars(entry)
    assert registry.lookup("wiki/clean", "2026.06.01-a") == entry
    file.write_text(json.dumps({**vars(entry), "later": 1}))
    assert registry.lookup("wiki/clean", "2026.06.01-a") == entry
    file.write_text("{}")
    with pytest.raises(ArtifactRegistryError, match="is not an entry"):
        registry.lookup("wiki/clean", "2026.06.01-a")
    assert registry.register("wiki/clean", "2026.06.02", "gs://b/x").relative_path is None


def test_of_many_who_register_a_version_one_does(prefix: str) -> None:
    registry = FilesystemArtifactRegistry(f"{prefix}/registry")

    def register(number: int) -> ArtifactEntry | None:
        try:
            return registry.register("a/b", "2026.06.01", f"/data/{number}")
        except ArtifactAlreadyExistsError as error:
            existing.append(error.existing)
            return None

    existing: list[ArtifactEntry] = []
    with ThreadPoolExecutor(8) as pool:
        (winner,) = filter(None, pool.map(register, range(32)))
    assert existing == [winner] * 31
    assert registry.lookup("a/b", "2026.06.01") == winner


@pytest.mark.parametrize(
    ("id", "version", "uri"),
    [
        ("wiki", "2026.06.01", "/x"),
        ("a/b/c", "2026.06.01", "/x"),
        ("../b", "2026.06.01", "/x"),
        ("a/b\n", "2026.06.01", "/x"),
        ("a/b", "2026.13.01", "/x"),
        ("a/b", "2026.6.1", "/x"),
        ("a/b", "latest", "/x"),
        ("a/b", "2026.06.01-../x", "/x"),
        ("a/b", "2026.06.01", "relative/x"),
    ],
)
def test_wrong_names_are_refused(id: str, version: str, uri: str, prefix: str) -> None:
    with pytest.raises(InvalidArtifactIdError):
        FilesystemArtifactRegistry(f"{prefix}/registry").register(id, version, uri)


def test_a_local_artifact_is_nothing_for_a_shared_registry() -> None:
    with pytest.raises(InvalidArtifactIdError, match="is on this machine"):
        FilesystemArtifactRegistry("gs://bucket/registry").register("a/b", "2026.06.01", "/data")


def test_a_copy_below_the_own_prefix_is_preferred(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Artifact.save("there", f"{prefix}/there/x")
    monkeypatch.setenv("MARIN_PREFIX", f"{prefix}/there")
    registry = FilesystemArtifactRegistry(f"{prefix}/registry")
    registry.register("a/b", "2026.06.01", f"{prefix}/there/x")
    monkeypatch.setenv("MARIN_PREFIX", f"{prefix}/here")
    assert Artifact.from_id("a/b", "2026.06.01", registry=registry) == "there"
    Artifact.save("here", f"{prefix}/here/x")
    assert Artifact.from_id("a/b", "2026.06.01", registry=registry) == "here"


def test_which_registry(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Artifact.save(1, f"{prefix}/x")
    get_default_registry().register("a/b", "2026.06.01", f"{prefix}/x")
    assert Path(prefix, "artifact_registry/a/b/2026.06.01.json").exists()
    monkeypatch.setenv("MARIN_ARTIFACT_REGISTRY", f"{prefix}/other")
    with pytest.raises(ArtifactNotFoundError, match=f"'a/b' of version '2026.06.01' in the registry {prefix}/other"):
        Artifact.from_id("a/b", "2026.06.01")
    with use_default_registry(FilesystemArtifactRegistry(f"{prefix}/artifact_registry")):
        assert Artifact.from_id("a/b", "2026.06.01") == 1
    with pytest.raises(KeyError):
        Artifact.from_id("a/b", "2026.06.01")
    set_default_registry(FilesystemArtifactRegistry(f"{prefix}/artifact_registry"))
    assert Artifact.from_id("a/b", "2026.06.01") == 1
    set_default_registry(None)
