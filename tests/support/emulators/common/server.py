"""The front of an emulator: reads requests, lets faults befall them, hands the rest to the store's backend.

`run` serves on a free port of 127.0.0.1, prints that port as one line, and ends with its parent: when its standard
input reaches the end or the parent is gone, at once, whatever calls still hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
import sys
import threading
from collections.abc import Callable

from aiohttp import web

from support.emulators.common import faults
from support.emulators.common.backend import Backend
from support.emulators.common.control import PREFIX, Control
from support.emulators.common.faults import FaultRule
from support.emulators.common.messages import Answer, Call, Request

_LARGEST_BODY = 2**32


class Front:
    """One emulator's request handler."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._control = Control(backend)
        self._era = Era()

    async def handle(self, received: web.Request) -> web.StreamResponse:
        # The body first, and whole: after this, nothing waits between a check and a change.
        body = await received.read()
        request = Request(received.method, received.raw_path, received.headers, body)
        if request.segments[0] == PREFIX:
            return self._steer(request, received)
        era = self._era
        call = self._backend.describe(request)
        self._control.calls.append(call)
        verdict = self._control.faults.judge(call)
        if verdict.delay:
            call.fault = faults.LATENCY
            await era.wait(verdict.delay)
        if verdict.rule is not None:
            return await self._strike(verdict.rule, call, request, received, era)
        if era.over:
            return _cut(received)
        return _response(self._process(request, call), received)

    def _process(self, request: Request, call: Call) -> Answer:
        answer = self._backend.answer(request)
        call.status = answer.status
        return answer

    async def _strike(
        self, rule: FaultRule, call: Call, request: Request, received: web.Request, era: Era
    ) -> web.StreamResponse:
        call.fault = rule.kind
        if rule.kind == faults.LOST and not era.over:
            self._process(request, call)
        await era.wait(math.inf if rule.kind == faults.HANG else rule.seconds)
        if rule.kind in (faults.CUT, faults.LOST, faults.HANG) or era.over:
            return _cut(received)
        if rule.kind == faults.CUT_BODY:
            return await _half_a_body(self._process(request, call), received)
        call.status = int(rule.kind)
        return _response(self._backend.refuse(call.status), received)

    def _steer(self, request: Request, received: web.Request) -> web.Response:
        answer = self._control.answer(request)
        match (request.method, request.segments[1]):
            case ("POST", "reset"):
                self._era.end()
                self._era = Era()
            case ("DELETE", "faults"):
                self._era.release()
        return _response(answer, received)


class Era:
    """The time between two resets.

    A call that is held back acts on the store even if its client gave up meanwhile, as a slow network lets it: but
    never on the fresh store of another test.
    """

    def __init__(self) -> None:
        self.over = False
        self._released = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Until the time has passed or the faults were cleared."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), None if seconds == math.inf else seconds)

    def release(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    def end(self) -> None:
        self.over = True
        self.release()


def _response(answer: Answer, received: web.Request) -> web.Response:
    response = web.Response(status=answer.status, headers=dict(answer.headers))
    # The length that a HEAD announces is the object's; with a body set, aiohttp would announce that body's.
    if received.method != "HEAD":
        response.body = answer.body
    return response


def _cut(received: web.Request) -> web.Response:
    """Close the connection; the response returned goes nowhere."""
    if received.transport is not None:
        received.transport.close()
    return web.Response()


async def _half_a_body(answer: Answer, received: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
    response.content_length = len(answer.body)
    await response.prepare(received)
    await response.write(answer.body[: len(answer.body) // 2])
    if received.transport is not None:
        received.transport.close()
    return response


async def _serve(backend: Backend) -> None:
    application = web.Application(client_max_size=_LARGEST_BODY)
    application.router.add_route("*", "/{path:.*}", Front(backend).handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def end_with_parent(parent: int, clean_up: Callable[[], None] = lambda: None) -> None:
    # A thread, so that a busy event loop cannot delay it; `_exit`, so that no hanging call can. The parent's id is
    # watched too: a child that the parent forked may hold the other end of the pipe open.
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 65536):
            break
    clean_up()
    os._exit(0)


def run(backend: Backend) -> None:
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    asyncio.run(_serve(backend))
