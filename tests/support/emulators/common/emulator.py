"""The handle on an emulator that tests hold."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from support.emulators.common.control import PREFIX
from support.emulators.common.messages import Call
from support.emulators.common.process import EmulatorProcess

_ANSWER_SECONDS = 30.0


class Emulator:
    """A store in a process of its own. What is done through this handle is not logged and meets no faults."""

    module: ClassVar[str]
    """What `python -m` runs."""

    default_location: ClassVar[str]

    def __init__(self) -> None:
        self._process = EmulatorProcess(self.module)
        self.url = f"http://127.0.0.1:{self._process.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client process needs to find this emulator, and to look for nothing else."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        return self._process.pid

    def create_bucket(self, name: str, location: str | None = None) -> None:
        self._control("POST", "buckets", {"name": name, "location": location or self.default_location})

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self._control("PUT", "object", data, bucket=bucket, name=name)

    def get(self, bucket: str, name: str) -> bytes | None:
        status, data = self._request("GET", "object", None, bucket=bucket, name=name)
        return None if status == 204 else data

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        names: list[str] = json.loads(self._control("GET", "names", bucket=bucket, prefix=prefix))
        return names

    def history(self, bucket: str, name: str) -> list[bytes | None]:
        """Every content the object had, oldest first; a deletion is None."""
        contents = json.loads(self._control("GET", "history", bucket=bucket, name=name))
        return [None if content is None else base64.b64decode(content) for content in contents]

    def calls(self) -> list[Call]:
        """The calls of clients since the last `forget_calls`, in the order of their arrival."""
        return [Call(**document) for document in json.loads(self._control("GET", "calls"))]

    def forget_calls(self) -> None:
        self._control("DELETE", "calls")

    def inject(
        self,
        kind: str | int,
        *,
        methods: Sequence[str] = (),
        path: str = "",
        probability: float = 1.0,
        seed: int = 0,
        times: int | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Let calls go wrong from now on: `emulators.common.faults.FaultRule` says which and how."""
        rule = {"kind": str(kind), "methods": list(methods), "path": path, "probability": probability}
        self._control("POST", "faults", rule | {"seed": seed, "times": times, "seconds": seconds})

    def clear_faults(self) -> None:
        """Drop all rules, and cut the connections of calls that hang."""
        self._control("DELETE", "faults")

    def set_quirks(self, *quirks: str) -> None:
        """Behave as services that differ from the real store, until the next reset; see `s3.conditions.QUIRKS`."""
        self._control("POST", "quirks", {"quirks": list(quirks)})

    def reset(self) -> None:
        """No buckets, faults, calls or history: as just started."""
        self._control("POST", "reset")

    def close(self) -> None:
        self._process.close()

    def _control(self, method: str, what: str, body: bytes | dict[str, Any] | None = None, /, **query: str) -> bytes:
        return self._request(method, what, body, **query)[1]

    def _request(
        self, method: str, what: str, body: bytes | dict[str, Any] | None, /, **query: str
    ) -> tuple[int, bytes]:
        # A connection for each call: handles are used from many threads, and proxies of the environment stay out.
        connection = http.client.HTTPConnection("127.0.0.1", self._process.port, timeout=_ANSWER_SECONDS)
        try:
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request(method, f"/{PREFIX}/{what}?{urlencode(query)}", data)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise ValueError(f"{self.module}: {answer.decode()}")
        return response.status, answer
