"""A tokenizer as files: found, copied beside what it encodes, and known by a digest.

A tokenizer is a folder or URL with a `tokenizer.json` (the output of `train_tokenizer`, say), or an id of the Hugging
Face hub with its revision, `organisation/name@revision`: without one, the same step would mean another tokenizer
tomorrow. The hub is asked through its own library, which honours HF_HUB_OFFLINE and HF_HOME.

The digest covers everything that determines a text's tokens: `tokenizer.json` apart from padding and truncation, which
no stage uses, and the names of the begin, end and padding tokens. It does not cover a chat template.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, is_url, join, open_to_read, read_json, sizes_below

_FILES = ("tokenizer*", "special_tokens_map*", "added_tokens*", "chat_template*", "vocab*", "merges*", "spiece*")
_SETTINGS = ("config.json", "tokenizer_config.json")
_CODE = "auto_map"
"""The key under which Hugging Face names code to execute when a model or a tokenizer is loaded."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(@[\w.-]+)?")


@dataclass(frozen=True)
class TokenizerFolder:
    """A tokenizer's files on this machine."""

    path: str
    sha256: str
    vocabulary: int
    begin_token: str | None
    end_token: str | None
    padding_token: str | None
    chat_template: str | None


def is_hub_name(name: str) -> bool:
    """Whether it is a name of the hub; a folder is an absolute path, or begins with a dot."""
    return not is_url(name) and _HUB_ID.fullmatch(name) is not None


def check_tokenizer_name(name: str) -> None:
    """Refuse what can be refused before anything runs: an id on the hub without a revision."""
    if is_hub_name(name) and "@" not in name:
        raise DataError(
            f"the tokenizer {name!r} of the Hugging Face hub has no revision: write '{name}@<commit>'"
            f" (or './{name}' if it is a folder)"
        )


@contextmanager
def local_tokenizer(name: str) -> Iterator[TokenizerFolder]:
    """The tokenizer of that name, on this machine for as long as the block lasts."""
    if is_hub_name(name) and not os.path.isdir(name):
        check_tokenizer_name(name)
        yield read_tokenizer(_from_hub(*name.split("@")), called=name)
    elif is_url(name):
        with tempfile.TemporaryDirectory() as folder:
            copy_tokenizer(name, folder)
            yield read_tokenizer(folder, called=name)
    else:
        yield read_tokenizer(name)


def read_tokenizer(folder: str, *, called: str = "") -> TokenizerFolder:
    """What a local folder holds; `called` is its name in errors."""
    called = called or folder
    tokenizer = read_json(join(folder, "tokenizer.json"))
    if not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise DataError(
            f"{called} has no readable tokenizer.json. Is it a tokenizer? One of another kind can be converted:"
            " transformers.AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    refuse_code(folder, called=called)
    settings = read_json(join(folder, "tokenizer_config.json")) or {}
    named = {name: _token(settings.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
    covered = {name: value for name, value in tokenizer.items() if name not in ("padding", "truncation")}
    text = json.dumps([covered, named], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    ids = {token["content"] for token in tokenizer.get("added_tokens", [])} | set(_vocabulary(tokenizer["model"]))
    if missing := [token for token in named.values() if token is not None and token not in ids]:
        raise DataError(f"{called}: tokenizer_config.json names {missing[0]!r}, which tokenizer.json does not have")
    return TokenizerFolder(
        path=folder,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        vocabulary=len(ids),
        begin_token=named["bos_token"],
        end_token=named["eos_token"],
        padding_token=named["pad_token"],
        chat_template=_chat_template(folder, settings),
    )


def refuse_code(folder: str, *, called: str = "") -> None:
    """Refuse a model or a tokenizer that names code of its own: libraries would execute it, wherever it comes from."""
    for name in _SETTINGS:
        settings = read_json(join(folder, name))
        if isinstance(settings, dict) and settings.get(_CODE):
            raise DataError(
                f"{join(called or folder, name)} names code to be executed ({_CODE!r}: {settings[_CODE]!r}), and code"
                f" that comes with a model is never executed here. If it works without, remove {_CODE!r} from a copy"
            )


def copy_tokenizer(source: str, folder: str) -> None:
    """The files of a tokenizer, each written whole or not at all."""
    names = [name for name in sizes_below(source) if any(fnmatch.fnmatch(name, pattern) for pattern in _FILES)]
    for name in (name for name in names if "/" not in name):
        with open_to_read(join(source, name)) as given, into_place(join(folder, name)) as file:
            file.write(given.read())


def _from_hub(name: str, revision: str) -> str:
    import huggingface_hub

    try:
        return str(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(_FILES)))
    except Exception as error:  # The library's own ones, and those of its HTTP client.
        raise DataError(
            f"cannot get the tokenizer {name}@{revision} from the Hugging Face hub ({type(error).__name__}: {error})."
            " Without network, give a folder with its tokenizer.json"
        ) from error


def _vocabulary(model: dict[str, Any]) -> list[str]:
    vocabulary = model.get("vocab", {})
    return list(vocabulary) if isinstance(vocabulary, dict) else [token for token, _ in vocabulary]


def _token(value: Any) -> str | None:
    """Hugging Face writes a token as text, or as an object with its content."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def _chat_template(folder: str, settings: dict[str, Any]) -> str | None:
    if isinstance(template := settings.get("chat_template"), str):
        return template
    try:
        with open_to_read(join(folder, "chat_template.jinja")) as file:
            return file.read().decode()
    except FileNotFoundError:
        return None
