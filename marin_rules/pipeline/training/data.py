"""What a training step reads: one tokenize output, or several that a mixture weighs, with one tokenizer for all.

Only plain JSON is read here, `tokens.json` or `mixture.json`, for what can be checked and said without Levanter, which
gets the same from `levanter_data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from marin_rules.pipeline.core.files import join, read_json
from marin_rules.pipeline.core.tokenizer_files import TokenizerFolder
from marin_rules.pipeline.levanter_data import read_tokens
from marin_rules.pipeline.training.errors import TrainingError

type Format = Literal["text", "chat", "supervised"]


@dataclass(frozen=True)
class Component:
    """A tokenize output."""

    path: str
    format: Format
    tokens: Mapping[str, int]
    """By split, `train` and `validation`, as far as there are any."""

    tokenizer_sha256: str
    vocabulary: int
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Of the tokens, by split."""


@dataclass(frozen=True)
class Stage:
    """From a step on, each component's share."""

    start_step: int
    weights: Mapping[str, float]


@dataclass(frozen=True)
class TrainingData:
    """Components, how they are mixed, and which are held out to evaluate on."""

    components: Mapping[str, Component]
    stages: tuple[Stage, ...]
    validation: tuple[str, ...]
    tokenizer_path: str
    tokenizer_sha256: str
    vocabulary: int
    block_size: int = 1
    """Sequences that a mixture is made in."""

    part_used: float = 1.0
    """Of the sequences of each component, in simulated epoching."""

    def trained(self) -> list[str]:
        """The components that some stage trains on."""
        return [name for name in self.components if any(stage.weights.get(name, 0) > 0 for stage in self.stages)]

    @property
    def formats(self) -> set[str]:
        return {component.format for component in self.components.values()}


def read_data(path: str) -> TrainingData:
    """What is at the path of a tokenize or a mixture step."""
    if isinstance(mixture := read_json(join(path, "mixture.json")), dict):
        return _mixed(path, mixture)
    component = _component(path)
    validation = ("data",) if component.tokens.get("validation") else ()
    return _checked({"data": component}, (Stage(0, {"data": 1.0}),), validation)


def _mixed(path: str, mixture: Mapping[str, Any]) -> TrainingData:
    try:
        components = {name: _component(str(entry["path"])) for name, entry in mixture["components"].items()}
        stages = tuple(Stage(int(stage["start_step"]), dict(stage["weights"])) for stage in mixture["stages"])
        validation = tuple(mixture["validation"])
        epoching = mixture.get("simulated_epoching") or {"experiment_tokens": 1, "target_tokens": 1}
        part_used = epoching["experiment_tokens"] / epoching["target_tokens"]
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"{join(path, 'mixture.json')} is not a mixture: {error!r}") from error
    block_size = int(mixture.get("block_size", 1))
    return replace(_checked(components, stages, validation), block_size=block_size, part_used=part_used)


def _component(path: str) -> Component:
    tokens = read_tokens(path)
    splits = {split: int(counts["tokens"]) for split, counts in tokens["splits"].items()}
    digests = {split: str(counts["sha256"]) for split, counts in tokens["splits"].items() if "sha256" in counts}
    tokenizer = tokens["tokenizer"]
    return Component(path, tokens["format"], splits, tokenizer["sha256"], int(tokenizer["vocabulary"]), digests)


def _checked(
    components: Mapping[str, Component], stages: tuple[Stage, ...], validation: tuple[str, ...]
) -> TrainingData:
    first_name, first = next(iter(components.items()))
    for name, component in components.items():
        if component.tokenizer_sha256 != first.tokenizer_sha256:
            raise TrainingError(
                f"{name} ({component.path}) has other tokens than {first_name} ({first.path}): their tokenizers differ."
                " Tokenize both with the same one"
            )
    data = TrainingData(
        components, stages, validation, join(first.path, "tokenizer"), first.tokenizer_sha256, first.vocabulary
    )
    for name in data.trained():
        if not components[name].tokens.get("train"):
            raise TrainingError(f"{name} ({components[name].path}) has no tokens to train on, and a weight above 0")
    if not data.trained():
        raise TrainingError(f"nothing to train on: no weight of {', '.join(components)} is above 0")
    return data


def check_tokenizer(tokenizer: TokenizerFolder, data: TrainingData) -> None:
    """Refuse a tokenizer beside the tokens that is no longer the one they were made with."""
    if tokenizer.sha256 != data.tokenizer_sha256:
        raise TrainingError(
            f"the tokenizer in {data.tokenizer_path} is not the one that the tokens beside it were made with: it has"
            " changed since. Tokenize the data again"
        )


def check_enough(data: TrainingData, sequence_length: int) -> None:
    """Refuse splits that do not fill one sequence. (Conversations are packed, and may be shorter.)"""
    wanted = [(name, "train") for name in data.trained()] + [(name, "validation") for name in data.validation]
    for name, split in wanted:
        component = data.components[name]
        tokens = component.tokens.get(split, 0)
        least = sequence_length if component.format == "text" else 1
        if tokens < least:
            raise TrainingError(
                f"{component.path}/{split} has {tokens} tokens, which is less than a sequence of {sequence_length}:"
                " give more text, or a shorter train_seq_len"
            )
        # Levanter takes whole sequences, rounded down.
        if split == "train" and component.format == "text" and int(tokens // sequence_length * data.part_used) < 1:
            raise TrainingError(
                f"{component.path}/{split} has {tokens // sequence_length} sequences of {sequence_length}, and"
                f" simulated epoching uses {data.part_used:.3g} of them, which is not one: leave {name} out, or give"
                " more text"
            )
