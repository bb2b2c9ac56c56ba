"""`Artifact`: what a step has returned, read back from beside its data, whether Marin or this package wrote it.

    Artifact.from_path(step)                         plain data, as JSON has it
    Artifact.from_path("clean/wiki_1a2b3c4d", Stats)  a pydantic model or a dataclass, and those inside it
    Artifact.from_id("wiki/clean", "2026.06.01")     by its name in the artifact registry

A step that is done but has no artifact, like steps of older executors, gives a `PathMetadata`.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, is_dataclass
from typing import Any, overload

from marin_rules.configs import is_relative
from marin_rules.errors import MarinRulesError
from marin_rules.plans.step_spec import StepSpec
from marin_rules.state.artifact_registry import ArtifactRegistry, get_default_registry
from marin_rules.state.returned_value import returned_value
from marin_rules.state.status import ARTIFACT_FILE, Status, read_status
from marin_rules.state.typed_values import typed_value
from marin_rules.storage.files import read_bytes, write_atomic
from marin_rules.storage.prefix import marin_prefix

logger = logging.getLogger(__name__)

_NAMES = (ARTIFACT_FILE, "artifact.json", ".artifact")
"""The name of the file, and its names in older executors of Marin."""


@dataclass(frozen=True)
class PathMetadata:
    """The output of a step that is done, if nothing else is known about it."""

    path: str


@dataclass
class PathsMetadata:
    """The output files of a step: what a step that writes shards may return."""

    parent_path: str
    paths: list[str]


class ArtifactError(MarinRulesError, ValueError):
    """An artifact that is not of the requested type."""


class Artifact:
    """Saves and loads the artifacts of steps. There are no objects of this class."""

    @classmethod
    def save(cls, artifact: Any, base_path: str) -> None:
        """Write an artifact into a folder: pydantic models by their own JSON, dataclasses by their fields."""
        saved = returned_value(artifact)
        if saved.text is None or saved.warning is not None:
            raise ArtifactError(f"the artifact of {base_path} cannot be saved: {saved.warning}")
        write_atomic(os.path.join(base_path, ARTIFACT_FILE), saved.text.encode() + b"\n")

    @overload
    @classmethod
    def from_path[T](cls, base_path: str | StepSpec, artifact_type: type[T]) -> T: ...

    @overload
    @classmethod
    def from_path(cls, base_path: str | StepSpec, artifact_type: None = None) -> Any: ...

    @classmethod
    def from_path(cls, base_path: str | StepSpec, artifact_type: type[Any] | None = None) -> Any:
        """The artifact of the step with this output path; a relative path is taken below `marin_prefix()`.

        FileNotFoundError if there is none, unless the step is done and no other type than `PathMetadata` is asked for.
        """
        path = base_path.output_path if isinstance(base_path, StepSpec) else _below_prefix(base_path)
        for name in _NAMES:
            file = os.path.join(path, name)
            data = read_bytes(file)
            if data is not None:
                return _parsed(data, file, artifact_type)
        if artifact_type not in (None, PathMetadata):
            raise FileNotFoundError(f"there is no {ARTIFACT_FILE} in {path}, and so no {_name(artifact_type)}")
        status = read_status(path)
        if status is not Status.SUCCESS:
            state = "has no status" if status is None else f"is {status}, not {Status.SUCCESS}"
            raise FileNotFoundError(f"there is no {ARTIFACT_FILE} in {path}, and its step {state}: run it first")
        return PathMetadata(path)

    @classmethod
    def from_id(
        cls,
        artifact_id: str,
        version: str,
        /,
        artifact_type: type[Any] | None = None,
        *,
        registry: ArtifactRegistry | None = None,
    ) -> Any:
        """The artifact that the registry knows by this name and version, as `from_path` loads it.

        A copy below this machine's own prefix is preferred to the one that was registered.
        """
        entry = (registry or get_default_registry()).lookup(artifact_id, version)
        if entry.relative_path is not None:
            try:
                return cls.from_path(entry.relative_path, artifact_type)
            except FileNotFoundError:
                if not entry.uri.startswith(marin_prefix().rstrip("/") + "/"):
                    logger.warning(
                        "%s %s is not below %s: read from %s", artifact_id, version, marin_prefix(), entry.uri
                    )
        return cls.from_path(entry.uri, artifact_type)


def _below_prefix(path: Any) -> str:
    if not isinstance(path, str):
        raise TypeError(
            f"Artifact.from_path takes the output path of a step or a StepSpec, not {path!r}: the path of an"
            " ExecutorStep is known inside the functions of steps that have it in their configs"
        )
    return f"{marin_prefix()}/{path}" if is_relative(path) else path


def _parsed(data: bytes, file: str, kind: type[Any] | None) -> Any:
    try:
        if kind is None:
            return json.loads(data)
        if hasattr(kind, "model_validate_json"):
            return kind.model_validate_json(data)
        if is_dataclass(kind):
            return typed_value(json.loads(data), kind)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        what = "JSON" if kind is None else f"a {_name(kind)}"
        raise ArtifactError(f"{file} is not {what}: {error}") from error
    raise TypeError(f"artifact_type must be a pydantic model or a dataclass, not {_name(kind)}")


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or repr(kind)
