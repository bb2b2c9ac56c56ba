"""Which model a path means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.model_files import find_model, tokenizer_digest

TOKENIZER = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}, "added_tokens": []}


def export(folder: Path, *, weights: bool = True, model_type: str = "llama") -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, "vocab_size": 4}))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    if weights:
        (folder / "model.safetensors").write_bytes(b"weights")
    return str(folder)


def checkpoint(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text("{}")
    return str(folder)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """Exports of steps 9 and 100, checkpoints of 100 and 150, and one that was cut."""
    for step in (9, 100):
        export(tmp_path / "hf" / f"step-{step}")
    for step in (100, 150):
        checkpoint(tmp_path / "checkpoints" / f"step-{step}")
    (tmp_path / "checkpoints" / "step-200").mkdir()
    (tmp_path / "checkpoints" / "step-200" / "part").write_text("no metadata")
    return tmp_path


@pytest.mark.parametrize(
    ("below", "step", "kind", "path", "reference"),
    [
        ("", None, "levanter", "checkpoints/step-150", "hf/step-100"),
        ("", 100, "hugging_face", "hf/step-100", "hf/step-100"),
        ("", 9, "hugging_face", "hf/step-9", "hf/step-9"),
        ("hf/step-9", None, "hugging_face", "hf/step-9", "hf/step-9"),
        ("checkpoints/step-100", None, "levanter", "checkpoints/step-100", "hf/step-100"),
    ],
)
def test_the_last_step_or_the_one_that_is_named(
    below: str, step: int | None, kind: str, path: str, reference: str, training: Path
) -> None:
    found = find_model(str(training / below) if below else str(training), step)
    assert (found.kind, found.path, found.reference_path) == (kind, f"{training}/{path}", f"{training}/{reference}")
    assert found.step == int(path.rpartition("-")[2])


def test_a_folder_of_any_name_is_a_model(tmp_path: Path) -> None:
    assert find_model(export(tmp_path / "mine")).step is None


@pytest.mark.parametrize(
    ("make", "step", "message"),
    [
        (lambda at: str(at / "nothing"), None, "empty or does not exist"),
        (lambda at: str(at), None, "empty or does not exist"),
        (lambda at: export(at / "a", weights=False), None, r"no \*.safetensors"),
        (lambda at: checkpoint(at / "lone" / "step-3"), None, "does not say what model it is of"),
        (lambda at: export(at / "step-3"), 4, "step 4 is asked for"),
    ],
)
def test_what_is_no_model_is_refused(make: object, step: int | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        find_model(make(tmp_path), step)  # type: ignore[operator]


def test_a_step_that_is_not_there_is_refused_with_those_that_are(training: Path) -> None:
    with pytest.raises(DataError, match="no step 7: there are 9, 100, 150"):
        find_model(str(training), 7)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path, name: str) -> None:
    """Levanter asks transformers to execute such code whenever it loads a tokenizer."""
    folder = export(tmp_path / "model")
    (tmp_path / "model" / name).write_text('{"model_type": "llama", "auto_map": {"AutoTokenizer": [null, "evil.T"]}}')
    with pytest.raises(DataError, match=rf"model/{name} names code to be executed .*evil\.T.* is never executed here"):
        find_model(folder)


def test_tokenizers_are_the_same_whoever_saved_them(tmp_path: Path) -> None:
    one, other, third = (tmp_path / name for name in "abc")
    saved_again = {**TOKENIZER, "model": {**TOKENIZER["model"], "merges": ["a b"]}, "truncation": {"max_length": 8}}
    changed = {**TOKENIZER, "model": {**TOKENIZER["model"], "vocab": {"a": 1}}}
    for folder, tokenizer in ((one, TOKENIZER), (other, saved_again), (third, changed)):
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert tokenizer_digest(str(one)) == tokenizer_digest(str(other)) != tokenizer_digest(str(third))
