"""What the front needs of a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from support.emulators.common.messages import Call


@dataclass
class RpcCall(Call):
    """One call of a client, as the log keeps it: `path` is the resource that it is about."""

    request: dict[str, Any] = field(default_factory=dict)
    """The request, as JSON."""

    mask: str = ""
    """The fields that the answer was to have; all if it is empty."""

    code: str | None = None
    """The answer's code, OK or another, also if it was lost on its way; None for a call that was not processed."""


@dataclass(frozen=True)
class Method:
    """How one method of a service is answered."""

    answer: Callable[[Any], Any]
    """Takes the request, and raises `RpcError`. It may not wait: one call at a time is what makes them atomic."""

    request: Any
    """The class of its request, of proto-plus or of protobuf."""

    response: Any


class Service(Protocol):
    """A service behind the front."""

    methods: Mapping[str, Method]
    """By their full names: `google.cloud.batch.v1.BatchService/CreateJob`."""

    def reset(self) -> None:
        """Forget everything, and end all processes."""

    def control(self, what: str, arguments: Mapping[str, Any]) -> Any:
        """Do something for a test; ValueError for what there is not."""

    def close(self) -> None:
        """End all processes, at once: from another thread, and whatever else goes on."""
