"""The driver of a stage: shards in, shards of the same names out, with every record accounted for.

    <output>/<shard>                 what the stage made of the shard of that name
    <output>/rejects/<shard>.jsonl   its bad records, with reasons; only if it has any (`left_out.py`)
    <output>/counts/<shard>.json     written last: a shard with its counts is done, and is not done again
    <output>/summary.json            all counts added up, by the task that does the last shard

Shards are divided among the tasks of the step, and within a task among processes, one per shard. Nothing in these files
says which task or process wrote them, or when: the same input is the same bytes, however it was divided or interrupted.
A shard that fails does not stop the others; the step then fails with the names of those that did.

A finished step that is run again does all its shards again (`done_before.py`), and what it has made of shards that its
input no longer has is removed: everything below the output is counted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from marin_rules import shards_of_this_task
from marin_rules.parentage import end_with_parent
from marin_rules.pipeline.core.account import Account, add_up
from marin_rules.pipeline.core.done_before import forget_if_done_before
from marin_rules.pipeline.core.errors import DamagedShard, DataError
from marin_rules.pipeline.core.files import (
    into_place,
    join,
    read_json,
    remove_file,
    size_of,
    sizes_below,
    write_json,
)
from marin_rules.pipeline.core.left_out import REJECTS, LeftOut
from marin_rules.pipeline.core.progress import Progress
from marin_rules.pipeline.core.records import Fault, Record, document_fault
from marin_rules.pipeline.core.shard_files import FORMATS, LARGEST_RECORD, Row, ShardWriter, format_of, read_rows

_SUMMARY = "summary.json"
_COUNTS = "counts"

_NAMED = 5
"""Shards that a message names."""

_LONGEST_REASON = 2000
"""Characters, few enough for a pipe that nobody reads until the process has ended."""

_NO_SPACE = "there is no space left"


type DamagedShards = Literal["fail", "keep_what_is_readable"]
"""What to do about a file that is cut or garbled: fail and name it, or take the records before the damage and count it
in the summary (`tallies`: `damaged shards`). A decision about the result, so a field of the configs of those stages
through which data comes in; what they write is whole, and all later stages fail."""


@dataclass(frozen=True)
class ShardSettings:
    """How shards are worked on."""

    processes: int = 1
    """How many shards a task works on at a time, each in a process of its own: as many as it has cores. The result
    does not depend on it."""

    largest_record_bytes: int = LARGEST_RECORD
    """A longer line is rejected, without being held in memory. Changing this changes the result: version it."""


@dataclass(frozen=True)
class Shard:
    """One shard of a stage's input."""

    folder: str
    name: str
    """Relative to the folder."""

    size: int
    settings: ShardSettings = field(default_factory=ShardSettings)
    file: str | None = None
    """Where it is, for a stage with several inputs that names shards itself; otherwise at its name."""
    damaged_shards: DamagedShards = "fail"
    made_of: str = ""
    """Of a shard that is several files: `digest_of` them. Others can have the same size together."""

    @property
    def path(self) -> str:
        return self.file or join(self.folder, self.name)

    def rows(self, account: Account, fault: Fault = document_fault) -> Iterator[Row]:
        """Its good records."""
        rows = read_rows(self.path, self.name, account, fault, self.settings.largest_record_bytes)
        return self.until_damage(rows, account)

    def until_damage[T](self, records: Iterator[T], account: Account) -> Iterator[T]:
        """What is read from the shard; if damage may pass, it ends there as if the shard did."""
        try:
            yield from records
        except DamagedShard:
            if self.damaged_shards == "fail":
                raise
            account.tallies["damaged shards"] += 1


type Transform = Callable[[Shard, Account], Iterable[Record | bytes]]
"""A stage: yields what to write, and rejects or drops in the account every other record that it reads."""

type Finish = Callable[[Sequence[tuple[Shard, dict[str, Any]]]], None]
"""What a stage does about all shards and their counts, once each is done."""


def no_shards(place: str, suffixes: Sequence[str] = FORMATS) -> DataError:
    """The error about input without any shards."""
    files = " read_dump makes shards of text and HTML files." if ".jsonl" in suffixes else ""
    looked = f"looked for {', '.join(suffixes)}"
    return DataError(f"no shards below {place}: {looked}. Is it the output of the step before?{files}")


def list_shards(
    folder: str,
    suffixes: Sequence[str] = FORMATS,
    settings: ShardSettings | None = None,
    damaged_shards: DamagedShards = "fail",
) -> list[Shard]:
    """The shards below a folder, sorted by name: also those that another stage has written there."""
    settings = settings or ShardSettings()
    return [
        Shard(folder, name, size, settings, damaged_shards=damaged_shards)
        for name, size in sizes_below(folder, is_data=True).items()
        if name.endswith(tuple(suffixes)) and name.partition("/")[0] != REJECTS
    ]


def digest_of(files: Mapping[str, int]) -> str:
    """Of the names and sizes of files."""
    text = json.dumps(sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def map_shards(
    transform: Transform,
    input_path: str,
    output_path: str,
    *,
    output_format: str | None = None,
    suffixes: Sequence[str] = FORMATS,
    settings: ShardSettings | None = None,
    shards: Sequence[Shard] | None = None,
    beside: Sequence[str] = (),
    finish: Finish | None = None,
    damaged_shards: DamagedShards = "fail",
) -> dict[str, Any]:
    """Do this task's share of a stage; returns the counts of that share.

    `output_format` is one of `FORMATS`, "" for a stage that writes no records, or None for the format of each input.
    `shards` are given for input that is not divided into files as the output is. `beside` are the endings of files that
    the stage itself writes for each shard, after its name. `finish` is called before the summary is written, by
    whichever task does the last shard; two tasks may both take themselves for it.
    """
    settings = settings or ShardSettings()
    if output_format and output_format not in FORMATS:
        raise DataError(f"no format {output_format!r}: use one of {', '.join(FORMATS)}")
    shards = list_shards(input_path, suffixes, settings, damaged_shards) if shards is None else shards
    if not shards:
        raise no_shards(input_path, suffixes)
    work = _Work(transform, output_path, output_format, suffixes, beside)
    work.refuse_collisions(shards)
    mine_by_name = {shard.name: shard for shard in shards}
    mine = [mine_by_name[name] for name in shards_of_this_task(mine_by_name)]
    forget_if_done_before(output_path, [*map(work.counts_path, mine), join(output_path, _SUMMARY)])
    todo = [shard for shard in mine if not work.is_done(shard)]
    progress = Progress(len(mine), len(mine) - len(todo))
    failures = _do(work, todo, settings.processes, progress)
    if failures:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(failures.items())[:_NAMED])
        left = len(mine) - progress.done - len(failures)
        unfinished = f" {left} were not finished," if left else ""
        raise DataError(
            f"{len(failures)} of {len(mine)} shards failed,{unfinished} and the others are done: {told.rstrip('.')}."
            " Run the step again after fixing them: it continues with these"
        )
    progress.tell()
    _summarise(work, shards, finish)
    return add_up([read_json(work.counts_path(shard)) for shard in mine])


def _summarise(work: _Work, shards: Sequence[Shard], finish: Finish | None) -> None:
    """Called when all shards are done, by any task. The last one sees them all; two that do write the same bytes."""
    done = sizes_below(join(work.output_path, _COUNTS))
    if any(f"{shard.name}.json" not in done for shard in shards):
        return
    _remove_strays(work, shards, done)
    counts = [read_json(work.counts_path(shard)) for shard in shards]
    total = add_up(counts)
    if not total["read"]:
        raise DataError(f"there are {len(shards)} shards below {shards[0].folder}, but no records in any of them")
    if total["read"] == sum(total["rejected"].values()):
        reasons = ", ".join(f"{reason}: {number}" for reason, number in total["rejected"].items())
        raise DataError(
            f"all {total['read']} records below {shards[0].folder} were rejected ({reasons}): see"
            f" {join(work.output_path, REJECTS)}. If the fault is not in the data, delete the step's output"
            " (`marin-rules delete STEP`) before you run it again"
        )
    if finish is not None:
        finish(list(zip(shards, counts, strict=True)))
    by_shard = {
        shard.name: {"read": one["read"], "written": one["written"]} for shard, one in zip(shards, counts, strict=True)
    }
    write_json(join(work.output_path, _SUMMARY), {**total, "shards": by_shard})


def _remove_strays(work: _Work, shards: Sequence[Shard], done: Iterable[str]) -> None:
    """Remove the output of shards that only an earlier attempt had: later stages would treat it as data."""
    there = {shard.name for shard in shards}
    made = {work.output_name(shard) for shard in shards}
    for name in {name.removesuffix(".json") for name in done} - there:
        gone = Shard(shards[0].folder, name, 0)
        output = work.output_name(gone) if name.endswith(tuple(work.suffixes)) else None
        if output is not None and output not in made:
            remove_file(join(work.output_path, output))
        for ending in work.beside:
            remove_file(join(work.output_path, f"{name}{ending}"))
        LeftOut(work.output_path, name).remove()
        remove_file(work.counts_path(gone))


# --- one shard


@dataclass(frozen=True)
class _Work:
    transform: Transform
    output_path: str
    output_format: str | None
    suffixes: Sequence[str]
    beside: Sequence[str]

    def output_name(self, shard: Shard) -> str | None:
        if self.output_format is None:
            return shard.name
        suffix = max((suffix for suffix in self.suffixes if shard.name.endswith(suffix)), key=len)
        return shard.name.removesuffix(suffix) + self.output_format if self.output_format else None

    def counts_path(self, shard: Shard) -> str:
        return join(self.output_path, _COUNTS, f"{shard.name}.json")

    def refuse_collisions(self, shards: Sequence[Shard]) -> None:
        made: dict[str, str] = {}
        for shard in shards:
            name = self.output_name(shard)
            if name is not None and made.setdefault(name, shard.name) != shard.name:
                raise DataError(
                    f"{shard.folder} has both {made[name]} and {shard.name}, whose results would both be {name}."
                    " Are these the same records in two formats? Delete or rename one"
                )

    def is_done(self, shard: Shard) -> bool:
        counts = read_json(self.counts_path(shard))
        if not isinstance(counts, dict) or counts.get("input_size") != shard.size:
            return False
        if counts.get("input_files", "") != shard.made_of:
            return False
        name = self.output_name(shard)
        return name is None or size_of(join(self.output_path, name)) == counts.get("output_size")

    def do(self, shard: Shard) -> None:
        left_out = LeftOut(self.output_path, shard.name)
        left_out.remove()
        account = Account(shard.name, left_out.reject, left_out.drop)
        name = self.output_name(shard)
        with contextlib.ExitStack() as stack:
            stack.enter_context(left_out)
            writer = None
            if name is not None:
                file = stack.enter_context(into_place(join(self.output_path, name)))
                writer = ShardWriter(file, format_of(name) or FORMATS[0])
                stack.callback(writer.close)
            for record in self.transform(shard, account):
                account.written += 1
                if writer is not None:
                    writer.write(record)
            account.check_balance()
        size = None if name is None else size_of(join(self.output_path, name))
        counts = {**account.counts(), "input_size": shard.size, "output_size": size}
        write_json(self.counts_path(shard), counts | ({"input_files": shard.made_of} if shard.made_of else {}))


# --- many shards


def _do(work: _Work, todo: list[Shard], processes: int, progress: Progress) -> dict[str, str]:
    """Do shards, here or in processes; returns why any failed. On a full disk no others are tried."""
    failures = {}
    results = _one_by_one(work, todo) if min(processes, len(todo)) <= 1 else _at_once(work, todo, processes)
    with contextlib.closing(results):
        for shard, failure in results:
            if failure is None:
                progress.add(read_json(work.counts_path(shard)))
                continue
            failures[shard.name] = failure
            if failure.startswith(_NO_SPACE):
                break
    return failures


type _Results = Generator[tuple[Shard, str | None]]
"""Each shard that was tried, and why it failed, if it did."""


def _one_by_one(work: _Work, todo: list[Shard]) -> _Results:
    for shard in todo:
        yield shard, _attempt(work, shard)


def _attempt(work: _Work, shard: Shard) -> str | None:
    try:
        work.do(shard)
    except DataError as error:
        return str(error)[:_LONGEST_REASON]
    except Exception as error:
        if _is_about_space(error):
            return f"{_NO_SPACE} below {work.output_path}"
        import traceback

        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
    return None


def _is_about_space(error: Exception) -> bool:
    """Libraries in other languages have errors of their own, which contain the system's message."""
    numbers = errno.ENOSPC, errno.EDQUOT
    return getattr(error, "errno", None) in numbers or any(os.strerror(number) in str(error) for number in numbers)


def _at_once(work: _Work, todo: list[Shard], processes: int) -> _Results:
    """Each shard in a process of its own, which ends with it, or with the task if that is killed: so the memory of a
    large shard is given back. Forked, since the modules of a step may exist in its plan alone."""
    context = multiprocessing.get_context("fork")
    waiting = list(reversed(todo))
    running: dict[Any, tuple[Shard, Any, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                shard = waiting.pop()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_in_child, args=(work, shard, theirs, os.getpid()))
                process.start()
                theirs.close()
                running[process.sentinel] = shard, process, ours
            for sentinel in multiprocessing.connection.wait(list(running)):
                shard, process, ours = running.pop(sentinel)
                process.join()
                yield shard, _answer(process.exitcode, ours)
    finally:
        for _, process, _ in running.values():
            process.kill()
            process.join()


def _in_child(work: _Work, shard: Shard, answer: Any, parent: int) -> None:
    end_with_parent(parent)  # Otherwise it would still write when another worker has started the shard again.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # The step's own handler is about the whole step.
    answer.send(_attempt(work, shard))


def _answer(code: int | None, pipe: Any) -> str | None:
    with pipe:
        if code == 0 and pipe.poll():
            answer: str | None = pipe.recv()
            return answer
    return f"its process ended with {code}" + (" (killed: too little memory?)" if code == -signal.SIGKILL else "")
