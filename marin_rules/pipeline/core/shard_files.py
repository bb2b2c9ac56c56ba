"""One shard: records in a `.jsonl`, `.jsonl.gz`, `.jsonl.zst` or `.parquet` file, streamed.

Reading holds one record at a time (of Parquet, a batch). A line that is longer than the limit is skipped without being
kept, and rejected like one that is not JSON, not UTF-8 or not a record of the schema. A compressed file that ends too
early is not a shorter shard but a damaged one: `DamagedShard` names it. (gzip and zstandard themselves accept an empty
file, and zstandard a cut one.)

Parquet holds the columns `id`, `text` and `source`, and all other fields of a record as JSON in the column `rest`. In
other people's Parquet files every column is a field; a null is not a field, nor is a NaN, which JSON does not have. (An
infinite number, which it does not have either, becomes null, as does a NaN in a list or an object.) Points in time
become text when a record is written, to the microsecond: nanoseconds, which pandas writes even where there are none,
are refused only where there are some. A column of a type that JSON does not have either is refused.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, Protocol

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DamagedShard, DataError
from marin_rules.pipeline.core.files import open_to_read
from marin_rules.pipeline.core.records import Fault, Record, document_fault, drop_nulls

FORMATS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")

LARGEST_RECORD = 256 << 20
"""Bytes of a line. A document of 100 MB passes; anything larger is most likely not a document."""

_DEEPEST = 200
"""Lists and objects within each other. What writes JSON takes 254, and a stage may put a record into another."""

_ZSTANDARD_CHUNK = 1 << 9
_GZIP_CHUNK = 1 << 14
"""Compressed bytes at a time. Few, since of text that repeats itself each can be 30,000 (zstandard) or 1,000 (gzip)."""

_PLAIN_CHUNK = 1 << 18
_BATCH_ROWS = 256
_BATCH_BYTES = 16 << 20
_REST = "rest"
_STRINGS = ("id", "text", "source")


class Row(NamedTuple):
    number: int
    """Its place in the shard, from 1."""

    record: Record
    line: bytes | None
    """The line as in the file, without its end; None if it was not a JSON line. A stage that changes nothing writes
    this."""


def format_of(name: str) -> str | None:
    """The format of a file, by its name."""
    return next((format for format in reversed(FORMATS) if name.endswith(format)), None)


# --- reading


def read_rows(
    path: str, name: str, account: Account, fault: Fault = document_fault, largest: int = LARGEST_RECORD
) -> Iterator[Row]:
    """The good records of a shard; the others are rejected, also the second one with an id."""
    import orjson

    if format_of(name) == ".parquet":
        rows = _parquet_rows(path, account)
    else:
        rows = _line_rows(path, name, account, largest, orjson.loads)
    seen: set[str] = set()
    for row in rows:
        record = row.record
        drop_nulls(record)
        if reason := fault(record):
            account.reject(row.number, reason, id=_id_of(record), content=str(record))
            continue
        id = record.get("id")
        if type(id) is str:
            if id in seen:
                account.reject(row.number, "the id was there before", id=id, content=str(record))
                continue
            seen.add(id)
        yield row


def _line_rows(path: str, name: str, account: Account, largest: int, loads: Callable[[bytes], Any]) -> Iterator[Row]:
    for number, line in enumerate(_lines(chunks_of(path, name), largest), 1):
        if line is None:
            account.read += 1
            account.reject(number, "too large", detail=f"more than {largest} bytes")
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line or line.isspace():
            continue
        account.read += 1
        account.bytes_read += len(line)
        try:
            record = loads(line)
        except ValueError as error:
            try:
                text, reason = line.decode(), "not JSON"
            except UnicodeDecodeError:
                text, reason = line.decode(errors="replace"), "not UTF-8"
            account.reject(number, reason, detail=str(error), content=text)
            continue
        if type(record) is not dict:
            account.reject(number, "not an object", content=line.decode(errors="replace"))
            continue
        if _is_too_deep(record, line):
            account.reject(number, "nested too deeply", content=line.decode(errors="replace"))
            continue
        yield Row(number, record, line)


def _is_too_deep(record: Record, line: bytes) -> bool:
    """Whether the record could not be written again."""
    if line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return False
    level: list[Any] = [record]
    for _ in range(_DEEPEST):
        inner = (value.values() if isinstance(value, dict) else value for value in level)
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return False
    return True


def _lines(chunks: Iterator[bytes], largest: int) -> Iterator[bytes | None]:
    """Lines without their ends; None for one that is too long, of which nothing is kept."""
    begun: list[bytes] = []
    length = 0
    for chunk in chunks:
        lines = chunk.split(b"\n")
        for last in lines[:-1]:
            length += len(last)
            if length > largest:
                yield None
            else:
                yield b"".join([*begun, last]) if begun else last
            begun, length = [], 0
        length += len(lines[-1])
        if length > largest:
            begun = []
        elif lines[-1]:
            begun.append(lines[-1])
    if length > largest:
        yield None
    elif begun:
        yield b"".join(begun)


def chunks_of(path: str, name: str) -> Iterator[bytes]:
    """The bytes of a file, decompressed as its name says."""
    with open_to_read(path) as file:
        if name.endswith(".gz"):
            yield from _decompressed(file, path, _gzip_decompressor, _GZIP_CHUNK)
        elif name.endswith(".zst"):
            import zstandard

            yield from _decompressed(file, path, zstandard.ZstdDecompressor().decompressobj, _ZSTANDARD_CHUNK)
        else:
            while chunk := file.read(_PLAIN_CHUNK):
                yield chunk


class _Decompressor(Protocol):
    """What zlib and zstandard have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip_decompressor() -> _Decompressor:
    return zlib.decompressobj(wbits=31)


def _decompressed(file: IO[bytes], path: str, make: Callable[[], _Decompressor], size: int) -> Iterator[bytes]:
    """All members or frames of a file."""
    current = make()
    begun = any_read = any_whole = False
    while data := file.read(size):
        any_read = True
        while data:
            if any_whole and not begun and not data.strip(b"\0"):
                break  # Some programs fill up the last block with zeros.
            begun = True
            try:
                text = current.decompress(data)
            except Exception as error:  # Each library has its own.
                if "too much memory" in str(error):
                    raise DataError(
                        f"{path} was compressed with a window that takes more than 128 MiB of memory to read. Compress"
                        " it again: `zstd -dc --long=31 OLD | zstd -o NEW`"
                    ) from error
                raise DamagedShard(f"{path} is damaged: {error}") from error
            if text:
                yield text
            if not current.eof:
                break
            data, current, begun, any_whole = current.unused_data, make(), False, True
    if not any_read:
        raise DamagedShard(f"{path} is empty: not even compressed")
    if begun:
        raise DamagedShard(f"{path} is cut: it ends in the middle of its compressed data")


def _parquet_rows(path: str, account: Account) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    with open_to_read(path) as opened:
        file = _ReadByArrow(opened)
        try:
            parquet = pyarrow.parquet.ParquetFile(file)
            schema = parquet.schema_arrow
            ours = schema.names == [*_STRINGS, _REST] and pyarrow.types.is_string(schema.field(_REST).type)
            _refuse_types(path, schema)
            number = 0
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
                account.bytes_read += batch.nbytes
                for values in _in_microseconds(path, batch).to_pylist():
                    number += 1
                    account.read += 1
                    rest = values.pop(_REST) if ours else None
                    record = {name: value for name, value in values.items() if value is not None and value == value}
                    if reason := _add_rest(record, rest):
                        account.reject(number, reason, id=_id_of(record), content=str(values))
                    else:
                        yield Row(number, record, None)
        except (pyarrow.ArrowException, OSError) as error:
            if file.failed:
                raise
            raise DamagedShard(f"{path} is damaged: {error}") from error
        except UnicodeDecodeError as error:
            raise DamagedShard(f"{path} is damaged: a text in it is not UTF-8 ({error})") from error


class _ReadByArrow:
    """A file that remembers whether it could be read. For pages that make no sense, arrow raises the same kind of error
    as for a disk or a network; but trouble with those is not damage, after which the rest might be left out."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failed = False
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    @property
    def closed(self) -> bool:
        return self._file.closed

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)
        except BaseException:
            self.failed = True
            raise


def _add_rest(record: Record, rest: str | None) -> str | None:
    """Put the other fields into a record; what is wrong with them, if they cannot be ours."""
    import orjson

    if not rest:
        return None
    try:
        fields = orjson.loads(rest)
    except ValueError:
        return "rest is not JSON"
    if not isinstance(fields, dict) or not fields.keys().isdisjoint(_STRINGS):
        return "rest is not an object of other fields"
    record.update(fields)
    return "nested too deeply" if _is_too_deep(record, rest.encode()) else None


def _in_microseconds(path: str, batch: Any) -> Any:
    """Without nanoseconds, which Python does not have."""
    import pyarrow

    def coarser(type: Any) -> Any:
        if pyarrow.types.is_timestamp(type) and type.unit == "ns":
            return pyarrow.timestamp("us", type.tz)
        if pyarrow.types.is_time64(type):
            return pyarrow.time64("us")
        if pyarrow.types.is_struct(type):
            return pyarrow.struct([field.with_type(coarser(field.type)) for field in type.fields])
        return pyarrow.list_(coarser(type.value_type)) if pyarrow.types.is_list(type) else type

    fields = [field.with_type(coarser(field.type)) for field in batch.schema]
    if fields == list(batch.schema):
        return batch
    columns = []
    for field, column in zip(fields, batch.columns, strict=True):
        try:
            columns.append(column.cast(field.type))
        except pyarrow.ArrowInvalid as error:
            raise DataError(
                f"{path} has nanoseconds in the column {field.name!r}: round them to microseconds, or cast them to text"
            ) from error
    return pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def _refuse_types(path: str, schema: Any) -> None:
    """Columns whose values no JSON line could hold, at any depth, and two with one name."""
    import pyarrow.types as types

    tests = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_decimal, types.is_duration)

    def is_refused(type: Any) -> bool:
        return any(test(type) for test in tests) or any(
            is_refused(type.field(number).type) for number in range(type.num_fields)
        )

    if repeated := [name for name in schema.names if schema.names.count(name) > 1]:
        raise DataError(f"{path} has several columns named {repeated[0]!r}: rename or remove all but one")
    for field in schema:
        if is_refused(field.type):
            raise DataError(f"{path} has a column {field.name!r} of type {field.type}: cast it to text or remove it")


def _id_of(record: Record) -> str | None:
    id = record.get("id")
    return id if isinstance(id, str) else None


# --- writing


class ShardWriter:
    """Writes records into a file that is open, in one of the formats. The same records are the same bytes."""

    def __init__(self, file: IO[bytes], format: str) -> None:
        import orjson

        self._dumps = orjson.dumps
        self._parquet = _ParquetWriter(file) if format == ".parquet" else None
        self._compressor: Any = None
        if format == ".jsonl.gz":
            import gzip

            self._compressor = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        elif format == ".jsonl.zst":
            import zstandard

            self._compressor = zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False)
        self._file = file if self._compressor is None else self._compressor

    def write(self, record: Record | bytes) -> None:
        """A record, or its line from another shard."""
        if self._parquet is not None:
            import orjson

            self._parquet.write(orjson.loads(record) if isinstance(record, bytes) else record)
            return
        line = record if isinstance(record, bytes) else self._dumps(record)
        self._file.write(line + b"\n")

    def close(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
        elif self._compressor is not None:
            self._compressor.close()


class _ParquetWriter:
    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow
        import pyarrow.parquet

        self._schema = pyarrow.schema([(name, pyarrow.string()) for name in (*_STRINGS, _REST)])
        self._writer = pyarrow.parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Record] = []
        self._bytes = 0

    def write(self, record: Record) -> None:
        import orjson

        rest = {name: value for name, value in record.items() if name not in _STRINGS}
        row = {name: record.get(name) for name in _STRINGS}
        row[_REST] = orjson.dumps(rest).decode() if rest else None
        self._rows.append(row)
        self._bytes += sum(len(value) for value in row.values() if value is not None)
        if self._bytes > _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        if self._rows:
            self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()
