"""The handle on an emulated service of Google that tests hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import grpc

from support.emulators.common.process import EmulatorProcess
from support.emulators.rpc.server import CONTROL
from support.emulators.rpc.service import RpcCall

_ANSWER_SECONDS = 30.0


class RpcEmulator:
    """A service in a process of its own. What is done through this handle is not logged and meets no faults."""

    module: ClassVar[str]
    """What `python -m` runs."""

    def __init__(self, folder: Path) -> None:
        """Its machines have their disks below `folder`, which stays: a process that is killed cannot clean up."""
        self._process = EmulatorProcess(self.module, str(folder))
        self.address = f"127.0.0.1:{self._process.port}"
        self._channel = self.open_channel()
        self._ask = self._channel.unary_unary(CONTROL)

    def open_channel(self) -> grpc.Channel:
        """A connection of its own, which takes answers of any size, as those of Google's clients do."""
        return grpc.insecure_channel(self.address, options=[("grpc.max_receive_message_length", -1)])

    @property
    def pid(self) -> int:
        return self._process.pid

    def calls(self, *methods: str) -> list[RpcCall]:
        """The calls of clients since the last `forget_calls`, as they came: of these methods, or all."""
        found = [RpcCall(**document) for document in self.control("calls")]
        return [call for call in found if not methods or call.method in methods]

    def take_objections(self) -> list[str]:
        """What Google's own documents have against requests of clients since the last reset; forgotten by this."""
        found: list[str] = self.control("take_objections")
        return found

    def forget_calls(self) -> None:
        self.control("forget_calls")

    def inject(
        self,
        kind: str,
        *,
        methods: Sequence[str] = (),
        path: str = "",
        probability: float = 1.0,
        seed: int = 0,
        times: int | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Let calls go wrong from now on: `emulators.common.faults.FaultRule` says which and how."""
        rule = {"kind": kind, "methods": list(methods), "path": path, "probability": probability}
        self.control("inject", **rule, seed=seed, times=times, seconds=seconds)

    def clear_faults(self) -> None:
        """Drop all rules, and cut the connections of calls that hang."""
        self.control("clear_faults")

    def reset(self) -> None:
        """As just started: nothing exists, and nothing runs."""
        self.control("reset")

    def close(self) -> None:
        self._channel.close()
        self._process.close()

    def control(self, what: str, /, **arguments: Any) -> Any:
        request = json.dumps({"what": what, **arguments}).encode()
        try:
            return json.loads(self._ask(request, timeout=_ANSWER_SECONDS))
        except grpc.RpcError as error:
            raise ValueError(f"{self.module}: {error.details()}") from None
