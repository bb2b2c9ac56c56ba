"""Which calls go wrong, and how.

A rule picks calls by method and path, and of these some by chance, from a seed of its own: the same calls in the same
order meet the same faults. Delays of all rules that pick a call add up; of the other kinds the oldest rule wins.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.emulators.common.messages import Call

LATENCY = "latency"
"""Processed after `seconds`."""

CUT = "cut"
"""Connection closed, request not processed."""

LOST = "lost"
"""Request processed, connection closed without an answer."""

HANG = "hang"
"""Not processed, never answered; let go (cut) when the faults are cleared."""

CUT_BODY = "cut_body"
"""Download closed in the middle of its body. Other calls are passed over."""

KINDS = (LATENCY, CUT, LOST, HANG, CUT_BODY)


@dataclass
class FaultRule:
    """One kind of fault, and the calls it befalls."""

    kind: str
    """One of `KINDS`, or a status code: answered instead of processing the request. Of HTTP from 400 to 599, of gRPC by
    its name, such as UNAVAILABLE."""

    methods: tuple[str, ...] = ()
    """Empty: all."""

    path: str = ""
    """A regular expression, searched in `path?query` and in `bucket/object`."""

    probability: float = 1.0
    seed: int = 0
    times: int | None = None
    """So often at most; None: for ever."""

    seconds: float = 0.0
    """Before the fault acts; of a lost answer: between processing and the cut."""

    hits: int = 0
    _chance: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS and not re.fullmatch(r"[45]\d\d|[A-Z]+(_[A-Z]+)*", self.kind):
            raise ValueError(f"unknown kind of fault {self.kind!r}: use one of {', '.join(KINDS)} or a status code")
        self._chance = random.Random(self.seed)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FaultRule:
        methods = tuple(method.upper() for method in document.get("methods", ()))
        return cls(**{**document, "kind": str(document["kind"]), "methods": methods})

    def strikes(self, call: Call) -> bool:
        """Whether this call is hit. Counts, and draws from the rule's chance only for calls that match."""
        if self.times is not None and self.hits >= self.times:
            return False
        if self.methods and call.method.upper() not in self.methods:
            return False
        if self.kind == CUT_BODY and not call.download:
            return False
        line = f"{call.path}?{call.query}" if call.query else call.path
        if not (re.search(self.path, line) or re.search(self.path, call.place)):
            return False
        if self._chance.random() >= self.probability:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True)
class Verdict:
    """What happens to one call."""

    delay: float = 0.0
    rule: FaultRule | None = None


class FaultBook:
    """The rules in force."""

    def __init__(self) -> None:
        self._rules: list[FaultRule] = []

    def add(self, rule: FaultRule) -> None:
        self._rules.append(rule)

    def clear(self) -> None:
        self._rules.clear()

    def judge(self, call: Call) -> Verdict:
        delay = sum(rule.seconds for rule in self._rules if rule.kind == LATENCY and rule.strikes(call))
        others = (rule for rule in self._rules if rule.kind != LATENCY)
        return Verdict(delay, next((rule for rule in others if rule.strikes(call)), None))
