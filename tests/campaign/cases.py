"""A case: an experiment and what happens to it, all of it from one seed."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from campaign.behaviours import EITHER, FAILING, REFUSED, WAITING, WHOLE, Behaviour
from campaign.names import EXTREME, PREFIXES, REFUSABLE_PREFIXES, step_names


@dataclass(frozen=True)
class StepCase:
    """One step of the experiment."""

    name: str
    behaviour: str
    option: str
    inputs: tuple[int, ...]
    override: str | None = None
    """Its output path, if that does not come from its version; relative to the case's folder."""


@dataclass(frozen=True)
class Disturbance:
    """A signal, sent while a step waits at the gate (or right after the gate was opened)."""

    number: signal.Signals
    target: str
    """driver: that process alone; group: its process group, as a terminal does; worker; step."""

    opens_gate: bool
    delay: float
    times: int


@dataclass(frozen=True)
class Case:
    """Everything that a seed decides."""

    seed: int
    steps: tuple[StepCase, ...]
    prefix: str
    """One of names.PREFIXES."""

    doors: tuple[str, str]
    """`python` or `snakemake`, for the first round and for those after it."""

    keeps_going: bool
    umask: int
    as_stranger: bool
    """The runs are those of another user than the one who made the folder (needs root)."""

    drivers: int
    versions: int
    disturbance: Disturbance | None

    @property
    def may_be_refused(self) -> bool:
        return self.prefix in REFUSABLE_PREFIXES or any(step.name in EXTREME for step in self.steps)

    @property
    def must_be_refused(self) -> bool:
        names = {behaviour.name for behaviour in REFUSED}
        return any(step.behaviour in names for step in self.steps)

    @property
    def disturbance_lets_steps_finish(self) -> bool:
        """SIGTERM to Snakemake alone, and SIGKILL: what runs is finished, nothing new is started."""
        disturbance = self.disturbance
        if disturbance is None or disturbance.target != "driver":
            return False
        graceful = disturbance.number == signal.SIGTERM and self.doors[0] == "snakemake"
        return graceful or disturbance.number == signal.SIGKILL

    @property
    def is_visited(self) -> bool:
        """In the end a colleague, who may only read, runs the finished experiment from a folder of their own."""
        is_elsewhere = not PREFIXES[self.prefix].startswith("FOLDER")
        return not self.as_stranger and not is_elsewhere and self.versions == 1

    @property
    def features(self) -> frozenset[str]:
        """What the case tries, for choosing cases that differ."""
        if self.may_be_refused:
            return frozenset({f"prefix {self.prefix}", f"extreme {any(step.name in EXTREME for step in self.steps)}"})
        found = {f"{step.behaviour} {step.option}" for step in self.steps}
        found |= {
            f"prefix {self.prefix}",
            f"drivers {self.drivers}",
            f"versions {self.versions}",
            f"umask {self.umask:o}",
        }
        found |= {f"door {self.doors[0]}", f"stranger {self.as_stranger}"}
        if self.disturbance is not None:
            signal_and_target = (self.disturbance.number.name, self.disturbance.target)
            found |= {*signal_and_target, " to ".join(signal_and_target), f"gate {self.disturbance.opens_gate}"}
        return frozenset(found)


def covering(count: int, among: Sequence[int]) -> list[int]:
    """So many seeds, each of which tries most of what those before it did not."""
    features = {seed: make_case(seed).features for seed in among}
    chosen: list[int] = []
    tried: set[str] = set()
    for _ in range(count):
        best = max(features, key=lambda seed: (len(features[seed] - tried), -seed))
        tried |= features.pop(best)
        chosen.append(best)
    return sorted(chosen)


def make_case(seed: int) -> Case:
    """The case of a seed."""
    chance = random.Random(f"campaign {seed}")
    kind = chance.choices(("alone", "signal", "together", "versions", "refused"), (40, 34, 10, 8, 8))[0]
    prefix = chance.choice(list(PREFIXES))
    disturbance = None
    if kind in ("together", "versions"):
        # Drivers with working directories of their own.
        prefix = chance.choice(("absolute", "space", "link", "double", "unicode", "glob"))
        behaviours = _some(chance, WHOLE, chance.randint(1, 4))
    elif kind == "signal":
        disturbance = _disturbance(chance)
        behaviours = _some(chance, WHOLE, chance.randint(0, 3))
        waiting = WAITING if disturbance.target != "step" else WAITING[:1]
        behaviours.insert(chance.randint(0, len(behaviours)), chance.choice(waiting))
    elif kind == "refused":
        behaviours = [*_some(chance, WHOLE, 1), chance.choice(REFUSED)]
    else:
        behaviours = _some(chance, WHOLE, chance.randint(1, 4)) + _some(chance, FAILING, chance.randint(0, 2))
        behaviours += EITHER if chance.random() < 0.2 else []
        chance.shuffle(behaviours)
    names = step_names(chance, len(behaviours), extreme=kind == "alone" and chance.random() < 0.2)
    steps = [
        StepCase(
            name,
            behaviour.name,
            chance.choice(list(behaviour.options)),
            tuple(sorted(chance.sample(range(index), min(index, chance.choice((0, 0, 1, 2)))))),
        )
        for index, (name, behaviour) in enumerate(zip(names, behaviours, strict=True))
    ]
    if kind == "versions":
        steps.append(StepCase("shared", "plain", "", (), override="shared/path"))
    return Case(
        seed=seed,
        steps=tuple(steps),
        prefix=prefix,
        doors=(chance.choice(("python", "snakemake")), chance.choice(("python", "snakemake"))),
        keeps_going=chance.random() < 0.5,
        umask=chance.choice((0o022, 0o022, 0o077, 0o002, 0o000, 0o027)),
        as_stranger=chance.random() < 0.25,
        drivers=2 if kind in ("together", "versions") else 1,
        versions=2 if kind == "versions" else 1,
        disturbance=disturbance,
    )


def _some(chance: random.Random, behaviours: Sequence[Behaviour], count: int) -> list[Behaviour]:
    return chance.choices(list(behaviours), k=count)


def _disturbance(chance: random.Random) -> Disturbance:
    target = chance.choice(("driver", "driver", "group", "worker", "step"))
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    if target in ("driver", "worker"):
        numbers.append(signal.SIGKILL)
    if target == "step":
        numbers = [signal.SIGTERM, signal.SIGKILL]
    return Disturbance(
        number=chance.choice(numbers),
        target=target,
        opens_gate=chance.random() < 0.3,
        delay=round(chance.choice((0.0, chance.uniform(0, 0.6))), 3),
        times=chance.choice((1, 1, 1, 2)) if target in ("driver", "group") else 1,
    )
