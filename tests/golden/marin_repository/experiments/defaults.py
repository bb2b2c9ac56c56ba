"""What the experiments of this repository have in common."""

import json
import os
from dataclasses import dataclass

from fray.types import ResourceConfig
from marin.execution.executor import ExecutorStep, InputName, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url


@dataclass(frozen=True)
class TokenizeConfig:
    input_path: str | InputName
    vocabulary: int
    output_path: str


def tokenize(config: TokenizeConfig) -> None:
    with open_url(os.path.join(config.input_path, "pages.json"), "r") as file:
        pages = json.load(file)
    tokens = [[len(word) % config.vocabulary for word in page.split()] for page in pages]
    with open_url(os.path.join(config.output_path, "tokens.json"), "w") as file:
        json.dump(tokens, file)


@dataclass(frozen=True)
class TrainConfig:
    tokens: str | InputName
    learning_rate: float
    output_path: str


@dataclass
class TrainResult:
    learning_rate: float
    loss: float


@remote(resources=ResourceConfig.with_cpu(cpu=1, ram="256m"))
def train(config: TrainConfig) -> TrainResult:
    with open_url(os.path.join(config.tokens, "tokens.json"), "r") as file:
        tokens = json.load(file)
    weight = 0.0
    for page in tokens:
        for token in page:
            weight += config.learning_rate * (token - weight)
    return TrainResult(config.learning_rate, abs(weight))


def default_tokenize(name: str, pages: ExecutorStep, vocabulary: int = 7) -> ExecutorStep:
    return ExecutorStep(
        name=f"tokenized/{name}",
        fn=tokenize,
        config=TokenizeConfig(pages, versioned(vocabulary), this_output_path()),
    )


def default_train(name: str, tokens: ExecutorStep, learning_rate: float) -> ExecutorStep:
    return ExecutorStep(
        name=f"checkpoints/{name}",
        fn=train,
        config=TrainConfig(tokens, versioned(learning_rate), this_output_path()),
    )
