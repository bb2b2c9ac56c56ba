"""Where TPU slices may be available, and in which order that is tried: pure.

An offer is a kind of slice in a zone, with one way of provisioning. A zone with recent trouble comes after all others,
since what was short there a moment ago is probably still short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

FORGET_SECONDS = 3600.0
"""After this time a failure means nothing any more."""

EARLY_SECONDS = 900.0
"""A slice that was lost within this time counts against its zone: slices do not last there."""


@dataclass(frozen=True)
class Offer:
    """A kind of slice, somewhere."""

    accelerator: str
    """Google's name of the type, `v4-128`."""

    zone: str
    runtime_version: str
    spot: bool = False
    reservation: str | None = None
    topology: str | None = None
    wait_seconds: float = 1800.0
    """How long to wait for such a slice before trying the next offer."""

    @property
    def way(self) -> str:
        """How it is provisioned, for people."""
        return "reserved" if self.reservation else "Spot" if self.spot else "on demand"

    @property
    def words(self) -> str:
        return f"{self.accelerator}, {self.way}, in {self.zone}"

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)

    def to_fields(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class ZoneFailure:
    """Something went wrong in a zone."""

    zone: str
    time: float
    """In seconds since 1970."""


def in_order(offers: Sequence[Offer], failures: Iterable[ZoneFailure], now: float) -> list[Offer]:
    """The offers in the order to try them: as given, those in zones with recent failures last."""
    recent: dict[str, int] = {}
    for failure in failures:
        # A clock that is far ahead of ours must not make a failure count forever.
        if abs(now - failure.time) < FORGET_SECONDS:
            recent[failure.zone] = recent.get(failure.zone, 0) + 1
    return sorted(offers, key=lambda offer: recent.get(offer.zone, 0))
