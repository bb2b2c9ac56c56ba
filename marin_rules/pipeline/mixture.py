"""Token caches mixed for training: which ones, how much of each, and how that changes over training.

    <output>/mixture.json         components, weights by stage, and what each component contributes
    <output>/report/mixture.csv   the same as a table; mixture.svg as a figure, if there is something to weigh

Weights are relative; `mixture.json` has them with a sum of 1. A component of weight 0 in all stages serves validation
alone. All components have the same tokenizer: two steps that name different ones are refused when the experiment is
planned, others by the digests in `tokens.json` when the step runs.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marin_rules import (
    THIS_OUTPUT_PATH,
    ExecutorStep,
    InputName,
    VersionedValue,
    compute_output_path,
    output_path_of,
)
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, write_json
from marin_rules.pipeline.core.tokenizer_files import is_hub_name
from marin_rules.pipeline.evaluation.tables import plain
from marin_rules.pipeline.levanter_data import read_tokens
from marin_rules.pipeline.tokenize import TokenizeConfig

type Component = ExecutorStep[Any] | InputName | str
"""An output of `tokenize`: its step, a place in a step's output, or a path."""


@dataclass(frozen=True)
class MixtureStage:
    """Weights that hold from a step of training on."""

    start_step: int
    weights: Mapping[str, float]


@dataclass(frozen=True)
class SimulatedEpoching:
    """Repeat data as often as a longer run would: of each cache only `experiment_tokens / target_tokens` is used."""

    target_tokens: int
    experiment_tokens: int


@dataclass(frozen=True)
class MixtureConfig:
    """Components with their weights; made by `lm_mixture_data_config` and related functions, which check them."""

    components: Mapping[str, str | InputName]
    """Outputs of `tokenize`, by name."""

    stages: Sequence[MixtureStage]
    """The first one starts at step 0."""

    train_tokens: int | None = None
    """Tokens of the whole training, to say how many come from each component."""

    train_steps: int | None = None
    """Steps of the whole training; needed for that if there are several stages."""

    simulated_epoching: SimulatedEpoching | None = None
    block_size: int = 2048
    """Sequences that are divided by the weights, a whole number to each component. Levanter starts a stage at a
    multiple of it: `start_step` times the batch size has to be one."""

    output_path: str = THIS_OUTPUT_PATH


# --- making configs: pure, when an experiment is planned


def lm_mixture_data_config(
    components: Mapping[str, Component],
    weights: Mapping[str, float],
    *,
    missing_weights_are_validation: bool = False,
    train_tokens: int | None = None,
    simulated_epoching: SimulatedEpoching | None = None,
    block_size: int = 2048,
) -> MixtureConfig:
    """A mixture with the same weights throughout."""
    return lm_varying_mixture_data_config(
        components,
        [(0, weights)],
        missing_weights_are_validation=missing_weights_are_validation,
        train_tokens=train_tokens,
        simulated_epoching=simulated_epoching,
        block_size=block_size,
    )


def lm_varying_mixture_data_config(
    components: Mapping[str, Component],
    weights_list: Sequence[tuple[int, Mapping[str, float]]],
    *,
    missing_weights_are_validation: bool = False,
    train_tokens: int | None = None,
    train_steps: int | None = None,
    simulated_epoching: SimulatedEpoching | None = None,
    block_size: int = 2048,
) -> MixtureConfig:
    """A mixture whose weights change at given steps: `[(0, {...}), (1000, {...})]`."""
    named = {name for _, weights in weights_list for name in weights}
    unweighted = [name for name in components if name not in named]
    if unweighted and not missing_weights_are_validation:
        raise DataError(
            f"the component {unweighted[0]!r} has no weight: give it one (0 for validation alone), or say"
            " missing_weights_are_validation=True"
        )
    _refuse_tokenizers(components)
    config = MixtureConfig(
        components={
            name: output_path_of(one) if isinstance(one, ExecutorStep) else one for name, one in components.items()
        },
        stages=[
            MixtureStage(
                start, {name: weights.get(name, 0.0) for name in [*components, *sorted(set(weights) - set(components))]}
            )
            for start, weights in weights_list
        ],
        train_tokens=train_tokens,
        train_steps=train_steps,
        simulated_epoching=simulated_epoching,
        block_size=block_size,
    )
    check_mixture(config)
    trained = {name for stage in config.stages for name, weight in stage.weights.items() if weight > 0}
    _refuse_steps(components, trained)
    return config


def with_validation_sets(config: MixtureConfig, sets: Mapping[str, Component]) -> MixtureConfig:
    """The same mixture, with components of weight 0 to evaluate on."""
    if twice := sorted(sets.keys() & config.components.keys()):
        raise DataError(f"no validation set can be called {twice[0]!r}: a component of the mixture is")
    weightless = dict.fromkeys(sets, 0.0)
    paths = {name: output_path_of(one) if isinstance(one, ExecutorStep) else one for name, one in sets.items()}
    _refuse_tokenizers({**config.components, **sets})
    _refuse_steps(sets, trained=())
    return replace(
        config,
        components={**config.components, **paths},
        stages=[replace(stage, weights={**stage.weights, **weightless}) for stage in config.stages],
    )


def interpolate_mixture_configs(configs: Sequence[MixtureConfig], weights: Sequence[float]) -> MixtureConfig:
    """One mixture of several: `weights` says how much of each. Everything but the weights is as in the first."""
    if len(configs) != len(weights) or not configs:
        raise DataError(
            f"{len(configs)} mixtures cannot be interpolated with {len(weights)} weights: give one for each"
        )
    _check_weights({f"mixture {number}": weight for number, weight in enumerate(weights)}, "the interpolation")
    components: dict[str, str | InputName] = {}
    for config in configs:
        for name, place in config.components.items():
            if components.setdefault(name, place) != place:
                raise DataError(f"two of the mixtures have different components named {name!r}: rename one")
    starts = sorted({stage.start_step for config in configs for stage in config.stages})
    stages = []
    for start in starts:
        mixed = dict.fromkeys(components, 0.0)
        for config, weight in zip(configs, weights, strict=True):
            held = [stage for stage in config.stages if stage.start_step <= start][-1]
            for name, share in _shares(held.weights).items():
                mixed[name] += share * weight / math.fsum(weights)
        stages.append(MixtureStage(start, mixed))
    first = configs[0]
    mixture = MixtureConfig(
        components=components,
        stages=stages,
        train_tokens=first.train_tokens,
        train_steps=first.train_steps,
        simulated_epoching=first.simulated_epoching,
        block_size=first.block_size,
    )
    check_mixture(mixture)
    return mixture


def check_mixture(config: MixtureConfig) -> None:
    """Refuse, by name, what makes no sense for any training."""
    if not config.components:
        raise DataError("a mixture needs components")
    starts = [stage.start_step for stage in config.stages]
    for start in starts:
        _check_whole("start_step", start, least=0)
    _check_whole("block_size", config.block_size, most=(1 << 16) - 1)
    for name in ("train_tokens", "train_steps"):
        if (number := getattr(config, name)) is not None:
            _check_whole(name, number)
    if not starts or starts[0] != 0 or starts != sorted(set(starts)):
        raise DataError(f"the stages of a mixture start at step 0 and at higher steps from there, not at {starts}")
    for stage in config.stages:
        if unknown := [name for name in stage.weights if name not in config.components]:
            known = ", ".join(config.components)
            raise DataError(f"there is a weight for {unknown[0]!r}, but no such component: there are {known}")
        _check_weights(stage.weights, f"the stage from step {stage.start_step}")
    epoching = config.simulated_epoching
    if epoching is not None and not 0 < epoching.experiment_tokens <= epoching.target_tokens:
        raise DataError(
            f"simulated epoching needs 0 < experiment_tokens <= target_tokens, not {epoching.experiment_tokens} and"
            f" {epoching.target_tokens}"
        )
    if config.train_tokens is not None and len(starts) > 1 and config.train_steps is None:
        raise DataError("train_tokens of a mixture with several stages need train_steps too")
    if config.train_steps is not None and config.train_steps <= starts[-1]:
        raise DataError(f"the last stage starts at step {starts[-1]}, after the {config.train_steps} steps of training")
    for stage in config.stages:
        _refuse_unseen(stage, config.block_size)


def _check_whole(name: str, value: object, *, least: int = 1, most: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise DataError(f"{name} {value!r} of a mixture must be a whole number, {wanted}")


def _check_weights(weights: Mapping[str, float], where: str) -> None:
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise DataError(f"the weight of {name!r} in {where} is {weight!r}: use a number from 0 on")
    if not math.fsum(weights.values()) > 0:
        raise DataError(f"all weights in {where} are 0: there is nothing to train on")


def _refuse_unseen(stage: MixtureStage, block_size: int) -> None:
    """None of a block's sequences goes to a component that would get less than one."""
    given = _sequences(stage.weights, block_size)
    for name, share in _shares(stage.weights).items():
        if share > 0 and not given[name]:
            raise DataError(
                f"{name!r} has {share:.2g} of all weights in the stage from step {stage.start_step}, less than one of"
                f" the {block_size} sequences of a block: it would never be seen. Give it more weight, 0 for validation"
                " alone, or a larger block_size"
            )


def _refuse_tokenizers(components: Mapping[str, Component]) -> None:
    """Steps whose configs name different steps, or different tokenizers of the hub. Two folders can hold the same one:
    only the step itself can tell."""
    known: dict[type, tuple[str, str | InputName]] = {}
    for name, component in components.items():
        step = component.step if isinstance(component, InputName) else component
        if isinstance(step, ExecutorStep) and isinstance(step.config, TokenizeConfig):
            tokenizer: Any = step.config.tokenizer
            tokenizer = tokenizer.value if isinstance(tokenizer, VersionedValue) else tokenizer
            if not isinstance(tokenizer, InputName) and not is_hub_name(tokenizer):
                continue
            first, other = known.setdefault(type(tokenizer), (name, tokenizer))
            if other != tokenizer and _version(other) != _version(tokenizer):
                told = f"{_told(other)} and {_told(tokenizer)}"
                raise DataError(f"{first!r} and {name!r} have different tokenizers ({told}): tokenize both with one")


def _version(tokenizer: str | InputName) -> str:
    """The same for two steps of the same version, which are one: each module of an experiment may have made its own."""
    if not isinstance(tokenizer, InputName):
        return tokenizer
    waited_for = InputName(tokenizer.step, tokenizer.name)  # Whether one waits for it says nothing of what it is.
    return compute_output_path("tokenizer", {"tokenizer": waited_for}, prefix="")


def _refuse_steps(components: Mapping[str, Component], trained: Collection[str]) -> None:
    """Steps that make something else than what their components are for."""
    for name, component in components.items():
        step = component.step if isinstance(component, InputName) else component
        if not isinstance(step, ExecutorStep):
            continue
        config = step.config
        if isinstance(config, MixtureConfig):
            raise DataError(
                f"{name!r} is a mixture itself, made by the step {step.name}: give its components, or put two mixtures"
                " together with interpolate_mixture_configs"
            )
        if not isinstance(config, TokenizeConfig):
            continue
        if name in trained and not config.train_paths:
            raise DataError(
                f"{name!r} is to be trained on, but the step {step.name} makes tokens for validation alone: tokenize"
                " without is_validation, or give it the weight 0"
            )
        if name not in trained and not config.validation_paths:
            raise DataError(
                f"{name!r} is for validation alone, but the step {step.name} makes tokens to train on: tokenize with"
                " is_validation=True, give it a weight, or leave it out"
            )


def _told(tokenizer: str | InputName) -> str:
    if not isinstance(tokenizer, InputName):
        return tokenizer
    step = tokenizer.step
    folder = "" if step is None else compute_output_path(step.name, step.config, prefix="")
    return join(folder, tokenizer.name) if folder and tokenizer.name else folder or str(tokenizer.name)


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = math.fsum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _sequences(weights: Mapping[str, float], block_size: int) -> dict[str, int]:
    """Of a block, as Levanter divides it: whole numbers, rounded down, and what is left to the largest."""
    shares = _shares(weights)
    total = sum(shares.values())  # It divides once more: a last digit can decide where a number is rounded to.
    given = {name: int(share / total * block_size) for name, share in shares.items()}
    given[max(given, key=lambda name: given[name])] += block_size - sum(given.values())
    return given


# --- the step


def mixture(config: MixtureConfig) -> dict[str, Any]:
    """Write `mixture.json` from the outputs of `tokenize` as they are."""
    check_mixture(config)
    tokens = {name: read_tokens(str(path)) for name, path in config.components.items()}
    _refuse_digests(config, tokens)
    trained = {name for stage in config.stages for name, weight in stage.weights.items() if weight > 0}
    components: dict[str, Any] = {}
    for name, path in config.components.items():
        splits = tokens[name]["splits"]
        needed = "train" if name in trained else "validation"
        if needed not in splits:
            why = "has a weight" if name in trained else "has no weight, so that it is for validation alone"
            raise DataError(
                f"the component {name!r} ({path}) {why}, but no {needed} tokens: it has {', '.join(splits)}"
            )
        components[name] = {
            "path": str(path),
            "format": tokens[name]["format"],
            "tokens": splits.get("train", {}).get("tokens", 0),
            "documents": splits.get("train", {}).get("documents", 0),
            "validation_tokens": splits.get("validation", {}).get("tokens", 0),
        }
    stages = [
        {
            "start_step": stage.start_step,
            "weights": {name: _shares(stage.weights).get(name, 0.0) for name in components},
        }
        for stage in config.stages
    ]
    first = next(iter(components))
    epoching = config.simulated_epoching
    result = {
        "tokenizer": {**tokens[first]["tokenizer"], "path": join(components[first]["path"], "tokenizer")},
        "components": components,
        "stages": stages,
        "validation": [name for name in components if "validation" in tokens[name]["splits"]],
        "block_size": config.block_size,
        "simulated_epoching": None
        if epoching is None
        else {"target_tokens": epoching.target_tokens, "experiment_tokens": epoching.experiment_tokens},
        "training": {"tokens": config.train_tokens, "steps": config.train_steps},
        "contributions": contributions(config, {name: one["tokens"] for name, one in components.items()}),
    }
    _write_table(join(config.output_path, "report", "mixture.csv"), result)
    if len(trained) > 1 or len(stages) > 1:
        _draw(join(config.output_path, "report", "mixture.svg"), result)
    write_json(join(config.output_path, "mixture.json"), result)
    return result


def contributions(config: MixtureConfig, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What each component gives to the whole training: its share of what Levanter reads, which deals in whole sequences
    of a block, and with `train_tokens` its tokens and epochs."""
    starts = [stage.start_step for stage in config.stages]
    ends = [*starts[1:], config.train_steps or starts[-1] + 1]
    # Without the number of steps it is unknown how long the last of several stages lasts: shares are then those of that
    # stage.
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    if config.train_steps is None:
        lengths = [*[0] * (len(starts) - 1), 1]
    epoching = config.simulated_epoching
    used = 1.0 if epoching is None else epoching.experiment_tokens / epoching.target_tokens
    block = config.block_size
    found: dict[str, Any] = {}
    given = [_sequences({name: stage.weights.get(name, 0.0) for name in sizes}, block) for stage in config.stages]
    for name, size in sizes.items():
        sequences = sum(of_stage[name] * length for of_stage, length in zip(given, lengths, strict=True))
        share = sequences / (block * sum(lengths))
        found[name] = {"share": share}
        if config.train_tokens is not None:
            expected = share * config.train_tokens
            found[name] |= {"tokens": round(expected), "epochs": expected / (size * used) if size else 0.0}
    return found


def _refuse_digests(config: MixtureConfig, tokens: Mapping[str, dict[str, Any]]) -> None:
    digests = {name: one["tokenizer"]["sha256"] for name, one in tokens.items()}
    first = next(iter(digests))
    for name, digest in digests.items():
        if digest != digests[first]:
            raise DataError(
                f"{first!r} ({config.components[first]}) and {name!r} ({config.components[name]}) were made with"
                f" different tokenizers ({digests[first][:12]} and {digest[:12]}): tokenize both with the same one"
            )


def _write_table(path: str, result: Mapping[str, Any]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    weights = [f"weight_from_step_{stage['start_step']}" for stage in result["stages"]]
    table.writerow(
        ("component", "format", "tokens", "validation_tokens", *weights, "share", "expected_tokens", "epochs")
    )
    for name, component in result["components"].items():
        given = result["contributions"][name]
        table.writerow(
            (
                name,
                component["format"],
                component["tokens"],
                component["validation_tokens"],
                *(f"{stage['weights'][name]:.6g}" for stage in result["stages"]),
                f"{given['share']:.6g}",
                given.get("tokens", ""),
                f"{given['epochs']:.4g}" if "epochs" in given else "",
            )
        )
    with into_place(path) as file:
        file.write(text.getvalue().encode())


def _draw(path: str, result: Mapping[str, Any]) -> None:
    """A bar a stage, divided by weight."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "mixture", "svg.fonttype": "none"}):
        stages = result["stages"]
        shown = [name for name in result["components"] if any(stage["weights"][name] for stage in stages)]
        # The list of names is the higher part of most figures, and the usual ten colours would come again.
        figure = Figure(figsize=(7, max(1.2 + 0.5 * len(stages), 0.4 + 0.18 * len(shown))), layout="constrained")
        many = matplotlib.colormaps["turbo"]
        colours = [f"C{n}" if len(shown) <= 10 else many(n / (len(shown) - 1)) for n in range(len(shown))]
        axes = figure.add_subplot()
        labels = [f"from step {stage['start_step']}" for stage in stages]
        left = [0.0] * len(stages)
        for name, colour in zip(shown, colours, strict=True):
            widths = [stage["weights"][name] for stage in stages]
            axes.barh(labels, widths, left=left, label=plain(name), color=colour, edgecolor="white", linewidth=0.5)
            left = [place + width for place, width in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of training tokens")
        figure.legend(fontsize="small", loc="outside right center")
        with into_place(path) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
