"""Several models in one table: the same items, differences, and how sure they are.

    <output>/comparison.json         scores of each model, and its difference from the baseline, with intervals
    <output>/report/compare.csv      the same as a table
    <output>/report/compare.svg      the differences from the baseline, with their intervals

Models are compared item by item (a paired bootstrap): which documents or questions happen to be in a set matters for
the scores, but hardly for their differences. That needs the same items. A set or task whose items differ between two
evaluations is refused by name, and so is one that a model was not evaluated on, or with other questions or context.
Other possible causes of a difference are reported: different settings, or a tokenizer that loses text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, read_json, write_json
from marin_rules.pipeline.evaluation.samples import read_samples
from marin_rules.pipeline.evaluation.statistics import (
    CONFIDENCE,
    RESAMPLES,
    Estimate,
    ItemSums,
    agreeing,
    agreeing_difference,
    estimate_of_items,
    refuse_few_resamples,
    sums_of_items,
)
from marin_rules.pipeline.evaluation.tables import new_panels, plain, signed, signed_chance, write_csv, write_svg

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

COLUMNS = (
    *("kind", "name", "metric", "model", "score", "standard_error", "chance", "chance_standard_error"),
    *("difference", "difference_standard_error", "difference_low", "difference_high", "is_clear", "items"),
)


@dataclass(frozen=True)
class CompareConfig:
    """A comparison of evaluations."""

    evaluations: Mapping[str, str | InputName]
    """Outputs of evaluate steps, by the name of the model."""

    baseline: str | None = None
    """The model that the others are compared with. None: the first."""

    resamples: int = RESAMPLES
    seed: int = 0
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class _Contest:
    """What is compared: a metric of a set or a task, item by item."""

    kind: str
    name: str
    metric: str
    columns: Array
    """For each item and model a numerator and a denominator: bits and bytes, or a value and one."""

    chances: Mapping[str, tuple[float | None, float | None]]
    """By model, because chance may depend on the tokenizer: its score and the standard error of that."""

    higher_is_better: bool | None

    def values(self, models: list[str]) -> dict[str, Array]:
        """Of each item, by model; none of what is no mean of items."""
        if self.kind != "task":
            return {}
        return {model: self.columns[:, 2 * place] for place, model in enumerate(models)}


def compare(config: CompareConfig) -> dict[str, Any]:
    """Write the table; returns what `comparison.json` says."""
    models = list(config.evaluations)
    baseline = baseline_of(config)
    paths = {name: str(path) for name, path in config.evaluations.items()}
    results = {name: _results(name, path) for name, path in paths.items()}
    _refuse_other_context(results)
    contests = [*_held_out(results, paths), *_tasks(results, paths)]
    if not contests:
        raise DataError(f"there is nothing to compare: {', '.join(models)} have no sets or tasks in common")
    rows = [row for contest in contests for row in _judged(contest, models, baseline, config)]
    rows += _macro(contests, results, models, baseline, config)
    notes = [*_other_settings(results), *_lost_text(results)]
    answer = {"baseline": baseline, "confidence": CONFIDENCE, "models": paths, "notes": notes, "rows": rows}
    write_csv(join(config.output_path, "report", "compare.csv"), COLUMNS, rows)
    write_svg(join(config.output_path, "report", "compare.svg"), _figure(rows, models, baseline))
    write_json(join(config.output_path, "comparison.json"), answer)
    for row in rows:
        _print(row, baseline)
    for note in notes:
        print(f"note: {note}", flush=True)
    return answer


def baseline_of(config: CompareConfig) -> str:
    """The model that the others are compared with; refuses what is not a comparison."""
    models = list(config.evaluations)
    if len(models) < 2:
        raise DataError("a comparison needs at least two evaluations")
    refuse_few_resamples(config.resamples)
    baseline = models[0] if config.baseline is None else config.baseline
    if baseline not in models:
        raise DataError(f"the baseline {baseline!r} is none of the models {', '.join(models)}")
    return baseline


def _results(name: str, path: str) -> dict[str, Any]:
    found = read_json(join(path, "results.json"))
    if not isinstance(found, dict) or "held_out" not in found:
        raise DataError(f"model {name!r}: {join(path, 'results.json')} does not exist. Has its evaluation succeeded?")
    return found


def _refuse_other_context(results: Mapping[str, Any]) -> None:
    """More context makes the bits of any model fewer."""
    overlaps = {model: one.get("settings", {}).get("overlap", 0) for model, one in results.items() if one["held_out"]}
    if len(set(overlaps.values())) > 1:
        told = ", ".join(f"{model}: {overlap}" for model, overlap in overlaps.items())
        raise DataError(
            f"the windows of long documents were given different context (overlap {told}), so that bits per byte cannot"
            " be compared. Evaluate with the same"
        )


def _other_settings(results: Mapping[str, Any]) -> list[str]:
    """Differences that may be intended: a model of conversations has a template, another has none."""
    notes = []
    for name in ("chat_template", "begin_with_first_token", "precision", "max_length"):
        values = {model: one.get("settings", {}).get(name) for model, one in results.items()}
        if len(set(values.values())) > 1:
            told = ", ".join(f"{model}: {value}" for model, value in values.items())
            notes.append(f"the evaluations have different settings, which may be behind differences: {name} ({told})")
    return notes


def _lost_text(results: Mapping[str, Any]) -> list[str]:
    """Bits per byte of different tokenizers can be compared as long as none of them loses text."""
    if len({one.get("model", {}).get("tokenizer_sha256") for one in results.values()}) == 1:
        return []
    return [
        f"{name}: the tokenizer of {model} loses something of {facts['changed_documents']} of {facts['documents']}"
        " documents: its bits per byte are too low to be compared with those of another tokenizer"
        for model, one in results.items()
        for name, facts in one["held_out"].items()
        if facts.get("changed_documents")
    ]


def _held_out(results: Mapping[str, Any], paths: Mapping[str, str]) -> list[_Contest]:
    import numpy

    contests = []
    for name in _common(results, "held_out"):
        columns = []
        for model, path in paths.items():
            rows = read_samples(f"model {model!r}", path, f"held_out-{name}")
            _check_whole(model, name, len(rows), results[model]["held_out"][name]["documents"])
            columns += [[-row["log_probability"] / math.log(2) for row in rows], [row["bytes"] for row in rows]]
        chances = {model: _chance_of_bits(one["held_out"][name]) for model, one in results.items()}
        contests.append(_Contest("held out", name, "bits_per_byte", numpy.array(columns).T, chances, False))
    return contests


def _tasks(results: Mapping[str, Any], paths: Mapping[str, str]) -> list[_Contest]:
    """Metrics that are means of items. Others, such as a perplexity of all words, cannot be paired."""
    import numpy

    contests = []
    first = next(iter(results.values()))
    for name in _common(results, "tasks"):
        metrics = first["tasks"][name]["metrics"]
        paired = [metric for metric in metrics if all(_is_mean(one, name, metric) for one in results.values())]
        if not paired:  # The scores of groups have no samples of their own.
            continue
        samples = {model: read_samples(f"model {model!r}", path, name) for model, path in paths.items()}
        for metric in paired:
            columns: list[list[float]] = []
            for model, rows in samples.items():
                values = _values(rows, metric)
                _check_whole(model, name, len(values), results[model]["tasks"][name]["items"])
                columns += [values, [1.0] * len(values)]
            of_models = {model: one["tasks"][name]["metrics"][metric] for model, one in results.items()}
            chances = {model: (one["chance"], one.get("chance_standard_error")) for model, one in of_models.items()}
            better = metrics[metric].get("higher_is_better")
            contests.append(_Contest("task", name, metric, numpy.array(columns).T, chances, better))
        _refuse_other_questions(name, results, samples)
    return contests


def _chance_of_bits(found: Mapping[str, Any]) -> tuple[float | None, float | None]:
    chance = found.get("chance", {}).get("bits_per_byte", {})
    return chance.get("value"), chance.get("standard_error")


def _refuse_other_questions(
    name: str, results: Mapping[str, Any], samples: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """The same items may be worded differently. (Conversation templates differ, and are part of their models.)"""
    asked = {
        model: [(row.get("prompts"), row.get("continuations")) for row in rows]
        for model, rows in samples.items()
        if not results[model].get("settings", {}).get("chat_template")
    }
    first = next(iter(asked), "")
    if others := [model for model in asked if asked[model] != asked[first]]:
        raise DataError(
            f"{name!r}: {first!r} and {others[0]!r} were asked different questions (prompts or answers), so that their"
            " scores cannot be compared. Evaluate both with the same task"
        )


def _is_mean(result: Mapping[str, Any], name: str, metric: str) -> bool:
    return bool(result["tasks"][name]["metrics"].get(metric, {}).get("is_mean_of_items"))


def _values(rows: list[dict[str, Any]], metric: str) -> list[float]:
    name, _, filter = metric.partition(",")
    return [float(row["metrics"][name]) for row in rows if row["filter"] == (filter or "none")]


def _common(results: Mapping[str, Any], kind: str) -> list[str]:
    """The names that all models have, with the same items, or a refusal."""
    first, *others = results
    for other in others:
        missing = set(results[first][kind]) ^ set(results[other][kind])
        if missing:
            raise DataError(
                f"{', '.join(sorted(missing))}: only one of {first!r} and {other!r} was evaluated on it. Evaluate both"
            )
        for name, facts in results[first][kind].items():
            for key, what in (
                ("items_sha256", "items"),
                ("num_fewshot", "numbers of examples in prompts"),
                ("version", "versions of the task"),
            ):
                if facts.get(key) != results[other][kind][name].get(key):
                    raise DataError(
                        f"{name!r}: {first!r} and {other!r} were evaluated on different {what}, so that their scores"
                        " cannot be compared. Evaluate both on the same"
                    )
    return list(results[first][kind])


def _check_whole(model: str, name: str, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(f"model {model!r}: {name!r} has samples of {found} items, not {expected}: evaluate it again")


def _judged(contest: _Contest, models: list[str], baseline: str, config: CompareConfig) -> list[dict[str, Any]]:
    items = sums_of_items(contest.columns, contest.name, config.resamples, config.seed)
    return [_row(contest, model, baseline, models, [items]) for model in models]


def _macro(
    contests: list[_Contest],
    results: Mapping[str, dict[str, Any]],
    models: list[str],
    baseline: str,
    config: CompareConfig,
) -> list[dict[str, Any]]:
    """The mean of the held-out sets, each drawn separately."""
    sets = [contest for contest in contests if contest.kind == "held out"]
    if len(sets) < 2:
        return []
    items = [sums_of_items(one.columns, one.name, config.resamples, config.seed) for one in sets]
    chances = {model: _chance_of_bits(one.get("averages", {}).get("macro", {})) for model, one in results.items()}
    average = _Contest("average", "macro", "bits_per_byte", sets[0].columns, chances, False)
    return [_row(average, model, baseline, models, items) for model in models]


def _row(contest: _Contest, model: str, baseline: str, models: list[str], sets: Sequence[ItemSums]) -> dict[str, Any]:
    def score_of(one: str, sums: Array) -> Array:
        """The mean over the sets."""
        place = 2 * models.index(one)
        return (sums[..., place] / sums[..., place + 1]).mean(axis=-1)

    values = contest.values(models)
    score = estimate_of_items(lambda sums: score_of(model, sums), sets)
    if values and (error := agreeing(values[model])) is not None:
        score = replace(score, standard_error=error)
    row: dict[str, Any] = {
        "kind": contest.kind,
        "name": contest.name,
        "metric": contest.metric,
        "model": model,
        "score": score.value,
        "standard_error": score.standard_error,
        "chance": contest.chances[model][0],
        "chance_standard_error": contest.chances[model][1],
        "higher_is_better": contest.higher_is_better,
        "items": sum(one.items for one in sets),
    }
    if model == baseline:
        return row
    difference = agreeing_difference(values[model], values[baseline]) if values else None
    if difference is None:
        difference = estimate_of_items(lambda sums: score_of(model, sums) - score_of(baseline, sums), sets)
    return {
        **row,
        "difference": difference.value,
        "difference_standard_error": difference.standard_error,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "is_clear": _is_clear(difference),
    }


def _is_clear(difference: Estimate) -> bool | None:
    """Whether the interval excludes zero; None if unknown."""
    if difference.low is None or difference.high is None:
        return None
    return difference.low > 0 or difference.high < 0


def _print(row: Mapping[str, Any], baseline: str) -> None:
    text = f"{row['name']} {row['metric']}: {row['model']} {signed(row['score'], row['standard_error'])}"
    text += f" ({signed_chance(row['chance'], row['chance_standard_error'])})"
    if "difference" in row:
        text += f", {row['difference']:+.4f} ± {_error(row['difference_standard_error'])} from {baseline}"
        text += {True: _direction(row), False: " (may be chance)", None: " (one item: unknown)"}[row["is_clear"]]
    print(text, flush=True)


def _error(value: float | None) -> str:
    return "?" if value is None else f"{value:.4f}"


def _direction(row: Mapping[str, Any]) -> str:
    """What a clear difference means; nothing if it is unknown which way is better."""
    if row["higher_is_better"] is None:
        return ""
    return ": better" if (row["difference"] > 0) == row["higher_is_better"] else ": worse"


def _figure(rows: list[dict[str, Any]], models: list[str], baseline: str) -> Any:
    """A panel for each metric: others have other scales, and may be better where these are worse."""
    others = [model for model in models if model != baseline]
    panels: dict[tuple[str, bool | None], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        panels.setdefault((row["metric"], row["higher_is_better"]), {}).setdefault(row["name"], []).append(row)
    figure, many_axes = new_panels(7.0, [0.9 + 0.3 * len(names) * len(others) for names in panels.values()])
    for axes, ((metric, higher_is_better), names) in zip(many_axes, panels.items(), strict=True):
        axes.axvline(0.0, color="grey", linewidth=0.8)
        for place, of_name in enumerate(names.values()):
            for row in of_name:
                if row["model"] != baseline and row["difference_low"] is not None:
                    _draw(axes, row, place, others.index(row["model"]), len(others))
        axes.set_yticks(range(len(names)), [plain(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        better = {True: " (higher is better)", False: " (lower is better)", None: ""}[higher_is_better]
        axes.set_xlabel(plain(metric) + better)
    for number, model in enumerate(others):
        many_axes[0].scatter([], [], color=f"C{number % 10}", label=plain(model))
    figure.suptitle(f'Differences from "{plain(baseline)}", with {CONFIDENCE:.0%} intervals', fontsize="medium")
    # Below, where long names have room: beside the panels they would cover the title.
    figure.legend(loc="outside lower center", fontsize="small")
    return figure


def _draw(axes: Any, row: Mapping[str, Any], place: int, number: int, others: int) -> None:
    """The difference of one model: all models of a set or task stand closely around its name."""
    # Both ends of equal items are the difference itself, except for the last digit.
    down, up = row["difference"] - row["difference_low"], row["difference_high"] - row["difference"]
    ends = [max(0.0, down)], [max(0.0, up)]
    height = place + 0.6 * ((number + 0.5) / others - 0.5)
    axes.errorbar([row["difference"]], [height], xerr=ends, fmt="o", color=f"C{number % 10}", capsize=3)
