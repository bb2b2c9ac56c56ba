"""The loss of a model from its size and its data: L = A / N^a + B / D^b + E.

N is the number of parameters, D of tokens. The five numbers are fitted to the logarithm of the loss, with Huber's loss
so that a run that went wrong does not decide, from several starts because the problem has more than one valley. How
sure they are is found by fitting again to the fitted losses with the residuals drawn anew.

A fit is refused if the runs cannot tell the numbers apart: too few sizes or amounts of data, sizes that grow with the
data, or a term that ends without an effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.statistics import Estimate, estimate, few_items, symmetric
from marin_rules.pipeline.evaluation.training_runs import TrainingRun

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

NAMES = ("A", "B", "E", "a", "b")
HUBER = 0.01
"""The relative error of a loss from which on a run counts as an outlier."""

_LEAST_RUNS = 7
_LEAST_VALUES = 3
"""Of sizes and of amounts of data: two numbers of a power law, and the constant below it."""

_MOST_CORRELATED = 0.98
_EXPONENTS = (0.02, 3.0)
_LEAST_LOG_SHARE = -12.0
"""The logarithm of the least constant that is considered, as a part of the least loss: as good as none."""

_LEAST_SHARE = 0.002
"""Of the loss that a term makes up where it is largest."""


@dataclass(frozen=True)
class Law:
    """A fit, with as many others as there were resamples."""

    parameters: Array
    """(log A, log B, log E, a, b)."""

    resampled: Array
    residuals: Array
    """Relative errors of the fitted losses, widened by what the fit has taken out of them."""

    runs: tuple[TrainingRun, ...]

    def loss(self, parameters: float | Array, tokens: float | Array) -> Any:
        import numpy

        sizes, data = numpy.broadcast_arrays(numpy.log(parameters), numpy.log(tokens))
        return numpy.exp(_log_loss(self.parameters, sizes, data))

    def estimates(self) -> dict[str, Estimate]:
        """The five numbers, and the exponent with which the best size grows with the FLOPs."""
        import numpy

        found = {
            name: symmetric(self.parameters[place], self.resampled[:, place], is_logarithm=name in "AB")
            for place, name in enumerate(NAMES)
        }
        constant = symmetric(float(numpy.exp(self.parameters[2])), numpy.exp(self.resampled[:, 2]))
        found["E"] = replace(constant, low=max(0.0, constant.low or 0.0))
        a, b = self.parameters[3:]
        of_draws = self.resampled[:, 4] / (self.resampled[:, 3] + self.resampled[:, 4])
        found["size_exponent"] = symmetric(b / (a + b), of_draws)
        return found

    def predict(self, parameters: float, tokens: float, seed: int = 0) -> Estimate:
        """The loss of a run that is yet to be made: uncertain by the law, and by what makes any two runs differ."""
        import numpy

        sizes = numpy.log([parameters]), numpy.log([tokens])
        means = numpy.array([_log_loss(one, *sizes)[0] for one in self.resampled])
        # Few runs say no more of how large residuals are than of the law: both are stretched alike.
        residuals = few_items(len(self.runs) - len(NAMES)) * self.residuals
        noise = numpy.random.default_rng(seed).choice(residuals, len(means))
        value = float(numpy.exp(_log_loss(self.parameters, *sizes)[0]))
        return estimate(value, numpy.exp(means + noise), len(self.runs))

    def best_size(self, flops: float) -> Estimate:
        """The parameters with which a model reaches the least loss, if training costs 6 N D."""
        return estimate(
            float(_best_size(self.parameters[None], flops)[0]), _best_size(self.resampled, flops), len(self.runs)
        )


def fit_law(runs: Sequence[TrainingRun], *, resamples: int = 200, seed: int = 0, huber: float = HUBER) -> Law:
    import numpy

    _refuse_designs(runs)
    sizes = numpy.log([run.parameters for run in runs])
    data = numpy.log([run.tokens for run in runs])
    losses = numpy.log([run.loss for run in runs])
    fits = [_descend(start, sizes, data, losses, huber) for start in _starts(sizes, data, losses)]
    _, best = min(fits, key=lambda fit: fit[0])
    _refuse_fits(best, sizes, data)
    fitted = _log_loss(best, sizes, data)
    residuals = (losses - fitted) * numpy.sqrt(len(runs) / (len(runs) - len(NAMES)))
    generator = numpy.random.default_rng(seed)
    drawn = (fitted + generator.choice(residuals, len(runs)) for _ in range(resamples))
    fits_of_drawn = numpy.array([_descend(best, sizes, data, one, huber)[1] for one in drawn])
    resampled = _stretched(best, fits_of_drawn, few_items(len(runs) - len(NAMES)))
    _refuse_uncertain(best, resampled)
    resampled[:, 3:] = resampled[:, 3:].clip(*_EXPONENTS)
    return Law(best, resampled, residuals, tuple(runs))


def _stretched(best: Array, fits: Array, factor: float) -> Array:
    """Fits moved away from the best one. E by its value, because its logarithm has no end if there is no constant."""
    import numpy

    with_value = fits.copy()
    with_value[:, 2] = numpy.exp(fits[:, 2])
    middle = numpy.array([*best[:2], numpy.exp(best[2]), *best[3:]])
    moved: Array = middle + factor * (with_value - middle)
    moved[:, 2] = numpy.log(moved[:, 2].clip(min=numpy.exp(_LEAST_LOG_SHARE) * middle[2] + 1e-300))
    return moved


def refuse_few_runs(count: int) -> None:
    """Known before any of them is trained."""
    if count < _LEAST_RUNS:
        raise DataError(f"{count} runs cannot determine the five parameters of a law: use at least {_LEAST_RUNS}")


def _refuse_designs(runs: Sequence[TrainingRun]) -> None:
    import numpy

    refuse_few_runs(len(runs))
    for what, values in (
        ("sizes (parameters)", {run.parameters for run in runs}),
        ("amounts of data (tokens)", {run.tokens for run in runs}),
    ):
        if len(values) < _LEAST_VALUES:
            raise DataError(f"the runs have {len(values)} different {what}: a law needs at least {_LEAST_VALUES}")
    sizes, data = (numpy.log([getattr(run, name) for run in runs]) for name in ("parameters", "tokens"))
    correlation = float(numpy.corrcoef(sizes, data)[0, 1])
    if abs(correlation) > _MOST_CORRELATED:
        raise DataError(
            f"sizes and amounts of data of the runs are correlated ({correlation:.3f}): their effects cannot"
            " be told apart. Train some sizes with several amounts of data"
        )


def _refuse_fits(best: Array, sizes: Array, data: Array) -> None:
    import numpy

    log_a, log_b, _, a, b = best
    total = _log_loss(best, sizes, data)
    for what, name, exponent, term in (
        ("size", "a", a, log_a - a * sizes),
        ("data", "b", b, log_b - b * data),
    ):
        low, high = _EXPONENTS
        if not low * 1.01 < exponent < high * 0.99:
            raise DataError(
                f"the runs do not determine how the loss falls with {what}: the exponent {name} went to {exponent:.2f},"
                " the end of the range that is searched. Use a wider range of it, or runs with less noise"
            )
        if float(numpy.exp(term - total).max()) < _LEAST_SHARE:
            raise DataError(f"the loss of these runs does not depend on {what}: its term of the law vanishes")


def _refuse_uncertain(best: Array, resampled: Array) -> None:
    """A law that may as well be that more size or more data does harm predicts nothing."""
    for what, name, place in (("size", "a", 3), ("data", "b", 4)):
        exponent = symmetric(best[place], resampled[:, place])
        if exponent.low is None or exponent.low <= 0:
            raise DataError(
                f"the runs do not determine how the loss falls with {what}: the exponent {name} is"
                f" {exponent.value:.2f}, but may be anything from {exponent.low:.2f} to {exponent.high:.2f}. Use"
                " more runs, a wider range, or runs with less noise"
            )


def _starts(sizes: Array, data: Array, losses: Array) -> list[Array]:
    """Exponents and the part of the least loss that stays, with the rest divided between the two terms."""
    import numpy

    least, most = float(numpy.exp(losses.min())), float(numpy.exp(losses.max()))
    starts = []
    for a, b, share in itertools.product((0.2, 0.5, 1.0), (0.2, 0.5, 1.0), (0.3, 0.9)):
        rest = max(most - share * least, 1e-6) / 2
        starts.append(
            numpy.array(
                [
                    numpy.log(rest) + a * sizes.min(),
                    numpy.log(rest) + b * data.min(),
                    numpy.log(share * least),
                    a,
                    b,
                ]
            )
        )
    return starts


def _descend(start: Array, sizes: Array, data: Array, losses: Array, huber: float) -> tuple[float, Array]:
    import numpy
    from scipy.optimize import least_squares

    low = [-numpy.inf, -numpy.inf, float(losses.min()) + _LEAST_LOG_SHARE, _EXPONENTS[0], _EXPONENTS[0]]
    high = [numpy.inf, numpy.inf, float(losses.max()), _EXPONENTS[1], _EXPONENTS[1]]
    found = least_squares(
        lambda one: _log_loss(one, sizes, data) - losses,
        numpy.clip(start, low, high),
        jac=lambda one: _gradient(one, sizes, data),
        bounds=(low, high),
        loss="huber",
        f_scale=huber,
        x_scale="jac",
        max_nfev=500,
    )
    return float(found.cost), found.x


def _terms(one: Array, sizes: Array, data: Array) -> Array:
    import numpy

    return numpy.stack([one[0] - one[3] * sizes, one[1] - one[4] * data, numpy.full(sizes.shape, one[2])])


def _log_loss(one: Array, sizes: Array, data: Array) -> Array:
    import numpy

    terms = _terms(one, sizes, data)
    total: Array = numpy.logaddexp.reduce(terms, axis=0)
    return total


def _gradient(one: Array, sizes: Array, data: Array) -> Array:
    import numpy

    terms = _terms(one, sizes, data)
    shares = numpy.exp(terms - numpy.logaddexp.reduce(terms, axis=0))
    return numpy.stack([shares[0], shares[1], shares[2], -shares[0] * sizes, -shares[1] * data], axis=1)


def _best_size(fits: Array, flops: float) -> Array:
    """Where the derivative of A / N^a + B / (C / 6N)^b by N is zero."""
    import numpy

    log_a, log_b, _, a, b = fits.T
    size: Array = numpy.exp((numpy.log(a) + log_a - numpy.log(b) - log_b + b * numpy.log(flops / 6)) / (a + b))
    return size
