"""The best size of a model for a budget: runs of the same cost, and the bottom of the curve through them.

For each budget the loss is a parabola in the logarithm of the size. There is a best size only if it opens upwards and
its vertex lies between the sizes that were tried; anything else is refused by the budget's name. The best sizes of two
or more budgets give a power law, N = k C^exponent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.statistics import CONFIDENCE, Estimate, estimate, few_items
from marin_rules.pipeline.evaluation.training_runs import TrainingRun

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

_SAME_BUDGET = 0.1
"""How much more than the cheapest run of its budget a run may cost."""

_LEAST_SIZES = 4
"""Three fix a parabola, one more says how well."""


_LEAST_BEND = 1e-9
"""By how much of the loss the middle of a curve must lie off its ends: less is the rounding of numbers."""


@dataclass(frozen=True)
class Budget:
    """Runs of about the same cost."""

    flops: float
    """Their geometric mean."""

    runs: tuple[TrainingRun, ...]

    @property
    def name(self) -> str:
        return f"{self.flops:.3g} FLOPs"


@dataclass(frozen=True)
class Optimum:
    """The bottom of a budget's curve."""

    budget: Budget
    curve: Array
    """Coefficients of the parabola in log N, the highest power first."""

    size: Estimate
    loss: float
    resampled: Array
    """Logarithms of the best size."""


def budgets_of(runs: Sequence[TrainingRun]) -> list[Budget]:
    """Runs by cost, the cheapest first."""
    import numpy

    groups: list[list[TrainingRun]] = []
    for run in sorted(runs, key=lambda run: run.flops):
        if groups and run.flops <= groups[-1][0].flops * (1 + _SAME_BUDGET):
            groups[-1].append(run)
        else:
            groups.append([run])
    means = [numpy.exp(numpy.mean(numpy.log([run.flops for run in group]))) for group in groups]
    return [Budget(float(mean), tuple(group)) for mean, group in zip(means, groups, strict=True)]


def refuse_few_sizes(count: int) -> None:
    """Known before any of them is trained."""
    if count < _LEAST_SIZES:
        raise DataError(f"{count} runs have no best size among them: a budget needs at least {_LEAST_SIZES} sizes")


def find_optimum(budget: Budget, *, resamples: int = 200, seed: int = 0) -> Optimum:
    import numpy

    sizes = numpy.log([run.parameters for run in budget.runs])
    losses = numpy.array([run.loss for run in budget.runs])
    if len(set(sizes)) < _LEAST_SIZES:
        raise DataError(
            f"the budget of {budget.name} has {len(set(sizes))} sizes of models ({_names(budget)}): a best one needs at"
            f" least {_LEAST_SIZES}"
        )
    middle = float(sizes.mean())
    design = numpy.vander(sizes - middle, 3)
    curve = _fit(design, losses)
    low, high = float(sizes.min()), float(sizes.max())
    _refuse(budget, curve, middle, low, high)
    fitted = design @ curve
    # A fit takes three numbers out of the residuals; none are left of one through all points.
    residuals = (losses - fitted) * numpy.sqrt(len(losses) / (len(losses) - 3))
    # Each budget's own draws: with the same ones, whatever is alike in two curves would cancel out of the power law.
    generator = numpy.random.default_rng([seed, len(losses), int(budget.flops)])
    curves = [_fit(design, fitted + generator.choice(residuals, len(losses))) for _ in range(resamples)]
    good = [one for one in curves if one[0] > 0 and low <= _vertex(one, middle) <= high]
    if len(good) < CONFIDENCE * resamples:
        raise DataError(
            f"the budget of {budget.name} has no certain best size: of {resamples} resamples only {len(good)} have a"
            " minimum between its sizes. Use more sizes, or a wider range of them"
        )
    vertex = _vertex(curve, middle)
    vertices = vertex + few_items(len(losses) - 3) * (numpy.array([_vertex(one, middle) for one in good]) - vertex)
    size = estimate(float(numpy.exp(vertex)), numpy.exp(vertices), len(losses))
    loss = float(numpy.polyval(curve, vertex - middle))
    shifted = numpy.poly1d(curve)(numpy.poly1d([1.0, -middle]))
    return Optimum(budget, shifted.coeffs, size, loss, vertices)


def size_law(optima: Sequence[Optimum]) -> dict[str, Estimate] | None:
    """k and the exponent of N = k C^exponent; None of a single budget."""
    import numpy

    if len(optima) < 2:
        return None
    flops = numpy.log([optimum.budget.flops for optimum in optima])
    draws = min(len(optimum.resampled) for optimum in optima)
    sizes = numpy.stack([optimum.resampled[:draws] for optimum in optima])
    lines = numpy.polyfit(flops, sizes, 1)
    exponent, constant = numpy.polyfit(flops, numpy.log([optimum.size.value for optimum in optima]), 1)
    items = sum(len(optimum.budget.runs) for optimum in optima)
    return {
        "exponent": estimate(float(exponent), lines[0], items),
        "k": estimate(float(numpy.exp(constant)), numpy.exp(lines[1]), items),
    }


def _refuse(budget: Budget, curve: Array, middle: float, low: float, high: float) -> None:
    import numpy

    bend = curve[0] * ((high - low) / 2) ** 2
    if abs(bend) < _LEAST_BEND * abs(curve[2]):
        raise DataError(
            f"the budget of {budget.name} has no best size: its curve is a straight line ({_names(budget)}). Use a"
            " wider range of sizes"
        )
    if curve[0] <= 0:
        raise DataError(
            f"the budget of {budget.name} has no best size: its curve opens downwards, so that the loss is least at the"
            f" ends ({_names(budget)}). Is a run broken, or the range of sizes too small?"
        )
    vertex = _vertex(curve, middle)
    if not low <= vertex <= high:
        side, what = ("below the smallest", "smaller") if vertex < low else ("above the largest", "larger")
        raise DataError(
            f"the best size of the budget of {budget.name} is {side} that was tried ({numpy.exp(vertex):.3g} parameters"
            f" by extrapolation): add {what} models"
        )


def _fit(design: Array, losses: Array) -> Array:
    import numpy

    curve: Array = numpy.linalg.lstsq(design, losses, rcond=None)[0]
    return curve


def _vertex(curve: Array, middle: float) -> float:
    return float(middle - curve[1] / (2 * curve[0]))


def _names(budget: Budget) -> str:
    return ", ".join(run.name for run in budget.runs)
