"""Documents, conversations or pairs of input and output to tokens, in caches that Levanter trains from.

    <output>/train/          Levanter cache: a folder a shard, and `shard_ledger.json`
    <output>/validation/     the same, of the validation data
    <output>/tokenizer/      the tokenizer, copied
    <output>/tokens.json     its digest, the format, and counts by split and source
    <output>/identity.json   written first: an attempt with other settings in the same place is refused
    <output>/report/tokens.csv

and `counts/`, `rejects/` and `summary.json` as all stages write them. The tokens are those that Levanter itself would
make: a begin token, the tokens of the text and of a space, and an end token, if the tokenizer has them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account, add_up
from marin_rules.pipeline.core.encoding import Encoder, batches
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, read_json, write_json
from marin_rules.pipeline.core.library_logs import quiet_libraries
from marin_rules.pipeline.core.records import Fault, Record, conversation_fault, document_fault
from marin_rules.pipeline.core.shard_files import Row
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, list_shards, map_shards, no_shards
from marin_rules.pipeline.core.token_cache import LEDGER, TokenCacheWriter, check_shard_cache, ledger
from marin_rules.pipeline.core.tokenizer_files import (
    TokenizerFolder,
    copy_tokenizer,
    local_tokenizer,
)

if TYPE_CHECKING:
    from marin_rules.pipeline.core.encoding import Tokens

SPLITS = ("train", "validation")
TOKENS, MASKS = "input_ids", "assistant_masks"
"""The fields of a cache, as Levanter calls them. Masks are 1 where a token is to be learned."""

_HELD_OUT_WORDS = frozenset({"test", "tests", "testset", "validation", "valid", "val", "eval", "evals", "heldout"})


@dataclass(frozen=True)
class TextDatasetFormat:
    """Documents: every token is learned."""

    text_field: str = "text"


@dataclass(frozen=True)
class ChatDatasetFormat:
    """Conversations, written out by a chat template: what its `{% generation %}` blocks enclose is learned."""

    chat_template: str | None = None
    """None: the tokenizer's own."""


@dataclass(frozen=True)
class SupervisedDatasetFormat:
    """Records with an input and an output: only the output, and the end token, are learned."""

    input_field: str = "input"
    output_field: str = "output"
    separator: str = "\n"
    """Between the two; it belongs to the output."""


type SpecialTokens = Literal["as_tokens", "as_text"]
type DatasetFormat = TextDatasetFormat | ChatDatasetFormat | SupervisedDatasetFormat

_FORMAT_NAMES: dict[type, Literal["text", "chat", "supervised"]] = {
    TextDatasetFormat: "text",
    ChatDatasetFormat: "chat",
    SupervisedDatasetFormat: "supervised",
}


@dataclass(frozen=True)
class TokenizeConfig:
    """The tokens of what is below the given paths."""

    tokenizer: str | InputName
    """A folder or URL with `tokenizer.json`, or `organisation/name@revision` of the Hugging Face hub."""

    train_paths: Sequence[str | InputName] = ()
    validation_paths: Sequence[str | InputName] = ()

    format: DatasetFormat = field(default_factory=TextDatasetFormat)

    sample_count: int | None = None
    """Take only this many records, the first, of each shard. None: all."""

    special_tokens: SpecialTokens = "as_tokens"
    """How to treat `<|eos|>` in a text: the token of that name, as Levanter and Hugging Face have it, or
    the characters (not for chats, whose templates write such tokens). `tokens.json` counts them in the first case."""

    allow_test_in_train: bool = False
    """Accept training paths that look like test or validation data."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def tokenize(config: TokenizeConfig) -> dict[str, Any]:
    """Write the caches of this task's shards; the last task writes their ledgers and `tokens.json`."""
    quiet_libraries()
    _check(config)
    shards = _shards(config)
    with local_tokenizer(str(config.tokenizer)) as folder:
        _claim(config, folder)
        encode = _processor(config, folder)
        names = (TOKENS,) if isinstance(config.format, TextDatasetFormat) else (TOKENS, MASKS)
        if config.shards.processes > 1:
            import levanter.store.cache  # noqa: F401 - Seconds of CPU, once and not in each forked process.

        def transform(shard: Shard, account: Account) -> Iterator[Record | bytes]:
            writer = TokenCacheWriter(join(config.output_path, shard.name), names)
            for row, tokens in encode(_rows(config, shard, account), account):
                writer.add(tokens)
                _tally(account, row.record, tokens[TOKENS], config.format)
                yield b""
            writer.close()

        def finish(done: Sequence[tuple[Shard, dict[str, Any]]]) -> None:
            _finish(config, folder, names, done)

        return map_shards(
            transform,
            ", ".join(str(path) for path in (*config.train_paths, *config.validation_paths)),
            config.output_path,
            output_format="",
            settings=config.shards,
            shards=shards,
            finish=finish,
        )


# --- what is read


def _check(config: TokenizeConfig) -> None:
    if not config.train_paths and not config.validation_paths:
        raise DataError("nothing to tokenize: give train_paths or validation_paths")
    if config.sample_count is not None and config.sample_count < 1:
        raise DataError(f"a sample_count of {config.sample_count} leaves nothing: use at least 1, or None for all")
    if isinstance(config.format, ChatDatasetFormat) and config.special_tokens == "as_text":
        raise DataError("chats cannot have special_tokens='as_text': their template writes special tokens as text")


def _shards(config: TokenizeConfig) -> list[Shard]:
    found = []
    for split, paths in zip(SPLITS, (config.train_paths, config.validation_paths), strict=True):
        for number, path in enumerate(map(str, paths)):
            shards = list_shards(path, settings=config.shards)
            if not shards:
                raise no_shards(f"{path}, one of the {split} paths")
            if split == "train" and not config.allow_test_in_train:
                _refuse_held_out(path, shards, config.output_path)
            above = f"{split}/" if len(paths) == 1 else f"{split}/{number:03}/"
            found += [Shard(path, f"{above}{one.name}", one.size, config.shards, file=one.path) for one in shards]
    return found


def _refuse_held_out(path: str, shards: Sequence[Shard], output_path: str) -> None:
    """Names below the folder that input and output have in common: what is above them says nothing about the data."""
    theirs, ours = path.split("/"), output_path.split("/")
    common = next((place for place, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), len(theirs) - 1)
    below = "/".join(theirs[common:])
    for shard in shards:
        words = re.split(r"[^a-z]+", f"{below}/{shard.name}".lower())
        if suspicious := _HELD_OUT_WORDS.intersection(words):
            raise DataError(
                f"{shard.path} looks like held-out data ({sorted(suspicious)[0]!r} in its name), but is one of the"
                " train_paths. Give it as validation (is_validation=True), or say allow_test_in_train=True"
            )


def _rows(config: TokenizeConfig, shard: Shard, account: Account) -> Iterator[Row]:
    taken = 0
    for row in shard.rows(account, _fault(config.format)):
        if taken == config.sample_count:
            account.drop("not in the sample")
        else:
            taken += 1
            yield row


def _fault(format: DatasetFormat) -> Fault:
    if isinstance(format, ChatDatasetFormat):
        return conversation_fault
    if isinstance(format, TextDatasetFormat) and format.text_field == "text":
        return document_fault
    fields = [format.text_field] if isinstance(format, TextDatasetFormat) else [format.input_field, format.output_field]

    def fault(record: Record) -> str | None:
        for name in fields:
            if not isinstance(record.get(name), str):
                return f"no {name}" if record.get(name) is None else f"{name} is not text"
        return None

    return fault


# --- what is written

type Encoded = Iterator[tuple[Row, dict[str, Tokens]]]


def _processor(config: TokenizeConfig, folder: TokenizerFolder) -> Any:
    """A function of the rows of a shard and its account, that yields the good ones with their tokens."""
    encoder = Encoder(folder, special_tokens_as_text=config.special_tokens == "as_text")
    if isinstance(config.format, ChatDatasetFormat):
        return _Chats(folder, config.format, encoder)
    if isinstance(config.format, SupervisedDatasetFormat):
        return _Pairs(encoder, config.format)
    return _Texts(encoder, config.format)


class _Texts:
    def __init__(self, encoder: Encoder, format: TextDatasetFormat) -> None:
        self._encoder, self._field = encoder, format.text_field

    def __call__(self, rows: Iterable[Row], account: Account) -> Encoded:
        import numpy

        encoder = self._encoder
        begin, end = encoder.begin_id, encoder.end_id
        tail = "" if end is None else " "
        head = numpy.array([] if begin is None else [begin], numpy.int32)
        foot = numpy.array([] if end is None else [end], numpy.int32)
        for batch in batches(self._texts(rows, account, tail)):
            for (row, _), tokens in zip(batch, encoder.encode([text for _, text in batch]), strict=True):
                if found := encoder.count_special(tokens):
                    account.tallies["special tokens in texts"] += found
                yield row, {TOKENS: numpy.concatenate((head, tokens, foot))}

    def _texts(self, rows: Iterable[Row], account: Account, tail: str) -> Iterator[tuple[Row, str]]:
        for row in rows:
            text = row.record[self._field]
            if not text or text.isspace():
                account.drop("empty text")
            else:
                yield row, text + tail


class _Pairs:
    def __init__(self, encoder: Encoder, format: SupervisedDatasetFormat) -> None:
        self._encoder, self._format = encoder, format

    def __call__(self, rows: Iterable[Row], account: Account) -> Encoded:
        import numpy

        encoder, format = self._encoder, self._format
        head = numpy.array([] if encoder.begin_id is None else [encoder.begin_id], numpy.int32)
        foot = numpy.array([] if encoder.end_id is None else [encoder.end_id], numpy.int32)
        for batch in batches(self._texts(rows, account)):
            records = [row.record for row, _ in batch]
            inputs = encoder.encode([record[format.input_field] for record in records])
            outputs = encoder.encode([format.separator + record[format.output_field] for record in records])
            for (row, _), given, learned in zip(batch, inputs, outputs, strict=True):
                if found := encoder.count_special(given) + encoder.count_special(learned):
                    account.tallies["special tokens in texts"] += found
                tokens = numpy.concatenate((head, given, learned, foot))
                masks = numpy.zeros(len(tokens), numpy.int32)
                masks[len(head) + len(given) :] = 1
                yield row, {TOKENS: tokens, MASKS: masks}

    def _texts(self, rows: Iterable[Row], account: Account) -> Iterator[tuple[Row, str]]:
        for row in rows:
            given, output = row.record[self._format.input_field], row.record[self._format.output_field]
            if not output or output.isspace():
                account.drop("empty output")
            else:
                yield row, given + output


class _Chats:
    """By Levanter's own processor, which knows the tokens that a template's `{% generation %}` encloses."""

    def __init__(self, folder: TokenizerFolder, format: ChatDatasetFormat, encoder: Encoder) -> None:
        template = format.chat_template or folder.chat_template
        if template is None:
            raise DataError(
                f"the tokenizer {folder.path} has no chat template: give ChatDatasetFormat(chat_template=...)"
            )
        if not re.search(r"{%-?\s*generation\s*-?%}", template):
            raise DataError(
                "the chat template has no {% generation %} block, which says what is learned: put one around the"
                " assistant's content"
            )
        self._folder, self._template = folder.path, template
        self._special = encoder.special_texts

    def __call__(self, rows: Iterable[Row], account: Account) -> Encoded:
        from levanter.data.text.formats import ChatProcessor
        from levanter.tokenizers import load_tokenizer

        process = ChatProcessor(
            load_tokenizer(self._folder), chat_template=self._template, chat_template_kwargs_field=None
        )
        for batch in batches((row, "".join(one["content"] for one in row.record["messages"])) for row in rows):
            records = [{"messages": row.record["messages"]} for row, _ in batch]
            try:
                made = process(records)
            except Exception:  # Of a conversation that the template refuses, say. Which one is it?
                made = [self._one(process, row, account) for row, _ in batch]
            for (row, content), tokens in zip(batch, made, strict=True):
                if tokens is not None:
                    account.tallies["special tokens in texts"] += sum(content.count(one) for one in self._special)
                    yield row, tokens

    def _one(self, process: Any, row: Row, account: Account) -> Any:
        try:
            return process([{"messages": row.record["messages"]}])[0]
        except Exception as error:
            nothing_learned = "did not contain an assistant message" in str(error)
            reason = "nothing to learn in it" if nothing_learned else "the chat template failed"
            detail = "" if nothing_learned else f"{type(error).__name__}: {error}"
            account.reject(row.number, reason, detail=detail, id=row.record["id"], content=str(row.record["messages"]))
            return None


def _tally(account: Account, record: Record, tokens: Tokens, format: DatasetFormat) -> None:
    if isinstance(format, TextDatasetFormat):
        size = len(record[format.text_field].encode())
    elif isinstance(format, SupervisedDatasetFormat):
        size = len(record[format.input_field].encode()) + len(record[format.output_field].encode())
    else:
        size = sum(len(message["content"].encode()) for message in record["messages"])
    source = record.get("source") or ""
    for name, amount in (("documents", 1), ("tokens", len(tokens)), ("bytes", size)):
        account.tallies[name] += amount
        account.tallies[f"{name} from {source}"] += amount


# --- the whole


def _claim(config: TokenizeConfig, folder: TokenizerFolder) -> None:
    """Record whose place this is, before anything is written; refuse it if it is another's."""
    identity = {
        "tokenizer": folder.sha256,
        "format": _FORMAT_NAMES[type(config.format)],
        "format_settings": asdict(config.format),
        "chat_template": folder.chat_template if isinstance(config.format, ChatDatasetFormat) else None,
        "sample_count": config.sample_count,
        "special_tokens": config.special_tokens,
    }
    path = join(config.output_path, "identity.json")
    found = read_json(path)
    if found is not None and found != identity:
        other = sorted(name for name in identity if found.get(name) != identity[name])
        raise DataError(
            f"{config.output_path} holds tokens that were made with another {' and '.join(other)}:"
            " delete them, or write elsewhere"
        )
    copy = join(config.output_path, "tokenizer")
    if found is None or read_json(join(copy, "tokenizer.json")) is None:
        copy_tokenizer(folder.path, copy)
        write_json(path, identity)


def _finish(
    config: TokenizeConfig,
    folder: TokenizerFolder,
    fields: Sequence[str],
    done: Sequence[tuple[Shard, dict[str, Any]]],
) -> None:
    splits: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    for split in SPLITS:
        counted = [(shard, counts) for shard, counts in done if shard.name.startswith(f"{split}/")]
        if not counted:
            continue
        total = add_up([counts for _, counts in counted])
        tallies = total["tallies"]
        if not total["written"]:
            raise DataError(
                f"there is nothing to learn in the {split} data: of {total['read']} records"
                f" {sum(total['rejected'].values())} were rejected and {sum(total['dropped'].values())} dropped"
                f" ({', '.join([*total['rejected'], *total['dropped']])})"
            )
        rows, digests = [], []
        for shard, counts in counted:
            documents, tokens = counts["written"], counts["tallies"].get("tokens", 0)
            digests.append(check_shard_cache(join(config.output_path, shard.name), documents, tokens))
            if documents:
                rows.append((shard.name.removeprefix(f"{split}/"), documents, tokens))
        metadata = {"tokenizer": f"sha256:{folder.sha256}", "format": _FORMAT_NAMES[type(config.format)]}
        write_json(join(config.output_path, split, LEDGER), ledger(rows, fields, layout="sharded", metadata=metadata))
        splits[split] = {name: tallies.get(name, 0) for name in ("documents", "tokens", "bytes")}
        splits[split]["sha256"] = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        splits[split]["special_tokens_in_texts"] = tallies.get("special tokens in texts", 0)
        sources[split] = _by_source(tallies)
    write_json(
        join(config.output_path, "tokens.json"),
        {
            "tokenizer": {"path": "tokenizer", "sha256": folder.sha256, "vocabulary": folder.vocabulary},
            "format": _FORMAT_NAMES[type(config.format)],
            "format_settings": asdict(config.format),
            "splits": splits,
            "sources": sources,
        },
    )
    _write_table(join(config.output_path, "report", "tokens.csv"), sources)


def _by_source(tallies: dict[str, int]) -> dict[str, dict[str, int]]:
    begin = "documents from "
    names = sorted(name.removeprefix(begin) for name in tallies if name.startswith(begin))
    return {
        source: {name: tallies[f"{name} from {source}"] for name in ("documents", "tokens", "bytes")}
        for source in names
    }


def _write_table(path: str, sources: dict[str, Any]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("split", "source", "documents", "tokens", "bytes", "bytes_per_token"))
    for split, by_source in sources.items():
        for source, counts in by_source.items():
            sizes = counts["documents"], counts["tokens"], counts["bytes"]
            table.writerow((split, source, *sizes, f"{counts['bytes'] / max(counts['tokens'], 1):.3f}"))
    with into_place(path) as file:
        file.write(text.getvalue().encode())
