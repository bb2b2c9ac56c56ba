"""Clocks that run only when told to, and workers of which nothing can be seen from here."""

from dataclasses import dataclass

from marin_rules.storage.leases.owner import Owner


@dataclass
class ManualClock:
    """Time passes only when told to."""

    elapsed: float = 1000.0
    wall: float = 1_700_000_000.0

    def monotonic(self) -> float:
        return self.elapsed

    def since_boot(self) -> float:
        return self.elapsed

    def time(self) -> float:
        return self.wall

    def advance(self, seconds: float) -> None:
        self.elapsed += seconds
        self.wall += seconds


def elsewhere(name: str) -> Owner:
    """A worker on a machine of which nothing can be seen from here."""
    return Owner(f"{name}-7-abcd", host=name, pid=7, user="u", start_ticks=1, boot_id=name, pid_namespace="pid:[1]")
