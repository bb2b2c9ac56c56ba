"""The gRPC front of an emulator: lets faults befall calls, and hands the rest to its service.

`run` serves on a free port of 127.0.0.1, prints that port as one line, and ends with its parent, as the emulators of
stores do. The machines of its service are folders below the one that it is given. Everything happens on one event loop,
so that no call comes between the checks and the changes of another. Tests steer it by calls of one more method,
`CONTROL`, whose requests and answers are JSON; these meet no faults.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

from support.emulators.common import faults
from support.emulators.common.faults import FaultBook, FaultRule
from support.emulators.common.server import Era, end_with_parent
from support.emulators.rpc.errors import RpcError, invalid, usual
from support.emulators.rpc.judge import objections_to_call
from support.emulators.rpc.service import Method, RpcCall, Service

CONTROL = "/emulator/Control"

_OF_ANY_SERVICE = frozenset({"google.longrunning.Operations/GetOperation"})
"""Methods that belong to no service of their own, and stand in no table."""

_LOST = RpcError(grpc.StatusCode.UNAVAILABLE, "Socket closed")
"""What a client reports whose connection is closed before the answer."""


class Front(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One emulator's handler of calls."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._faults = FaultBook()
        self._calls: list[RpcCall] = []
        self._objections: list[str] = []
        """What Google's own documents have against the requests of clients."""

        self._era = Era()

    def service(self, details: Any) -> Any:
        name = details.method
        if name == CONTROL:
            return grpc.unary_unary_rpc_method_handler(self._steer)
        method = self._service.methods.get(name.lstrip("/"))
        if method is None:
            return None  # UNIMPLEMENTED

        async def handle(request: Any, context: Any) -> Any:
            mask = dict(context.invocation_metadata()).get("x-goog-fieldmask", "")
            try:
                return masked(await self._handle(name.lstrip("/"), method, request, mask), mask)
            except RpcError as error:
                await context.abort(error.code, error.message)

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=_reader(method.request), response_serializer=_writer(method.response)
        )

    async def _handle(self, name: str, method: Method, request: Any, mask: str) -> Any:
        era = self._era
        document = document_of(request)
        place = document.get("name") or document.get("parent") or ""
        call = RpcCall(name.rpartition("/")[2], place, request=document, mask=mask)
        self._calls.append(call)
        if name not in _OF_ANY_SERVICE and (wrong := objections_to_call(name, document)):
            self._objections += wrong
            call.code = "INVALID_ARGUMENT"
            raise invalid(f"Google's discovery document objects: {'; '.join(wrong)}")
        verdict = self._faults.judge(call)
        if verdict.delay:
            call.fault = faults.LATENCY
            await era.wait(verdict.delay)
        if verdict.rule is not None:
            return await self._strike(verdict.rule, call, method, request, era)
        if era.over:
            raise _LOST
        return _process(call, method, request)

    async def _strike(self, rule: FaultRule, call: RpcCall, method: Method, request: Any, era: Era) -> Any:
        call.fault = rule.kind
        if rule.kind == faults.LOST and not era.over:
            _process(call, method, request)
        await era.wait(math.inf if rule.kind == faults.HANG else rule.seconds)
        if rule.kind in (faults.CUT, faults.LOST, faults.HANG) or era.over:
            raise _LOST
        call.code = rule.kind
        raise usual(rule.kind)

    async def _steer(self, request: bytes, context: Any) -> bytes:
        try:
            return json.dumps(self._control(**json.loads(request))).encode()
        except Exception as error:
            # A mistake in a test must reach that test as a message, and not as a server's stack trace.
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{type(error).__name__}: {error}")
            raise AssertionError("abort raises") from error

    def _control(self, what: str, **arguments: Any) -> Any:
        match what:
            case "reset":
                self._era.end()
                self._era = Era()
                self._service.reset()
                self._faults.clear()
                self._calls.clear()
                self._objections.clear()
            case "inject":
                rule = FaultRule.from_document(arguments)
                if rule.kind not in faults.KINDS:
                    grpc.StatusCode[rule.kind]  # KeyError: a code of HTTP means nothing here.
                self._faults.add(rule)
            case "clear_faults":
                self._faults.clear()
                self._era.release()
            case "calls":
                return [dataclasses.asdict(call) for call in self._calls]
            case "forget_calls":
                self._calls.clear()
            case "take_objections":
                taken = list(self._objections)
                self._objections.clear()
                return taken
            case _:
                return self._service.control(what, arguments)
        return None


def _process(call: RpcCall, method: Method, request: Any) -> Any:
    try:
        answer = method.answer(request)
    except RpcError as error:
        call.code = error.code.name
        raise
    except Exception as error:
        # Without this a mistake of the emulator would look like one of the client's network.
        call.code = "INTERNAL"
        raise RpcError(grpc.StatusCode.INTERNAL, f"the emulator failed: {error!r}") from error
    call.code = "OK"
    return answer


def _reader(kind: Any) -> Callable[[bytes], Any]:
    return kind.deserialize if hasattr(kind, "deserialize") else kind.FromString  # type: ignore[no-any-return]


def _writer(kind: Any) -> Callable[[Any], bytes]:
    if hasattr(kind, "serialize"):
        return kind.serialize  # type: ignore[no-any-return]
    return lambda answer: answer.SerializeToString()


def document_of(message: Any) -> dict[str, Any]:
    """A message as the JSON that REST would carry: what is set, and nothing else."""
    plain = type(message).pb(message) if hasattr(type(message), "pb") else message
    document: dict[str, Any] = json_format.MessageToDict(plain)
    return document


def masked(answer: Any, mask: str) -> Any:
    """An answer with nothing but the fields that its client asked for, all if it named none."""
    if not mask:
        return answer
    wanted: dict[str, Any] = {}
    for path in mask.split(","):
        inner = wanted
        for part in path.split("."):
            inner = inner.setdefault(part, {})
    copy = type(answer)()
    plain = type(answer).pb(copy) if hasattr(type(answer), "pb") else copy
    json_format.ParseDict(_pruned(document_of(answer), wanted), plain)
    return copy


def _pruned(value: Any, wanted: dict[str, Any]) -> Any:
    if not wanted:
        return value
    if isinstance(value, list):
        return [_pruned(item, wanted) for item in value]
    by_name = {_camel_case(name): inner for name, inner in wanted.items()}
    return {key: _pruned(inner, by_name[key]) for key, inner in value.items() if key in by_name}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def page_of[Item](items: list[Item], size: int, token: str, *, most: int) -> tuple[list[Item], str]:
    """One page of a list, and the token of the next one; none if this is the last."""
    if token and not token.isdecimal():
        raise invalid("Invalid page token.")
    start, length = int(token or 0), min(size or most, most)
    page = items[start : start + length]
    following = start + length
    return page, str(following) if following < len(items) else ""


async def _serve(make_service: Callable[[Path], Service], folder: Path) -> None:
    service = make_service(folder)
    threading.Thread(target=end_with_parent, args=(os.getppid(), service.close), daemon=True).start()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Front(service),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.Event().wait()


def run(make_service: Callable[[Path], Service]) -> None:
    asyncio.run(_serve(make_service, Path(sys.argv[1])))
