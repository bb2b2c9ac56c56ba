"""Long-running operations: each is pending when it is first answered, and done when somebody asks for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from google.longrunning import operations_pb2

from support.emulators.rpc.errors import not_found
from support.emulators.rpc.service import Method


class Operations:
    """The operations of one service."""

    def __init__(self) -> None:
        self._pending: dict[str, Callable[[], Any]] = {}
        self.method = Method(self._get, operations_pb2.GetOperationRequest, operations_pb2.Operation)
        """Of `google.longrunning.Operations/GetOperation`."""

    def start(self, parent: str, result: Callable[[], Any]) -> operations_pb2.Operation:
        """A new operation; `result` says what came of it: a message, an `RpcError`, or None while it goes on."""
        name = f"{parent}/operations/operation-{uuid.uuid4().hex}"
        self._pending[name] = result
        return operations_pb2.Operation(name=name)

    def reset(self) -> None:
        self._pending.clear()

    def _get(self, request: operations_pb2.GetOperationRequest) -> operations_pb2.Operation:
        result = self._pending.get(request.name)
        if result is None:
            raise not_found(request.name)
        operation = operations_pb2.Operation(name=request.name)
        answer = result()
        if isinstance(answer, Exception):
            operation.done = True
            operation.error.code, operation.error.message = answer.code.value[0], answer.message  # type: ignore[attr-defined]
        elif answer is not None:
            operation.done = True
            operation.response.Pack(answer)
        return operation
