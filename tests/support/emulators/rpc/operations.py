"""Long-running operations: each is pending when it is first answered, and done when somebody asks for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from google.longrunning import operations_pb2

from support.emulators.rpc.errors import RpcError, not_found
from support.emulators.rpc.service import Method


class Operations:
    """The operations of one service."""

    def __init__(self, metadata_type: str | None = None) -> None:
        self._metadata_type = metadata_type
        """Of the metadata that they carry, which is empty. Google's client for TPUs does not know that of TPUs."""

        self._pending: dict[str, Callable[[], Any]] = {}
        self.method = Method(self._get, operations_pb2.GetOperationRequest, operations_pb2.Operation)
        """Of `google.longrunning.Operations/GetOperation`."""

    def start(self, parent: str, result: Callable[[], Any]) -> operations_pb2.Operation:
        """A new operation; `result` says what came of it: a message, an `RpcError`, or None while it goes on."""
        name = f"{parent}/operations/operation-{uuid.uuid4().hex}"
        self._pending[name] = result
        return self._operation(name)

    def reset(self) -> None:
        self._pending.clear()

    def _get(self, request: operations_pb2.GetOperationRequest) -> operations_pb2.Operation:
        result = self._pending.get(request.name)
        if result is None:
            raise not_found(request.name)
        operation = self._operation(request.name)
        answer = result()
        if isinstance(answer, RpcError):
            operation.done = True
            operation.error.code, operation.error.message = answer.code.value[0], answer.message
        elif answer is not None:
            operation.done = True
            operation.response.Pack(answer)
        return operation

    def _operation(self, name: str) -> operations_pb2.Operation:
        operation = operations_pb2.Operation(name=name)
        if self._metadata_type is not None:
            operation.metadata.type_url = f"type.googleapis.com/{self._metadata_type}"
        return operation
