"""Whether a folder of tasks would execute code: anyone who can write to it could then do what its reader may.

lm-eval executes Python for `!function` and `class`, for a metric that it does not have (it asks the library `evaluate`
for one, which looks into the working directory first), and for data in a format that holds pickled objects. An
`include` can lead to a file elsewhere, which nobody has looked at. All of that is refused unless the folder is trusted
(`EvalTask(..., allow_code=True)`). Templates are rendered in Jinja's sandbox either way.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from marin_rules.pipeline.core.errors import DataError

_PLAIN_FORMATS = frozenset({"arrow", "csv", "json", "parquet", "text", "xml"})
_OTHER_FORMATS = frozenset({"cache", "eval", "generator", "hdf5", "lance", "pandas", "spark", "sql", "webdataset"})
"""Of the library `datasets`: names that mean no dataset of the hub, but a way to read files."""


class _Code:
    """Replaces a tag that lm-eval would execute."""


def yaml_files(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith((".yaml", ".yml"))]


def refuse_code(folder: str, texts: Mapping[str, str], known_metrics: frozenset[str] | None = None) -> None:
    """Look through the YAML files of a folder, by their relative names."""
    for name, text in texts.items():
        if reason := next(_reasons(name, text, known_metrics), None):
            raise DataError(
                f"{posixpath.join(folder, name)} {reason}. If you trust everybody who can write there, say so:"
                " EvalTask(..., allow_code=True)"
            )


def _reasons(name: str, text: str, known_metrics: frozenset[str] | None) -> Iterator[str]:
    import yaml

    # The parser of lm-eval: what it cannot read is not a task, and not a danger.
    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    Loader.add_constructor("!function", lambda loader, node: _Code())
    try:
        contents = yaml.load(text, Loader=Loader)
    except yaml.YAMLError:
        return
    for key, value in _pairs(contents):
        if key == "class" or isinstance(value, _Code):
            yield f"executes Python ({key})"
        if key == "include" and any(_is_outside(name, one) for one in _listed(value)):
            yield f"includes a file outside its folder ({value})"
        if key == "dataset_path" and value in _OTHER_FORMATS:
            yield f"reads data as {value!r}, which is none of {', '.join(sorted(_PLAIN_FORMATS))}"
        if key == "hf_evaluate" and value:
            yield "asks the library `evaluate` for a metric, which is a program"
        if key == "metric" and known_metrics and not (isinstance(value, str) and value in known_metrics):
            yield f"has a metric that lm-eval does not have ({value!r}), which is a program"


def _pairs(value: Any, key: Any = "") -> Iterator[tuple[Any, Any]]:
    """All keys of nested mappings, each with its value; elements of a list have the key of the list."""
    if isinstance(value, Mapping):
        for inner_key, inner in value.items():
            yield inner_key, inner
            yield from _pairs(inner, inner_key)
    elif isinstance(value, list):
        for inner in value:
            if not isinstance(inner, Mapping | list):
                yield key, inner
            yield from _pairs(inner, key)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_outside(name: str, included: Any) -> bool:
    if not isinstance(included, str) or included.startswith(("/", "~")):
        return True
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), included)).startswith("..")
