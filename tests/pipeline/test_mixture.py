"""Mixtures: weights, stages and validation sets as they are planned, and what the step writes of them."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep, output_path_of, versioned
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.mixture import (
    MixtureConfig,
    SimulatedEpoching,
    interpolate_mixture_configs,
    lm_mixture_data_config,
    lm_varying_mixture_data_config,
    mixture,
    with_validation_sets,
)
from marin_rules.pipeline.tokenize import TokenizeConfig, tokenize
from marin_rules.pipeline.train_tokenizer import TrainTokenizerConfig, train_tokenizer


def written(folder: Path, sha256: str = "same", **splits: int) -> str:
    folder.mkdir()
    facts = {
        "format": "text",
        "splits": {split: {"tokens": tokens, "documents": 3} for split, tokens in splits.items()},
        "tokenizer": {"sha256": sha256, "vocabulary": 300},
    }
    (folder / "tokens.json").write_text(json.dumps(facts))
    return str(folder)


def made(config: MixtureConfig, folder: Path) -> Any:
    result = mixture(replace(config, output_path=str(folder)))
    assert json.loads((folder / "mixture.json").read_text()) == result
    return result


def test_weights_are_relative_and_every_token_is_accounted_for(tmp_path: Path) -> None:
    components = {
        "web": written(tmp_path / "web", train=6000, validation=10),
        "books": written(tmp_path / "books", train=1000),
        "news": written(tmp_path / "news", validation=500),
    }
    config = lm_mixture_data_config(
        components, {"web": 3, "books": 1}, missing_weights_are_validation=True, train_tokens=8000
    )
    found = made(config, tmp_path / "out")
    assert found["stages"] == [{"start_step": 0, "weights": {"web": 0.75, "books": 0.25, "news": 0.0}}]
    assert found["validation"] == ["web", "news"]
    assert found["contributions"] == {
        "web": {"share": 0.75, "tokens": 6000, "epochs": 1.0},
        "books": {"share": 0.25, "tokens": 2000, "epochs": 2.0},
        "news": {"share": 0.0, "tokens": 0, "epochs": 0.0},
    }
    table = list(csv.DictReader((tmp_path / "out" / "report" / "mixture.csv").open()))
    assert [(row["component"], row["share"], row["epochs"]) for row in table] == [
        ("web", "0.75", "1"),
        ("books", "0.25", "2"),
        ("news", "0", "0"),
    ]
    assert "<svg" in (tmp_path / "out" / "report" / "mixture.svg").read_text()


def test_stages_count_by_their_lengths(tmp_path: Path) -> None:
    components = {name: written(tmp_path / name, train=1000) for name in ("web", "books")}
    config = lm_varying_mixture_data_config(
        components,
        [(0, {"web": 1.0}), (75, {"web": 1.0, "books": 1.0})],
        train_tokens=4000,
        train_steps=100,
        simulated_epoching=SimulatedEpoching(target_tokens=2000, experiment_tokens=1000),
    )
    found = made(config, tmp_path / "out")
    assert [stage["weights"] for stage in found["stages"]] == [{"web": 1.0, "books": 0.0}, {"web": 0.5, "books": 0.5}]
    # A quarter of the steps has half books; and of each set only a half is there, as in a run of twice the length.
    assert found["contributions"]["books"] == {"share": 0.125, "tokens": 500, "epochs": 1.0}
    assert found["contributions"]["web"] == {"share": 0.875, "tokens": 3500, "epochs": 7.0}


def test_the_picture_has_room_and_a_colour_for_every_component(tmp_path: Path) -> None:
    names = [f"component-{number}" for number in range(24)]
    components = {name: written(tmp_path / name, train=1000) for name in names}
    made(lm_mixture_data_config(components, dict.fromkeys(names, 1.0)), tmp_path / "out")
    drawn = (tmp_path / "out" / "report" / "mixture.svg").read_text()
    (height,) = map(float, re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', drawn))
    places = {name: float(y) for y, name in re.findall(r'<text [^>]*? y="([-\d.]+)"[^>]*>([^<]+)</text>', drawn)}
    assert all(0 < places[name] < height for name in names)
    legend = drawn[drawn.index('<g id="legend_1">') :]
    assert len(set(re.findall(r"fill: (#[0-9a-f]{6})", legend)) - {"#ffffff"}) >= len(names)


def test_one_component_needs_no_picture(tmp_path: Path) -> None:
    made(lm_mixture_data_config({"web": written(tmp_path / "web", train=9)}, {"web": 1.0}), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "report").iterdir()] == ["mixture.csv"]


def test_components_may_have_any_name(tmp_path: Path) -> None:
    names = ["$a_{$", "_b"]
    places = {name: written(tmp_path / str(number), train=9) for number, name in enumerate(names)}
    made(lm_mixture_data_config(places, dict.fromkeys(names, 1.0)), tmp_path / "out")
    drawn = (tmp_path / "out" / "report" / "mixture.svg").read_text()
    assert [name for name in names if name in drawn] == names


def test_mixtures_are_interpolated_stage_by_stage() -> None:
    both = {"web": "w", "books": "b"}
    plain = lm_mixture_data_config(both, {"web": 1.0, "books": 3.0})
    varying = lm_varying_mixture_data_config(both, [(0, {"web": 1.0}), (50, {"books": 2.0})])
    found = interpolate_mixture_configs([plain, varying], [1.0, 3.0])
    assert [(stage.start_step, dict(stage.weights)) for stage in found.stages] == [
        (0, {"web": pytest.approx(0.25 * 0.25 + 0.75), "books": pytest.approx(0.75 * 0.25)}),
        (50, {"web": pytest.approx(0.25 * 0.25), "books": pytest.approx(0.75 * 0.25 + 0.75)}),
    ]


def test_validation_sets_are_added_with_no_weight() -> None:
    config = lm_varying_mixture_data_config({"web": "w", "books": "b"}, [(0, {"web": 1.0}), (50, {"books": 1.0})])
    found = with_validation_sets(config, {"news": "n"})
    assert found.components == {"web": "w", "books": "b", "news": "n"}
    assert [stage.weights["news"] for stage in found.stages] == [0.0, 0.0]
    with pytest.raises(DataError, match="no validation set can be called 'web'"):
        with_validation_sets(config, {"web": "n"})


def tokens(name: str, tokenizer: Any) -> ExecutorStep[Any]:
    return ExecutorStep(name, tokenize, TokenizeConfig(tokenizer, ["gs://text"]))


def test_two_tokenizers_are_refused_while_planning() -> None:
    one, other = tokens("one", versioned("a/b@1")), tokens("other", versioned("a/c@1"))
    with pytest.raises(DataError, match=r"'x' and 'y' have different tokenizers \(a/b@1 and a/c@1\)"):
        lm_mixture_data_config({"x": one, "y": other}, {"x": 1.0, "y": 1.0})
    config = lm_mixture_data_config({"x": one}, {"x": 1.0})
    with pytest.raises(DataError, match="'x' and 'held' have different tokenizers"):
        with_validation_sets(config, {"held": other})
    lm_mixture_data_config({"x": one, "y": tokens("third", versioned("a/b@1"))}, {"x": 1.0, "y": 1.0})


def test_steps_of_one_version_are_one_tokenizer() -> None:
    """However many times an experiment makes the step: as it runs once, its tokenizer is one."""

    def trained(vocabulary: int) -> ExecutorStep[Any]:
        config = TrainTokenizerConfig(output_path_of(documents()), versioned(vocabulary))
        return ExecutorStep("tokenizers/mine", train_tokenizer, config)

    def documents() -> ExecutorStep[Any]:
        return ExecutorStep("documents", tokenize, {"year": versioned(2025)})

    def mixed(*tokenizers: Any) -> None:
        components = {f"part-{index}": tokens(str(index), tokenizer) for index, tokenizer in enumerate(tokenizers)}
        lm_mixture_data_config(components, dict.fromkeys(components, 1.0))

    mixed(output_path_of(trained(1024)), output_path_of(trained(1024)), output_path_of(trained(1024)).nonblocking())
    mixed(output_path_of(trained(1024)) / "kept", output_path_of(trained(1024), "kept"))
    named = r"\(tokenizers/mine-[0-9a-f]{6} and tokenizers/mine-[0-9a-f]{6}\)"
    with pytest.raises(DataError, match=f"'part-0' and 'part-1' have different tokenizers {named}"):
        mixed(output_path_of(trained(1024)), output_path_of(trained(512)))
    with pytest.raises(DataError, match=r"\(tokenizers/mine-[0-9a-f]{6} and tokenizers/mine-[0-9a-f]{6}/kept\)"):
        mixed(output_path_of(trained(1024)), output_path_of(trained(1024), "kept"))


def test_steps_that_cannot_be_what_their_components_are_for_are_refused_while_planning() -> None:
    trains = tokens("trains", versioned("a/b@1"))
    held = ExecutorStep("held", tokenize, TokenizeConfig(versioned("a/b@1"), validation_paths=["gs://text"]))
    mixed = lm_mixture_data_config({"x": trains, "held": held}, {"x": 1.0, "held": 0.0})
    with pytest.raises(DataError, match="'x' is to be trained on, but the step held makes tokens for validation alone"):
        lm_mixture_data_config({"x": held}, {"x": 1.0})
    with pytest.raises(DataError, match="'y' is for validation alone, but the step trains makes tokens to train on"):
        lm_mixture_data_config({"x": trains, "y": trains}, {"x": 1.0, "y": 0.0})
    with pytest.raises(DataError, match="'y' is for validation alone"):
        with_validation_sets(mixed, {"y": trains})
    step = ExecutorStep("mixed", mixture, mixed)
    with pytest.raises(DataError, match="'x' is a mixture itself, made by the step mixed: give its components"):
        lm_mixture_data_config({"x": step}, {"x": 1.0})
    both = lm_varying_mixture_data_config({"x": trains, "y": trains}, [(0, {"x": 1.0}), (64, {"y": 1.0})])
    assert [stage.start_step for stage in both.stages] == [0, 64], "one weight above 0 is enough"


def test_two_tokenizers_are_refused_by_the_step(tmp_path: Path) -> None:
    paths = {name: written(tmp_path / name, sha256=name, train=9) for name in ("a", "b")}
    with pytest.raises(DataError, match=r"'a' .* and 'b' .* were made with different tokenizers"):
        made(lm_mixture_data_config(paths, {"a": 1.0, "b": 1.0}), tmp_path / "out")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"web": 0.0, "books": 0.0}, "all weights in the stage from step 0 are 0"),
        ({"web": -1.0, "books": 1.0}, "the weight of 'web' in the stage from step 0 is -1.0"),
        ({"web": float("nan"), "books": 1.0}, "the weight of 'web'"),
        ({"web": True, "books": 1.0}, "the weight of 'web'"),
        ({"web": 1.0}, "the component 'books' has no weight: give it one"),
        ({"web": 1.0, "books": 1.0, "boks": 1.0}, "there is a weight for 'boks', but no such component"),
    ],
    ids=str,
)
def test_bad_weights(weights: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        lm_mixture_data_config({"web": "w", "books": "b"}, weights)


@pytest.mark.parametrize(
    ("starts", "settings", "message"),
    [
        ((10,), {}, r"start at step 0 and at higher steps from there, not at \[10\]"),
        ((0, 50, 50), {}, "start at step 0"),
        ((0, 50), {"train_tokens": 9}, "need train_steps too"),
        ((0, 50), {"train_steps": 50}, "the last stage starts at step 50, after the 50 steps of training"),
        ((0,), {"block_size": 1 << 16}, "block_size 65536 of a mixture must be a whole number, 1 to 65535"),
        ((0,), {"block_size": 0}, "block_size 0 of a mixture must be a whole number, 1 to 65535"),
        ((0,), {"block_size": 64.0}, r"block_size 64\.0 of a mixture must be a whole number"),
        ((0, 2.5), {}, r"start_step 2\.5 of a mixture must be a whole number, at least 0"),
        ((0,), {"train_tokens": -1}, "train_tokens -1 of a mixture must be a whole number"),
        ((0,), {"simulated_epoching": SimulatedEpoching(1, 2)}, "simulated epoching needs"),
    ],
)
def test_bad_stages(starts: tuple[int, ...], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        lm_varying_mixture_data_config({"web": "w"}, [(start, {"web": 1.0}) for start in starts], **settings)


def test_a_component_that_would_never_be_seen_is_refused() -> None:
    both = {"web": "w", "books": "b"}
    lm_mixture_data_config(both, {"web": 2047.0, "books": 1.0})
    with pytest.raises(DataError, match=r"'books' has 0\.00033 of all weights .* would never be seen"):
        lm_mixture_data_config(both, {"web": 3000.0, "books": 1.0})
    lm_mixture_data_config(both, {"web": 3000.0, "books": 1.0}, block_size=4096)


@pytest.mark.parametrize(
    ("split", "weight", "message"),
    [
        ("validation", 1.0, "the component 'a' .* has a weight, but no train tokens"),
        ("train", 0.0, "the component 'a' .* has no weight, so that it is for validation alone"),
    ],
)
def test_components_without_what_they_are_for(tmp_path: Path, split: str, weight: float, message: str) -> None:
    paths = {"a": written(tmp_path / "a", **{split: 9}), "b": written(tmp_path / "b", train=9)}
    with pytest.raises(DataError, match=message):
        made(lm_mixture_data_config(paths, {"a": weight, "b": 1.0}), tmp_path / "out")
