"""Laws fitted to runs that obey a law that is known, and designs from which none can be fitted."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.isoflops import budgets_of, find_optimum, size_law
from marin_rules.pipeline.evaluation.law import Law, fit_law
from marin_rules.pipeline.evaluation.training_runs import TrainingRun
from marin_rules.pipeline.scaling_laws import ScalingLawConfig, scaling_law

TRUTH = {"A": 400.0, "B": 2000.0, "E": 1.7, "a": 0.34, "b": 0.38}
SIZES = (1e5, 3e5, 1e6, 3e6, 1e7)
TOKENS = (1e7, 3e7, 1e8, 3e8)
NOISE = 0.005


def true_loss(size: float, tokens: float) -> float:
    return float(TRUTH["A"] / size ** TRUTH["a"] + TRUTH["B"] / tokens ** TRUTH["b"] + TRUTH["E"])


def run(size: float, tokens: float, noise: float = 0.0, name: str = "") -> TrainingRun:
    loss = true_loss(size, tokens) * float(numpy.exp(noise))
    return TrainingRun(name or f"{size:.0e}-{tokens:.0e}", int(size), int(tokens), 6 * size * tokens, loss)


def grid(seed: int, noise: float = NOISE) -> list[TrainingRun]:
    generator = numpy.random.default_rng(seed)
    return [run(size, tokens, generator.normal() * noise) for size in SIZES for tokens in TOKENS]


def test_without_noise_the_law_is_found_exactly() -> None:
    found = fit_law(grid(0, noise=0.0), resamples=3).estimates()
    for name, value in TRUTH.items():
        assert found[name].value == pytest.approx(value, rel=1e-3)
    assert found["size_exponent"].value == pytest.approx(0.38 / (0.34 + 0.38), rel=1e-3)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of 24 laws with 95% intervals 22.8 hold it on average, and fewer than 19 once in a hundred times."""
    times = 24
    hits = dict.fromkeys([*TRUTH, "prediction", "best size"], 0)
    best = _best_size_by_search(1e18)
    for seed in range(times):
        law = fit_law(grid(seed), resamples=60)
        for name, one in law.estimates().items():
            if name in TRUTH:
                hits[name] += one.low <= TRUTH[name] <= one.high  # type: ignore[operator]
        new = run(3e7, 1e9, numpy.random.default_rng(1000 + seed).normal() * NOISE)
        predicted = law.predict(3e7, 1e9, seed)
        hits["prediction"] += predicted.low <= new.loss <= predicted.high  # type: ignore[operator]
        size = law.best_size(1e18)
        hits["best size"] += size.low <= best <= size.high  # type: ignore[operator]
    assert min(hits.values()) >= 19, hits


def test_a_prediction_from_few_runs_is_no_surer_than_their_residuals() -> None:
    """Nine runs leave four degrees of freedom, with which Student's quantile is 2.776. In 300 sweeps, intervals that
    took residuals for as large as they happen to be held the loss of a run between the others 269 times, not 285."""
    parameters = numpy.array([math.log(TRUTH["A"]), math.log(TRUTH["B"]), math.log(TRUTH["E"]), 0.34, 0.38])
    residuals = numpy.array([0.01, -0.01] * 5)[:9]
    law = Law(parameters, numpy.tile(parameters, (200, 1)), residuals, tuple(grid(0)[:9]))
    found, loss = law.predict(1e6, 1e8), true_loss(1e6, 1e8)
    assert found.value == pytest.approx(loss)
    half = 0.01 * 2.776 / 1.96
    assert (found.low, found.high) == pytest.approx((loss * math.exp(-half), loss * math.exp(half)), rel=1e-4)


def _best_size_by_search(flops: float) -> float:
    sizes = numpy.geomspace(1e4, 1e12, 400_000)
    tokens = flops / (6 * sizes)
    losses = TRUTH["A"] / sizes ** TRUTH["a"] + TRUTH["B"] / tokens ** TRUTH["b"]
    return float(sizes[losses.argmin()])


def test_the_best_size_is_where_a_search_finds_it() -> None:
    law = fit_law(grid(0, noise=0.0), resamples=3)
    assert law.best_size(1e18).value == pytest.approx(_best_size_by_search(1e18), rel=0.01)


def test_a_run_that_went_wrong_does_not_decide() -> None:
    runs = grid(0, noise=0.0)
    runs[7] = run(SIZES[1], TOKENS[3], noise=0.5)
    found = fit_law(runs, resamples=3).estimates()
    assert found["E"].value == pytest.approx(TRUTH["E"], rel=0.05)


DEGENERATE = {
    "too few runs": ([run(size, 1e8) for size in SIZES], "5 runs cannot determine"),
    "one size": ([run(1e6, tokens) for tokens in numpy.geomspace(1e7, 1e9, 9)], "1 different sizes"),
    "two amounts of data": ([run(s, t) for s in SIZES for t in (1e7, 1e8)], "2 different amounts of data"),
    "data in proportion to size": ([run(size, 20 * size) for size in numpy.geomspace(1e5, 1e7, 9)], "are correlated"),
    "data against size": ([run(size, 1e14 / size) for size in numpy.geomspace(1e5, 1e7, 9)], "are correlated"),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_designs_that_cannot_tell_are_refused(name: str) -> None:
    runs, message = DEGENERATE[name]
    with pytest.raises(DataError, match=message):
        fit_law(runs)


def test_a_loss_that_does_not_depend_on_size_is_refused() -> None:
    runs = [
        TrainingRun("r", int(size), int(tokens), 1.0, 2 + 2000 / tokens**0.38) for size in SIZES for tokens in TOKENS
    ]
    with pytest.raises(DataError, match=r"size"):
        fit_law(runs)


def test_runs_with_too_much_noise_are_refused_with_what_they_leave_open() -> None:
    runs = [one for number, one in enumerate(grid(1, noise=0.15)) if number % 3 == 0]
    with pytest.raises(DataError, match=r"do not determine how the loss falls with (size|data): the exponent"):
        fit_law(runs, resamples=100)


def test_a_law_without_a_constant_has_a_constant_near_zero() -> None:
    losses = {(s, t): 400 / s**0.34 + 2000 / t**0.38 for s in SIZES for t in TOKENS}
    runs = [TrainingRun("r", int(s), int(t), 6 * s * t, loss) for (s, t), loss in losses.items()]
    law = fit_law(runs, resamples=20)
    assert law.estimates()["E"].value < 1e-2
    assert law.predict(1e8, 1e9).value == pytest.approx(400 / 1e8**0.34 + 2000 / 1e9**0.38, rel=0.01)


# --- budgets


def budget(flops: float, sizes: Any, noise: float = 0.0, seed: int = 0) -> list[TrainingRun]:
    generator = numpy.random.default_rng(seed)
    return [run(size, flops / (6 * size), generator.normal() * noise) for size in sizes]


def around(flops: float, width: float = 3.0, number: int = 7) -> Any:
    best = _best_size_by_search(flops)
    return numpy.geomspace(best / width, best * width, number)


def test_the_best_sizes_of_budgets_make_a_power_law() -> None:
    budgets = (1e14, 1e15, 1e16)
    runs = [one for flops in budgets for one in budget(flops, around(flops))]
    numpy.random.default_rng(0).shuffle(runs)  # type: ignore[arg-type]
    optima = [find_optimum(one, resamples=20) for one in budgets_of(runs)]
    assert [optimum.budget.flops for optimum in optima] == pytest.approx(budgets, rel=1e-3)
    for optimum in optima:
        assert optimum.size.value == pytest.approx(_best_size_by_search(optimum.budget.flops), rel=0.03)
    law = size_law(optima)
    assert law is not None
    assert law["exponent"].value == pytest.approx(0.38 / 0.72, rel=0.03)


def test_budgets_are_drawn_independently() -> None:
    """Whose noise happens to be alike: with the same draws for both, the exponent would be certain."""
    noise = numpy.random.default_rng(1).normal(0, 0.01, 6)
    optima = []
    for flops, best in ((1e15, 1e6), (1e16, 3e6)):
        sizes = numpy.geomspace(best / 5, best * 5, 6)
        losses = 3 + 0.1 * numpy.log(sizes / best) ** 2 + noise
        runs = [TrainingRun("r", int(size), 1, flops, loss) for size, loss in zip(sizes, losses, strict=True)]
        optima.append(find_optimum(budgets_of(runs)[0]))
    law = size_law(optima)
    assert law is not None
    of_sizes = [float(numpy.std(optimum.resampled)) for optimum in optima]
    # The slope of a line through two points.
    expected = float(numpy.hypot(*of_sizes) / numpy.log(10))
    assert law["exponent"].standard_error == pytest.approx(expected, rel=0.25)


def test_the_interval_of_a_best_size_holds_the_truth() -> None:
    """Where the curve is the parabola that it is taken for: 38 of 40 on average, and 33 or fewer once in a thousand."""
    truth, hits = 1.3e6, 0
    for seed in range(40):
        noise = numpy.random.default_rng(seed).normal(0, 0.01, 9)
        sizes = numpy.geomspace(truth / 6, truth * 4, 9)
        losses = 3 + 0.1 * numpy.log(sizes / truth) ** 2 + noise
        runs = [TrainingRun("r", int(size), 1, 1e15, loss) for size, loss in zip(sizes, losses, strict=True)]
        found = find_optimum(budgets_of(runs)[0]).size
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth <= found.high
    assert hits >= 34


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ((3.0, 3.2, 3.3, 3.2, 3.0), "1e.15 FLOPs has no best size: its curve opens downwards"),
        ((3.0, 3.1, 3.25, 3.45, 3.7), "below the smallest that was tried.*add smaller models"),
        ((3.7, 3.45, 3.25, 3.1, 3.0), "above the largest that was tried.*add larger models"),
        ((3.3, 3.0, 3.28), "has 3 sizes of models"),
        ((3.0, 3.0, 3.0, 3.0, 3.0), "its curve is a straight line"),
        ((3.4, 3.3, 3.2, 3.1, 3.0), "its curve is a straight line"),
        ((3.3, 3.0, 3.35, 3.0, 3.3), "no certain best size: of 200 resamples only"),
    ],
)
def test_a_budget_without_a_best_size_is_refused_by_name(losses: tuple[float, ...], message: str) -> None:
    runs = [TrainingRun(f"r{n}", 10**5 * 2**n, 10**7, 1e15, loss) for n, loss in enumerate(losses)]
    with pytest.raises(DataError, match=message):
        find_optimum(budgets_of(runs)[0])


# --- the step


def write_run(folder: Path, one: TrainingRun) -> str:
    path = folder / one.name
    path.mkdir(parents=True)
    facts = {"steps": 10, "parameters": one.parameters, "tokens": one.tokens, "flops": one.flops, "seconds": 1.0}
    (path / "training.json").write_text(json.dumps(facts))
    lines = [{"step": 0, "eval/loss": 9.9}, {"step": 9, "train/loss": 1.0}, {"step": 9, "eval/loss": one.loss}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 10, "ev')
    return str(path)


def test_the_step_predicts_a_run_that_it_has_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {one.name: write_run(tmp_path / "runs", one) for one in grid(3)}
    new = {"new": write_run(tmp_path / "new", run(3e7, 1e9, name="new"))}
    config = ScalingLawConfig(runs, new, budgets=[1e18], resamples=100, output_path=str(tmp_path / "out"))
    answer = scaling_law(config)
    assert json.loads((tmp_path / "out" / "law.json").read_text()) == answer
    assert answer["held_out"][0]["is_inside"]
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("loss of new: ")]
    assert said.endswith(f", measured {true_loss(3e7, 1e9):.4g}: inside the interval")
    table = {row["quantity"]: row for row in csv.DictReader((tmp_path / "out" / "report" / "law.csv").open())}
    assert float(table["E"]["value"]) == pytest.approx(TRUTH["E"], rel=0.2)
    assert float(table["loss of new"]["measured"]) == pytest.approx(true_loss(3e7, 1e9), rel=1e-4)
    assert "best size for 1e+18 FLOPs" in table
    first = (tmp_path / "out" / "report" / "law.svg").read_bytes()
    for label in (b"new, measured", b"new, predicted with 95% interval", b"training tokens", b"eval/loss"):
        assert b"<!-- %b -->" % label in first
    frame, legend = (
        [float(x) for x, _ in re.findall(r"([\d.]+) ([\d.]+) *$", found[1], re.MULTILINE)]
        for name in ("patch_2", "legend_1")
        if (found := re.search(rf'<g id="{name}">.*?<path d="([^"]*)"', first.decode(), re.DOTALL))
    )
    assert min(legend) > max(frame), "it covers no run"
    scaling_law(ScalingLawConfig(runs, new, budgets=[1e18], resamples=100, output_path=str(tmp_path / "again")))
    assert (tmp_path / "again" / "report" / "law.svg").read_bytes() == first


def test_the_step_draws_budgets(tmp_path: Path) -> None:
    runs = {f"{flops}-{one.name}": one for flops in (1e14, 1e15) for one in budget(flops, around(flops))}
    paths = {name: write_run(tmp_path / name, one) for name, one in runs.items()}
    out = tmp_path / "out"
    answer = scaling_law(ScalingLawConfig(paths, fit_law=False, fit_isoflops=True, output_path=str(out)))
    assert [one["runs"] for one in answer["isoflops"]] == [7, 7]
    assert answer["size_law"]["exponent"]["value"] == pytest.approx(0.38 / 0.72, rel=0.05)
    drawn = (out / "report" / "law.svg").read_bytes()
    for label in (b"best size", b"1M", b"parameters"):
        assert b"<!-- %b -->" % label in drawn


def test_runs_that_left_too_little_are_refused_by_name(tmp_path: Path) -> None:
    good = write_run(tmp_path, run(1e5, 1e7, name="good"))
    out = str(tmp_path / "out")
    with pytest.raises(DataError, match=r"run 'x'.*training.json does not exist"):
        scaling_law(ScalingLawConfig({"x": str(tmp_path / "nothing")}, output_path=out))
    with pytest.raises(DataError, match=r"run 'good'.*has no 'eval/bpb'"):
        scaling_law(ScalingLawConfig({"good": good}, metric="eval/bpb", output_path=out))
    early = [{"step": 4, "eval/loss": 3.0}, {"step": 9, "train/loss": 2.0}]
    whole = Path(good, "metrics.jsonl").read_text()
    Path(good, "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in early))
    with pytest.raises(DataError, match=r"run 'good': the last 'eval/loss' .* is of step 4, .* until step 9"):
        scaling_law(ScalingLawConfig({"good": good}, output_path=out))
    Path(good, "metrics.jsonl").write_text(whole)
    with pytest.raises(DataError, match="good cannot be held out and fitted to"):
        scaling_law(ScalingLawConfig({"good": good}, {"good": good}, output_path=out))
    with pytest.raises(DataError, match="the runs 'good' and 'new' are the same training"):
        scaling_law(ScalingLawConfig({"good": good}, {"new": good}, output_path=out))
    Path(good, "training.json").write_text(json.dumps({"steps": 1, "parameters": 5, "tokens": 3, "flops": None}))
    with pytest.raises(DataError, match=r"run 'good'.*None as its flops"):
        scaling_law(ScalingLawConfig({"good": good}, output_path=out))


@pytest.mark.parametrize(
    ("metric", "other", "message"),
    [
        ("eval/loss", {"tokenizer_sha256": "b"}, "have different tokenizers, so that their 'eval/loss'"),
        ("eval/bpb", {"tokenizer_sha256": "b", "news": "the same in other tokens"}, None),
        ("eval/bpb", {"news": "b"}, "have different held-out texts"),
        ("eval/loss", {"news": "b"}, "have different held-out texts"),
        ("eval/loss", {"books": "b"}, "have different held-out texts"),
        ("eval/news/loss", {"books": "b"}, None),
        ("eval/news/loss", {"news": "b"}, "have different held-out texts"),
    ],
)
def test_losses_of_other_tokens_or_texts_make_no_law(
    metric: str, other: dict[str, str | None], message: str | None, tmp_path: Path
) -> None:
    paths = {one.name: write_run(tmp_path / "runs", one) for one in grid(3)}
    for number, path in enumerate(paths.values()):
        metrics = Path(path, "metrics.jsonl")
        metrics.write_text(metrics.read_text().replace("eval/loss", metric))
        texts = {"tokenizer_sha256": "a", "news": "a", "web": None} | (other if number == 7 else {})
        tokenizer = texts.pop("tokenizer_sha256")
        components = {name: {"sha256": {"validation": text} if text else {}} for name, text in texts.items()}
        facts = json.loads(Path(path, "training.json").read_text())
        facts["data"] = {"tokenizer_sha256": tokenizer, "components": components}
        Path(path, "training.json").write_text(json.dumps(facts))
    config = ScalingLawConfig(paths, metric=metric, resamples=100, output_path=str(tmp_path / "out"))
    if message is None:
        scaling_law(config)
    else:
        with pytest.raises(DataError, match=message):
            scaling_law(config)
