"""Scaling laws from finished trainings: how the loss falls with size and data, and the best size for a budget.

    <output>/law.json           the fitted numbers, with intervals; predictions of held-out runs; what it was fitted to
    <output>/report/law.csv     the same as a table
    <output>/report/law.svg     the runs and the law, or the curves of each budget

Runs named in `held_out` take no part in the fit. Each is predicted with an interval, and the report says whether it
fell into it. Runs that cannot fix a law, or a budget that has no best size, fail the step with the reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, write_json
from marin_rules.pipeline.evaluation.isoflops import Optimum, budgets_of, find_optimum, size_law
from marin_rules.pipeline.evaluation.law import HUBER, NAMES, Law, fit_law
from marin_rules.pipeline.evaluation.statistics import CONFIDENCE, Estimate, refuse_few_resamples
from marin_rules.pipeline.evaluation.tables import new_figure, plain, shortened, write_csv, write_svg
from marin_rules.pipeline.evaluation.training_runs import TrainingRun, read_runs

COLUMNS = ("quantity", "value", "standard_error", "low", "high", "measured")


@dataclass(frozen=True)
class ScalingLawConfig:
    """A law from several trainings."""

    runs: Mapping[str, str | InputName]
    """Outputs of training steps, by name."""

    held_out: Mapping[str, str | InputName] = field(default_factory=dict)
    """Trainings to predict and to check the law with."""

    metric: str = "eval/loss"
    """Which number of `metrics.jsonl` is the loss; its last value is taken."""

    fit_law: bool = True
    """Whether to fit L = A / N^a + B / D^b + E."""

    fit_isoflops: bool = False
    """Whether to look for the best size of each budget among the runs."""

    budgets: Sequence[float] = ()
    """FLOPs for which to say which size the law thinks best."""

    huber: float = HUBER
    resamples: int = 200
    seed: int = 0
    output_path: str = THIS_OUTPUT_PATH


def scaling_law(config: ScalingLawConfig) -> dict[str, Any]:
    """Fit, check, write; returns what `law.json` says."""
    check_scaling_law(config)
    paths = {name: str(path) for name, path in {**config.runs, **config.held_out}.items()}
    of_all = read_runs(paths, config.metric)
    runs = [run for run in of_all if run.name in config.runs]
    held_out = [run for run in of_all if run.name in config.held_out]
    law = fit_law(runs, resamples=config.resamples, seed=config.seed, huber=config.huber) if config.fit_law else None
    optima: list[Optimum] = []
    if config.fit_isoflops:
        optima = [find_optimum(one, resamples=config.resamples, seed=config.seed) for one in budgets_of(runs)]
    answer = _answer(config, runs, held_out, law, optima)
    write_csv(join(config.output_path, "report", "law.csv"), COLUMNS, _table(answer))
    write_svg(join(config.output_path, "report", "law.svg"), _figure(runs, held_out, law, optima, config))
    write_json(join(config.output_path, "law.json"), answer)
    for row in _table(answer):
        if row["low"] is not None:
            text = f"{row['quantity']}: {row['value']:.4g} ({row['low']:.4g} to {row['high']:.4g})"
            if (measured := row.get("measured")) is not None:
                where = "inside" if row["low"] <= measured <= row["high"] else "outside"
                text += f", measured {measured:.4g}: {where} the interval"
            print(text, flush=True)
    return answer


def check_scaling_law(config: ScalingLawConfig) -> None:
    """Refuse what no runs could make a law of."""
    if both := sorted(set(config.runs) & set(config.held_out)):
        raise DataError(f"{', '.join(both)} cannot be held out and fitted to: name it in one of the two")
    places = list({**config.runs, **config.held_out}.items())
    for number, (name, place) in enumerate(places):
        if twins := [other for other, its_place in places[:number] if its_place == place]:
            raise DataError(
                f"the runs {twins[0]!r} and {name!r} are the same training: it is one run, and cannot be held out from"
                " itself. Name it once"
            )
    refuse_few_resamples(config.resamples)
    if not config.huber > 0:
        raise DataError(f"huber is {config.huber}: use a relative error above 0")
    if not config.fit_law and not config.fit_isoflops:
        raise DataError("nothing to fit: set fit_law or fit_isoflops")
    if config.held_out and not config.fit_law:
        raise DataError("held-out runs are predicted by the law: set fit_law, or name no held-out runs")
    if bad := [flops for flops in config.budgets if not (math.isfinite(flops) and flops > 0)]:
        raise DataError(f"a budget of {bad[0]} FLOPs buys nothing: use numbers above 0")


def _answer(
    config: ScalingLawConfig,
    runs: Sequence[TrainingRun],
    held_out: Sequence[TrainingRun],
    law: Law | None,
    optima: Sequence[Optimum],
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "metric": config.metric,
        "confidence": CONFIDENCE,
        "runs": [asdict(run) for run in runs],
    }
    if law is not None:
        answer["law"] = {name: one.to_json() for name, one in law.estimates().items()}
        answer["best_sizes"] = {f"{flops:.6g}": law.best_size(flops).to_json() for flops in config.budgets}
        answer["held_out"] = [_checked(run, law.predict(run.parameters, run.tokens, config.seed)) for run in held_out]
    if optima:
        answer["isoflops"] = [
            {"flops": one.budget.flops, "size": one.size.to_json(), "loss": one.loss, "runs": len(one.budget.runs)}
            for one in optima
        ]
        power = size_law(optima)
        answer["size_law"] = None if power is None else {name: one.to_json() for name, one in power.items()}
    return answer


def _checked(run: TrainingRun, predicted: Estimate) -> dict[str, Any]:
    assert predicted.low is not None
    assert predicted.high is not None
    inside = predicted.low <= run.loss <= predicted.high
    return {**asdict(run), "predicted": predicted.to_json(), "is_inside": inside}


def _table(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [{"quantity": name, **one} for name, one in answer.get("law", {}).items()]
    rows += [{"quantity": f"best size for {flops} FLOPs", **one} for flops, one in answer.get("best_sizes", {}).items()]
    for one in answer.get("held_out", []):
        rows.append({"quantity": f"loss of {one['name']}", **one["predicted"], "measured": one["loss"]})
    for one in answer.get("isoflops", []):
        rows.append({"quantity": f"best size at {one['flops']:.3g} FLOPs (curve)", **one["size"]})
    for name, one in (answer.get("size_law") or {}).items():
        rows.append({"quantity": f"best size = k C^exponent: {name}", **one})
    return rows


def _figure(
    runs: Sequence[TrainingRun],
    held_out: Sequence[TrainingRun],
    law: Law | None,
    optima: Sequence[Optimum],
    config: ScalingLawConfig,
) -> Any:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    figure, axes = new_figure(width=9.0)
    axes.set(xscale="log", yscale="log", ylabel=plain(config.metric))
    if optima:
        _draw_budgets(axes, optima)
        axes.set_xlabel("parameters")
    else:
        _draw_law(axes, runs, held_out, law, config.seed)
        axes.set_xlabel("training tokens")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shortened(value)))
    axes.yaxis.set_major_locator(MaxNLocator(8, steps=(1, 2, 5, 10)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    # Beside the curves, which leave no corner free.
    figure.legend(loc="outside right center", fontsize="small")
    return figure


def _draw_budgets(axes: Any, optima: Sequence[Optimum]) -> None:
    import numpy

    for number, optimum in enumerate(optima):
        colour = f"C{number % 10}"
        tried = [run.parameters for run in optimum.budget.runs]
        sizes = numpy.geomspace(min(tried), max(tried), 60)
        axes.plot(sizes, numpy.polyval(optimum.curve, numpy.log(sizes)), color=colour)
        points = [(run.parameters, run.loss) for run in optimum.budget.runs]
        axes.scatter(*zip(*points, strict=True), color=colour, label=optimum.budget.name)
        axes.scatter([optimum.size.value], [optimum.loss], color=colour, marker="*", s=120)
    axes.scatter([], [], color="grey", marker="*", s=120, label="best size")


def _draw_law(
    axes: Any, runs: Sequence[TrainingRun], held_out: Sequence[TrainingRun], law: Law | None, seed: int
) -> None:
    """A curve for each size through its runs, dashed where it leads beyond them to one that is held out."""
    import numpy

    colours = {size: f"C{number % 10}" for number, size in enumerate(sorted({run.parameters for run in runs}))}
    for size, colour in colours.items():
        points = sorted((run.tokens, run.loss) for run in runs if run.parameters == size)
        axes.scatter(*zip(*points, strict=True), color=colour, label=f"{size:,} parameters")
        if law is not None:
            tokens = numpy.geomspace(points[0][0], points[-1][0], 60)
            axes.plot(tokens, law.loss(size, tokens), color=colour)
            for run in held_out:
                if run.parameters == size and run.tokens > points[-1][0]:
                    beyond = numpy.geomspace(points[-1][0], run.tokens, 60)
                    axes.plot(beyond, law.loss(size, beyond), color=colour, linestyle="--")
    if law is not None:
        big_a, big_b, constant, a, b = (law.estimates()[name].value for name in NAMES)
        axes.set_title(f"L = {big_a:.3g} / N^{a:.3g} + {big_b:.3g} / D^{b:.3g} + {constant:.3g}", fontsize="medium")
    for run, marker in zip(held_out, itertools.cycle("x+1234")):
        assert law is not None
        one = law.predict(run.parameters, run.tokens, seed)
        ends = [[one.value - (one.low or 0)], [(one.high or 0) - one.value]]
        label = plain(f"{run.name}, predicted with {CONFIDENCE:.0%} interval")
        axes.errorbar([run.tokens], [one.value], ends, color="black", fmt="_", capsize=3, label=label)
        axes.scatter(
            [run.tokens], [run.loss], color="black", marker=marker, label=plain(f"{run.name}, measured"), zorder=3
        )
