"""What has been fetched, in files whose bytes depend on the source alone: no dates, no machines, no tasks.

<output>/<file>                   as it came, or taken out of an archive
<output>/.fetched/<name>.json     written after the files of <name>, which are not fetched again
<output>/manifest.json            every file with its size and sha256; by the task that fetches the last one
<output>/provenance.json          source, revision and licence

What an earlier attempt or run has fetched and the source no longer has is removed: later stages treat every file below
the output as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from marin_rules.pipeline.core import done_before
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, read_json, remove_file, size_of, sizes_below, write_json
from marin_rules.pipeline.download.sources import RemoteFile, check_name

MANIFEST = "manifest.json"
PROVENANCE = "provenance.json"
_FETCHED = ".fetched"
_RESERVED = (MANIFEST, PROVENANCE, _FETCHED, ".partial", ".artifact.json", ".done_before")
_WORKERS = ".executor_"
"""The beginnings of names that a step's worker writes beside its data."""


def refuse_reserved(names: Iterable[str], where: str) -> None:
    for name in names:
        first = name.partition("/")[0]
        if first in _RESERVED or first.startswith(_WORKERS):
            raise DataError(f"{where} has a file {name}, a name that the step itself needs: leave it out (`leave_out`)")


def is_fetched(output_path: str, file: RemoteFile) -> bool:
    """Whether a file is here, complete, and still what is asked for."""
    mark = read_json(_mark_path(output_path, file.name))
    if not isinstance(mark, dict) or (file.sha256 and mark["sha256"] != file.sha256):
        return False
    if file.size is not None and mark["size"] != file.size:
        return False
    return all(size_of(join(output_path, name)) == facts["size"] for name, facts in mark["files"].items())


def forget_if_done_before(output_path: str, names: Iterable[str]) -> None:
    """A finished download that is run again fetches its files again."""
    done_before.forget_if_done_before(output_path, [_mark_path(output_path, name) for name in names])


def note_fetched(output_path: str, name: str, size: int, sha256: str, files: Any, left_out: Any) -> None:
    write_json(
        _mark_path(output_path, name),
        {"size": size, "sha256": sha256, "files": files, "left_out": dict(left_out)},
    )


def finish(output_path: str, names: Iterable[str], provenance: dict[str, Any]) -> dict[str, Any] | None:
    """Write what is known about all files if all are fetched, by any task. Two tasks that do so write the same
    bytes."""
    names = sorted(names)
    marked = sizes_below(join(output_path, _FETCHED))
    if any(_mark_name(name) not in marked for name in names):
        return None
    marks = {name: read_json(_mark_path(output_path, name)) for name in names}
    _refuse_overwritten(marks)
    files = {file: facts for mark in marks.values() for file, facts in mark["files"].items()}
    totals = {"files": len(files), "bytes": sum(facts["size"] for facts in files.values())}
    archives = {
        name: {"size": mark["size"], "sha256": mark["sha256"], "left_out": mark["left_out"]}
        for name, mark in marks.items()
        if name not in mark["files"]
    }
    gone = marked.keys() - {_mark_name(name) for name in names}
    for file in _made_before(output_path, gone) - files.keys():
        remove_file(join(output_path, file))
    for mark in gone:
        remove_file(join(output_path, _FETCHED, mark))
    write_json(
        join(output_path, MANIFEST), {**totals, "contents": files, **({"archives": archives} if archives else {})}
    )
    write_json(join(output_path, PROVENANCE), {**provenance, **totals})
    return totals


def _made_before(output_path: str, gone: Iterable[str]) -> set[str]:
    """The files of the last run that was finished, and those of marks that nobody asks for any more.

    Anyone who can write to the output may have written these lists: a name that leads elsewhere is refused.
    """
    lists = {MANIFEST: "contents"} | {f"{_FETCHED}/{mark}": "files" for mark in gone}
    made: set[str] = set()
    for name, key in lists.items():
        path = join(output_path, name)
        found = read_json(path)
        files = found.get(key) if isinstance(found, dict) else None
        for file in files if isinstance(files, dict) else ():
            check_name(file, path)
            made.add(file)
    return made


def _refuse_overwritten(marks: Mapping[str, Any]) -> None:
    """The contents of archives are known only once they are unpacked."""
    made: dict[str, str] = {}
    for name, mark in marks.items():
        for file in mark["files"]:
            if made.setdefault(file, name) != name:
                raise DataError(f"both {made[file]} and {name} have a file {file}: leave one out, or keep archives")


def _mark_path(output_path: str, name: str) -> str:
    return join(output_path, _FETCHED, _mark_name(name))


def _mark_name(name: str) -> str:
    """Not hidden, because listings would skip it."""
    parts = name.replace("%", "%25").split("/")
    return "/".join("%2E" + part[1:] if part.startswith(".") else part for part in parts) + ".json"
