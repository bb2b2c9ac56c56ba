"""Tokenizers and token caches, made in the training environment and read as Levanter reads them.

The oracles are Levanter's own preparation of text, the tokenizers library, and the chat templates of transformers.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

REPOSITORY = Path(__file__).parents[2]
NOVEL = REPOSITORY / "tests" / "data" / "moby_dick"
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}A:{% generation %} {{ m['content'] }}<|end_of_text|>"
    "{% endgeneration %}{% else %}Q: {{ m['content'] }}\n{% endif %}{% endfor %}"
)
SPECIAL = {"<|begin_of_text|>": 0, "<|end_of_text|>": 1, "<|padding|>": 2}


class Tokenizing:
    """The process that carries out orders; `tokenizing.do("make_tokens", ...)`."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        variables = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "MARIN_PREFIX": str(folder / "marin"),
            "HF_HOME": str(folder / "hf"),
            "HF_HUB_OFFLINE": "1",
        }
        script = Path(__file__).with_name("tokenizing.py")
        self._process = subprocess.Popen(
            [str(python), str(script)], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, order: str, **settings: Any) -> Any:
        self.begin(order, **settings)
        answer = self._answer()
        assert "answer" in answer, answer
        return answer["answer"]

    def refusal(self, order: str, **settings: Any) -> str:
        self.begin(order, **settings)
        answer = self._answer()
        assert "refused" in answer, answer
        return str(answer["refused"])

    def begin(self, order: str, **settings: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([order, settings]) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def tokenizing(training_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizing]:
    process = Tokenizing(training_python, tmp_path_factory.mktemp("tokenizing"))
    yield process
    process.end()


def novel() -> str:
    return "\n".join(path.read_text() for path in sorted(NOVEL.glob("*.txt")))


def passages(words: int) -> list[dict[str, Any]]:
    all_words = novel().split(" ")
    texts = [" ".join(all_words[start : start + words]) for start in range(0, len(all_words), words)]
    return [{"id": f"p{n}", "text": text, "source": f"s{n % 2}"} for n, text in enumerate(texts)]


def write(folder: Path, shards: Mapping[str, Sequence[Any]]) -> str:
    for name, records in shards.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("".join(f"{line}\n" for line in lines))
    return str(folder)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def corpus(tokenizing: Tokenizing) -> str:
    """Four shards of the novel."""
    documents = passages(60)
    return write(tokenizing.folder / "corpus", {f"{n}.jsonl": documents[n::4] for n in range(4)})


@pytest.fixture(scope="module")
def tokenizer(tokenizing: Tokenizing, corpus: str) -> str:
    path = str(tokenizing.folder / "tokenizer")
    tokenizing.do("train", input_path=corpus, vocabulary=600, chat_template=TEMPLATE, output_path=path)
    return path


@pytest.fixture(scope="module")
def small_tokenizer(tokenizing: Tokenizing, corpus: str) -> str:
    path = str(tokenizing.folder / "small")
    tokenizing.do("train", input_path=corpus, vocabulary=400, output_path=path)
    return path


# --- a tokenizer


def test_a_tokenizer_gives_every_text_back_and_says_how_well_it_compresses(
    tokenizing: Tokenizing, tokenizer: str, small_tokenizer: str
) -> None:
    odd = "Zoë 鯨 🐳 \t\n  \x00 <|not special|>"
    for text in (novel()[:5000], odd):
        (tokens,) = tokenizing.do("encoded", tokenizer=tokenizer, texts=[text])
        assert tokenizing.do("decoded", tokenizer=tokenizer, tokens=tokens) == text
    facts = json.loads(Path(tokenizer, "training.json").read_text())
    smaller = json.loads(Path(small_tokenizer, "training.json").read_text())
    documents = passages(60)
    assert (facts["vocabulary"], facts["documents"]) == (600, len(documents))
    assert facts["trained_on"] + facts["held_out"]["documents"] == len(documents)
    assert facts["held_out"]["bytes_per_token"] > smaller["held_out"]["bytes_per_token"] > 1.5
    table = csv.DictReader(Path(tokenizer, "report", "tokenizer.csv").read_text().splitlines())
    (row,) = [row for row in table if row["source"] == "all"]
    assert int(row["tokens"]) == facts["held_out"]["tokens"]


def test_a_tokenizer_depends_on_documents_and_seed_and_on_no_division(tokenizing: Tokenizing, tokenizer: str) -> None:
    one = write(tokenizing.folder / "one", {"a.jsonl": list(reversed(passages(60)))})
    made = {}
    for name, given in {"same": {}, "sample": {"sample_documents": 30}, "seed": {"seed": 1}}.items():
        path = str(tokenizing.folder / name)
        tokenizing.do("train", input_path=one, vocabulary=600, chat_template=TEMPLATE, output_path=path, **given)
        made[name] = Path(path, "tokenizer.json").read_bytes()
    assert made["same"] == Path(tokenizer, "tokenizer.json").read_bytes()
    assert len({*made.values()}) == 3
    facts = json.loads(Path(tokenizing.folder, "sample", "training.json").read_text())
    assert facts["trained_on"] == 30


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"vocabulary": 100}, "a vocabulary of 100 is too small: 256 bytes and 3 special tokens need 259"),
        ({"vocabulary": 600, "end_token": ""}, "a special token is empty"),
    ],
)
def test_tokenizers_that_are_refused(given: dict[str, Any], why: str, tokenizing: Tokenizing, corpus: str) -> None:
    assert why in tokenizing.refusal("train", input_path=corpus, output_path="nowhere", **given)


def test_a_tokenizer_of_too_little(tokenizing: Tokenizing, tmp_path: Path) -> None:
    empty = write(tmp_path / "empty", {"a.jsonl": [{"id": "a", "text": " "}, "{cut", {"id": "b"}]})
    said = tokenizing.refusal("train", input_path=empty, vocabulary=300, output_path=str(tmp_path / "out"))
    assert "has 0 documents with text (rejected: {'no text': 1, 'not JSON': 1})" in said
    said = tokenizing.refusal("train", input_path=str(tmp_path / "no"), vocabulary=300, output_path="out")
    assert f"no shards below {tmp_path / 'no'}: looked for .jsonl" in said
    assert "read_dump makes shards of text" in said


# --- texts


def test_texts_become_the_tokens_that_levanter_makes(tokenizing: Tokenizing, tokenizer: str, tmp_path: Path) -> None:
    """Also long ones, which are encoded in pieces, and words without end."""
    chapters = novel()
    texts = [chapters[:100], chapters * 8, "x" * 60_000 + " and so on", "a" + " " * 30_000 + "b", "one <|padding|> two"]
    records = [{"id": str(n), "text": text} for n, text in enumerate(texts)]
    given = write(tmp_path / "in", {"a.jsonl": records[:2], "deep/b.jsonl": [*records[2:], {"id": "e", "text": " \n"}]})
    out = tmp_path / "out"
    tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[given], output_path=str(out))
    rows = [row["input_ids"] for row in tokenizing.do("read_cache", path=str(out / "train"))]
    assert rows == tokenizing.do("levanters_tokens", tokenizer=tokenizer, texts=texts)
    for text, tokens in zip(texts[:2], rows, strict=False):
        assert tokenizing.do("encoded", tokenizer=tokenizer, texts=[f"{text} "]) == [tokens[1:-1]]

    summary = json.loads((out / "summary.json").read_text())
    assert (summary["written"], summary["dropped"]) == (5, {"empty text": 1})
    told = json.loads((out / "tokens.json").read_text())
    train = told["splits"]["train"]
    assert (train["documents"], train["tokens"]) == (5, sum(map(len, rows)))
    assert train["special_tokens_in_texts"] == 1
    assert told["tokenizer"]["sha256"] == json.loads(Path(tokenizer, "training.json").read_text())["sha256"]
    assert tokenizing.do("open_for_training", path=str(out)) == ["data"]


def test_a_space_before_each_text_is_not_put_before_its_pieces(tokenizing: Tokenizing, tmp_path: Path) -> None:
    """As by tokenizers like Llama 2's, which have no pre-tokenizer."""
    long = novel() * 8
    letters = sorted({*long, "▁"})
    merges = [["▁", "t"], ["h", "e"], ["▁t", "he"], ["▁", "a"], ["▁", "▁"]]
    tokens = ["<unk>", *letters, *("".join(pair) for pair in merges)]
    before = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    made = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": before},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": merges,
        },
    }
    given = write(tmp_path / "in", {"a.jsonl": [{"id": "a", "text": long}]})
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    out = tmp_path / "out"
    tokenizing.do("make_tokens", tokenizer=str(tmp_path), train_paths=[given], output_path=str(out))
    rows = [row["input_ids"] for row in tokenizing.do("read_cache", path=str(out / "train"))]
    assert rows == tokenizing.do("encoded", tokenizer=str(tmp_path), texts=[long])


def test_the_digest_of_tokens_is_that_of_what_they_say(tokenizing: Tokenizing, tokenizer: str, tmp_path: Path) -> None:
    """Texts with as many tokens as each other, and two of the same."""
    found = {}
    for name, word in (("one", "Queequeg"), ("same", "Queequeg"), ("other", "Starbuck")):
        records = [{"id": "a", "text": word}, {"id": "b", "text": "the whale"}]
        given, out = write(tmp_path / name / "in", {"a.jsonl": records}), tmp_path / name / "out"
        tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[given], output_path=str(out))
        found[name] = json.loads((out / "tokens.json").read_text())["splits"]["train"]["sha256"]
    assert found["one"] == found["same"] != found["other"]
    assert len(found["one"]) == 64


def test_special_tokens_of_a_text_can_be_plain_text(tokenizing: Tokenizing, tokenizer: str, tmp_path: Path) -> None:
    given = write(tmp_path / "in", {"a.jsonl": [{"id": "a", "text": "one <|padding|> two"}]})
    seen = {}
    for name in ("as_tokens", "as_text"):
        path = str(tmp_path / name)
        tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[given], special_tokens=name, output_path=path)
        ((row,), told) = (
            tokenizing.do("read_cache", path=f"{path}/train"),
            json.loads(Path(path, "tokens.json").read_text()),
        )
        seen[name] = SPECIAL["<|padding|>"] in row["input_ids"], told["splits"]["train"]["special_tokens_in_texts"]
    assert seen == {"as_tokens": (True, 1), "as_text": (False, 0)}


def test_the_cache_is_the_same_for_any_number_of_tasks(
    tokenizing: Tokenizing, tokenizer: str, corpus: str, tmp_path: Path
) -> None:
    held = write(tmp_path / "held", {"v.jsonl": passages(500)})
    paths = {"train_paths": [corpus], "validation_paths": [held]}
    for tasks in (1, 4):
        tokenizing.do("make_tokens", tokenizer=tokenizer, **paths, tasks=tasks, output_path=str(tmp_path / str(tasks)))
    one = bytes_of(tmp_path / "1")
    assert bytes_of(tmp_path / "4") == one
    for data in one.values():
        assert str(tmp_path).encode() not in data, "a cache can be moved"
    validation = tokenizing.do("read_cache", path=str(tmp_path / "1" / "validation"))
    assert len(validation) == len(passages(500))
    table = list(csv.DictReader((tmp_path / "1" / "report" / "tokens.csv").read_text().splitlines()))
    assert [(row["split"], row["source"]) for row in table] == [
        *(("train", "s0"), ("train", "s1"), ("validation", "s0"), ("validation", "s1"))
    ]


def test_what_was_killed_goes_on_and_comes_to_the_same_bytes(
    tokenizing: Tokenizing, tokenizer: str, training_python: Path, tmp_path: Path
) -> None:
    """Killed with its processes; the rest is done without any."""
    text = novel() * 20
    shards = {f"{n}.jsonl": [{"id": f"{n}-{m}", "text": f"{n} {m} {text}"} for m in range(2)] for n in range(6)}
    given = {"tokenizer": tokenizer, "train_paths": [write(tmp_path / "in", shards)]}
    tokenizing.do("make_tokens", **given, output_path=str(tmp_path / "whole"))
    killed = tmp_path / "killed"
    process = Tokenizing(training_python, tmp_path)
    process.begin("make_tokens", **given, processes=2, output_path=str(killed))
    give_up = time.monotonic() + 90
    while not (done := {path: path.stat().st_mtime_ns for path in killed.glob("counts/train/*.json")}):
        assert time.monotonic() < give_up
        time.sleep(0.005)
    process.end()
    assert not (killed / "tokens.json").exists(), "it was done before it could be killed"
    tokenizing.do("make_tokens", **given, output_path=str(killed))
    assert {path: path.stat().st_mtime_ns for path in done} == done, "what was done stays done"
    assert bytes_of(killed) == bytes_of(tmp_path / "whole")


def test_a_sample_of_each_shard(tokenizing: Tokenizing, tokenizer: str, corpus: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[corpus], sample_count=3, output_path=str(out))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["written"] == 4 * 3
    assert summary["dropped"] == {"not in the sample": len(passages(60)) - 12}
    rows = [row["input_ids"] for row in tokenizing.do("read_cache", path=str(out / "train"))]
    first = [record["text"] for n in range(4) for record in passages(60)[n::4][:3]]
    assert rows == tokenizing.do("levanters_tokens", tokenizer=tokenizer, texts=first)


def test_counts_are_those_of_the_cache_without_its_marks(
    tokenizing: Tokenizing, tokenizer: str, corpus: str, tmp_path: Path
) -> None:
    tokenizing.do("count_tokens", input_path=corpus, tokenizer=tokenizer, output_path=str(tmp_path / "counts"))
    tallies = json.loads((tmp_path / "counts" / "summary.json").read_text())["tallies"]
    texts = [record["text"] for record in passages(60)]
    assert tallies["tokens"] == sum(map(len, tokenizing.do("encoded", tokenizer=tokenizer, texts=texts)))
    assert tallies["tokens"] == tallies["tokens from s0"] + tallies["tokens from s1"]
    assert tallies["bytes"] == sum(len(text.encode()) for text in texts)


# --- conversations and pairs


def test_of_a_conversation_what_the_assistant_says_is_learned(
    tokenizing: Tokenizing, tokenizer: str, tmp_path: Path
) -> None:
    chats = [
        [{"role": "user", "content": "Who is Ishmael?"}, {"role": "assistant", "content": "A sailor."}],
        [{"role": "assistant", "content": "Ask me."}, {"role": "user", "content": "No."}],
    ]
    bad = [
        {"id": "none", "messages": [{"role": "user", "content": "Is anybody there?"}]},
        {"id": "role", "messages": [{"role": "whale", "content": "..."}]},
        {"id": "empty", "messages": []},
    ]
    records = [{"id": str(n), "messages": chat} for n, chat in enumerate(chats)]
    given = write(tmp_path / "in", {"a.jsonl": [records[0], *bad, records[1]]})
    out = tmp_path / "out"
    tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[given], format=["chat", {}], output_path=str(out))
    rows = tokenizing.do("read_cache", path=str(out / "train"), masked=True)
    assert rows == [tokenizing.do("chat_tokens", tokenizer=tokenizer, messages=chat) for chat in chats]
    learned = [token for token, mask in zip(*rows[0].values(), strict=True) if mask]
    assert tokenizing.do("decoded", tokenizer=tokenizer, tokens=learned) == " A sailor.<|end_of_text|>"
    rejects = [json.loads(line) for line in (out / "rejects" / "train" / "a.jsonl.jsonl").read_text().splitlines()]
    assert {row["id"]: row["reason"] for row in rejects} == {
        "none": "nothing to learn in it",
        "role": "messages has a message with an unknown role",
        "empty": "messages is empty",
    }


def test_of_a_pair_the_output_is_learned(tokenizing: Tokenizing, tokenizer: str, tmp_path: Path) -> None:
    records = [
        {"question": "Call me", "answer": "Ishmael", "source": "novel"},
        {"question": "", "answer": "Whale"},
        {"question": "x", "answer": " "},
        {"question": "y"},
        {"question": 3, "answer": "z"},
    ]
    given, out = write(tmp_path / "in", {"a.jsonl": records}), tmp_path / "out"
    format = ["supervised", {"input_field": "question", "output_field": "answer", "separator": ": "}]
    tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[given], format=format, output_path=str(out))
    rows = tokenizing.do("read_cache", path=str(out / "train"), masked=True)
    for row, (question, answer) in zip(rows, (("Call me", ": Ishmael"), ("", ": Whale")), strict=True):
        before, after = tokenizing.do("encoded", tokenizer=tokenizer, texts=[question, answer])
        assert row["input_ids"] == [SPECIAL["<|begin_of_text|>"], *before, *after, SPECIAL["<|end_of_text|>"]]
        assert row["assistant_masks"] == [0] * (1 + len(before)) + [1] * (len(after) + 1)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["dropped"], summary["rejected"]) == (
        {"empty output": 1},
        {"no answer": 1, "question is not text": 1},
    )


# --- what is refused


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"train_paths": []}, "nothing to tokenize"),
        ({"sample_count": 0}, "a sample_count of 0 leaves nothing"),
        ({"train_paths": ["IN/nowhere"]}, "no shards below .*nowhere, one of the train paths: .* read_dump makes"),
        ({"train_paths": ["IN/test"]}, "test/a.jsonl looks like held-out data .'test' in its name.*is_validation=True"),
        ({"train_paths": ["IN/validation-0001"]}, "looks like held-out data .'validation' in its name"),
        ({"tokenizer": "IN/good"}, "has no readable tokenizer.json. Is it a tokenizer"),
        ({"tokenizer": "me/mine"}, "has no revision: write 'me/mine@<commit>'"),
        ({"tokenizer": "me/mine@main"}, "cannot get the tokenizer me/mine@main from the Hugging Face hub"),
        ({"format": ["chat", {"chat_template": "{{ messages }}"}]}, "no {% generation %} block"),
        ({"format": ["chat", {}], "tokenizer": "SMALL"}, "has no chat template: give ChatDatasetFormat"),
        ({"format": ["chat", {}], "special_tokens": "as_text"}, "chats cannot have special_tokens='as_text'"),
        (
            {"train_paths": ["IN/blank"]},
            "nothing to learn in the train data: of 2 records 1 were rejected and 1 dropped",
        ),
    ],
)
def test_what_is_refused(
    given: dict[str, Any], why: str, tokenizing: Tokenizing, tokenizer: str, small_tokenizer: str, tmp_path: Path
) -> None:
    good = {"id": "a", "text": "good", "messages": [{"role": "assistant", "content": "good"}]}
    folders = {"good/a.jsonl": [good], "test/a.jsonl": [good], "validation-0001/a.jsonl": [good]}
    folder = write(tmp_path / "in", {**folders, "blank/a.jsonl": [{"id": "a", "text": " "}, "{cut"]})
    settings = {"tokenizer": tokenizer, "train_paths": ["IN/good"], **given}
    text = json.dumps(settings).replace("IN/", f"{folder}/").replace("SMALL", small_tokenizer)
    said = tokenizing.refusal("make_tokens", **json.loads(text), output_path=str(tmp_path / "out"))
    assert re.search(why, said), said


def test_test_data_may_be_trained_on_if_one_says_so_and_folders_above_say_nothing(
    tokenizing: Tokenizing, tokenizer: str, tmp_path: Path
) -> None:
    """The prefix of a test may well be called `tests`, and so may the user's home."""
    given = write(tmp_path / "tests" / "raw", {"a.jsonl": [{"id": "a", "text": "good"}]})
    held = write(tmp_path / "tests" / "held", {"test.jsonl": [{"id": "a", "text": "good"}]})
    out = tmp_path / "tests" / "tokenized"
    tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[given], output_path=str(out))
    for number, settings in enumerate(
        ({"train_paths": [held], "allow_test_in_train": True}, {"validation_paths": [held]})
    ):
        tokenizing.do("make_tokens", tokenizer=tokenizer, **settings, output_path=f"{out}-{number}")


def test_another_tokenizer_than_that_of_the_cache(
    tokenizing: Tokenizing, tokenizer: str, small_tokenizer: str, corpus: str, tmp_path: Path
) -> None:
    """In the place of another's tokens, and in a cache whose copy somebody has replaced."""
    out = str(tmp_path / "out")
    tokenizing.do("make_tokens", tokenizer=tokenizer, train_paths=[corpus], output_path=out)
    before = bytes_of(tmp_path / "out")
    for other, changed in (
        ({"tokenizer": small_tokenizer}, "another tokenizer"),
        ({"sample_count": 2}, "another sample_count"),
        ({"special_tokens": "as_text"}, "another special_tokens"),
    ):
        given = {"tokenizer": tokenizer, "train_paths": [corpus], **other}
        assert changed in tokenizing.refusal("make_tokens", **given, output_path=out)
    assert bytes_of(tmp_path / "out") == before
    for name in ("tokenizer.json", "tokenizer_config.json"):
        Path(out, "tokenizer", name).write_bytes(Path(small_tokenizer, name).read_bytes())
    assert "was tokenized with another tokenizer" in tokenizing.refusal("open_for_training", path=out)
