"""The control API under `/_control/`: how a test steers and questions an emulator.

Its calls are not logged, meet no faults, and act on the store at once.
"""

from __future__ import annotations

import base64
import dataclasses

from support.emulators.common.backend import Backend
from support.emulators.common.faults import FaultBook, FaultRule
from support.emulators.common.messages import Answer, Call, Request, json_answer

PREFIX = "_control"


class Control:
    """Answers control requests; owns the rules and the log."""

    def __init__(self, backend: Backend) -> None:
        self.faults = FaultBook()
        self.calls: list[Call] = []
        self._backend = backend

    def answer(self, request: Request) -> Answer:
        try:
            return self._dispatch(request)
        except Exception as error:
            # A mistake in a test must reach that test as a message, and not as a server's stack trace.
            return Answer(400, f"{type(error).__name__}: {error}".encode())

    def _dispatch(self, request: Request) -> Answer:
        query = request.query
        match (request.method, *request.segments[1:]):
            case ("POST", "reset"):
                self._backend.reset()
                self.faults.clear()
                self.calls.clear()
            case ("POST", "faults"):
                self.faults.add(FaultRule.from_document(request.json()))
            case ("DELETE", "faults"):
                self.faults.clear()
            case ("GET", "calls"):
                return json_answer([dataclasses.asdict(call) for call in self.calls])
            case ("DELETE", "calls"):
                self.calls.clear()
            case ("GET", "history"):
                contents = self._backend.history.of(query["bucket"], query["name"])
                return json_answer([None if data is None else base64.b64encode(data).decode() for data in contents])
            case ("POST", "quirks"):
                self._backend.set_quirks(frozenset(request.json()["quirks"]))
            case ("POST", "buckets"):
                self._backend.create_bucket(**request.json())
            case ("PUT", "object"):
                self._backend.put(query["bucket"], query["name"], request.body)
            case ("GET", "object"):
                data = self._backend.get(query["bucket"], query["name"])
                return Answer(204) if data is None else Answer(200, data)
            case ("GET", "names"):
                return json_answer(self._backend.names(query["bucket"], query["prefix"]))
            case _:
                raise ValueError(f"no such control call: {request.method} {request.raw_path}")
        return json_answer({})
