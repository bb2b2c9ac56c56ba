"""How much work a step is, how fast it is done, and how long the rest will take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Work:
    """The size of a run. What only the trainer knows is filled in when it says so."""

    steps: int
    sequences_per_step: int
    sequence_length: int
    parameters: int | None = None
    flops_per_sequence: float | None = None
    peak_flops: float | None = None
    """Of all devices together, a second; None where the device is not known, as for CPUs."""

    @property
    def tokens_per_step(self) -> int:
        return self.sequences_per_step * self.sequence_length

    @property
    def flops_per_step(self) -> float | None:
        return None if self.flops_per_sequence is None else self.flops_per_sequence * self.sequences_per_step

    def tokens(self, step: int) -> int:
        """Seen when `step`, counted from 0, is done."""
        return (step + 1) * self.tokens_per_step

    def flops(self, step: int) -> float | None:
        return None if self.flops_per_step is None else (step + 1) * self.flops_per_step

    def speed(self, seconds_per_step: float) -> dict[str, float]:
        """Tokens a second, and which part of the devices' peak is used (MFU) where that is known."""
        speed = {"tokens_per_second": self.tokens_per_step / seconds_per_step}
        if self.flops_per_step and self.peak_flops:
            speed["mfu"] = self.flops_per_step / seconds_per_step / self.peak_flops
        return speed


def progress_line(
    work: Work, step: int, loss: float, learning_rate: float | None, seconds_per_step: float | None
) -> str:
    """`step 120/400  loss 3.2141  lr 2.9e-03  10,240 tokens/s  ETA 1 min 20 s`."""
    parts = [f"step {step + 1}/{work.steps}", f"loss {loss:.4f}"]
    if learning_rate is not None:
        parts.append(f"lr {learning_rate:.2g}")
    if seconds_per_step:
        speed = work.speed(seconds_per_step)
        parts.append(f"{speed['tokens_per_second']:,.0f} tokens/s")
        if "mfu" in speed:
            parts.append(f"MFU {speed['mfu']:.1%}")
        if left := work.steps - step - 1:
            parts.append(f"ETA {duration(left * seconds_per_step)}")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """In the two largest units that say something: `45 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    whole = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"
