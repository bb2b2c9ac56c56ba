"""Takes the tables in `discovery/` from Google's own discovery documents, which google-api-python-client ships.

    pip install --target FOLDER --no-deps google-api-python-client==2.202.0
    python tests/support/emulators/rpc/take_discovery.py FOLDER

Kept are the names, types and values of fields, which of them only Google sets, and for each method that our clients
call over gRPC its resource names, parameters and body. The package itself has 111 MB, for hundreds of services.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_TABLES = Path(__file__).with_name("discovery")
_KEPT = ("type", "format", "enum", "$ref", "readOnly", "deprecated", "items", "properties", "additionalProperties")

_BATCH, _TPU = "google.cloud.batch.v1.BatchService", "google.cloud.tpu.v2.Tpu"
_LOGGING = "google.logging.v2.LoggingServiceV2"

_METHODS: Mapping[str, Mapping[str, tuple[str, str | None]]] = {
    "batch.v1": {
        f"{_BATCH}/CreateJob": ("batch.projects.locations.jobs.create", "job"),
        f"{_BATCH}/GetJob": ("batch.projects.locations.jobs.get", None),
        f"{_BATCH}/ListJobs": ("batch.projects.locations.jobs.list", None),
        f"{_BATCH}/CancelJob": ("batch.projects.locations.jobs.cancel", None),
        f"{_BATCH}/DeleteJob": ("batch.projects.locations.jobs.delete", None),
        f"{_BATCH}/GetTask": ("batch.projects.locations.jobs.taskGroups.tasks.get", None),
        f"{_BATCH}/ListTasks": ("batch.projects.locations.jobs.taskGroups.tasks.list", None),
    },
    "tpu.v2": {
        f"{_TPU}/CreateQueuedResource": ("tpu.projects.locations.queuedResources.create", "queuedResource"),
        f"{_TPU}/GetQueuedResource": ("tpu.projects.locations.queuedResources.get", None),
        f"{_TPU}/ListQueuedResources": ("tpu.projects.locations.queuedResources.list", None),
        f"{_TPU}/DeleteQueuedResource": ("tpu.projects.locations.queuedResources.delete", None),
        f"{_TPU}/GetNode": ("tpu.projects.locations.nodes.get", None),
        f"{_TPU}/ListNodes": ("tpu.projects.locations.nodes.list", None),
        f"{_TPU}/ListAcceleratorTypes": ("tpu.projects.locations.acceleratorTypes.list", None),
        f"{_TPU}/ListRuntimeVersions": ("tpu.projects.locations.runtimeVersions.list", None),
    },
    "logging.v2": {f"{_LOGGING}/ListLogEntries": ("logging.entries.list", None)},
}
"""By service and the name of a method over gRPC: its id in the discovery document, and the field of its request that is
the body over REST; without one, that is made of all fields which are neither in the path nor parameters."""


def take(documents: Path) -> None:
    """Write the tables anew."""
    methods: dict[str, Any] = {}
    for service, wanted in _METHODS.items():
        document = json.loads((documents / f"{service}.json").read_text())
        by_id = {method["id"]: method for method in _methods_of(document)}
        found = {name: _method(service, by_id[id], field) for name, (id, field) in wanted.items()}
        bodies = [method["body"] for method in found.values() if method["body"]]
        _write(f"{service}.json", _with_all_below(document["schemas"], bodies))
        methods |= found
    _write("methods.json", methods)


def _methods_of(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _methods_of(inner)


def _method(service: str, method: Mapping[str, Any], field: str | None) -> dict[str, Any]:
    parameters = method.get("parameters", {})
    return {
        "service": service,
        "path": {name: one["pattern"] for name, one in parameters.items() if one["location"] == "path"},
        "query": {name: _pruned(one) for name, one in parameters.items() if one["location"] == "query"},
        "body": method.get("request", {}).get("$ref"),
        "field": field,
    }


def _pruned(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: schema[key] for key in _KEPT if key in schema}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = _pruned(found[key])
    if "properties" in found:
        found["properties"] = {name: _pruned(field) for name, field in found["properties"].items()}
    return found


def _with_all_below(schemas: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """These schemas, and all that they refer to."""
    found: dict[str, Any] = {}
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found[name] = _pruned(schemas[name])
            left += _references(found[name])
    return dict(sorted(found.items()))


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        return
    for key, value in schema.items():
        if key == "$ref":
            yield value
        elif isinstance(value, dict):
            yield from _references(value)


def _write(name: str, table: Mapping[str, Any]) -> None:
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
    (_TABLES / name).write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    take(Path(sys.argv[1], "googleapiclient", "discovery_cache", "documents"))
