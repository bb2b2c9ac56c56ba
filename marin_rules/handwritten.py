"""Steps that a hand-written Snakemake rule runs, in any language, instead of a Python function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class SnakemakeRule:
    """Stands where a step's function would: the rule of this name does the work.

    The rule is written in a Snakefile beside the experiment (`my_experiment.smk` for `my_experiment.py`), takes
    its targets from the helper (`marin.target(...)`, `marin.inputs`) and runs its command under the step's lease
    (`marin.leased(...)`).
    """

    name: str
    """The rule's name."""

    def __call__(self, config: Any) -> NoReturn:
        raise TypeError(f"the Snakemake rule {self.name!r} runs this step: there is no Python function to call")
