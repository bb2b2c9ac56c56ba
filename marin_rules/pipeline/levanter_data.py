"""What Levanter trains from: its data config for the output of `tokenize` or of `mixture`.

Caches are only read (`auto_build_caches=False`): a missing cache is an error, not something to build during training.
Imported in the environment of a training step; it needs Levanter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, read_json
from marin_rules.pipeline.core.tokenizer_files import local_tokenizer

if TYPE_CHECKING:
    from levanter.data.text.datasets import DatasetComponent, LmDataConfig

_WRITTEN_OUT = "{% for message in messages %}{% generation %}{{ message['content'] }}{% endgeneration %}{% endfor %}"
"""Levanter reads caches with masks as chats, and requires a template even though it is no longer used."""


def levanter_data_config(path: str, **settings: Any) -> LmDataConfig:
    """The data config for the output of `tokenize` or `mixture` at `path`.

    `settings` are further fields of Levanter's `LmDataConfig`, such as `shuffle`.
    """
    from levanter.data.text.datasets import LmDataConfig

    mixture = read_json(join(path, "mixture.json"))
    if mixture is None:
        mixture = _of_one(path)
    components = {
        name: levanter_component(one["path"], tags=one.get("tags")) for name, one in mixture["components"].items()
    }
    stages = [(stage["start_step"], stage["weights"]) for stage in mixture["stages"]]
    weights = dict.fromkeys(components, 0.0)
    train_weights = [(start, {**weights, **given}) for start, given in stages]
    epoching = mixture.get("simulated_epoching") or {}
    first = next(iter(mixture["components"].values()))["path"]
    return LmDataConfig(
        **{
            "tokenizer": join(first, "tokenizer"),
            "components": components,
            "train_weights": train_weights[0][1] if len(train_weights) == 1 else train_weights,
            "cache_dir": None,
            "auto_build_caches": False,
            "mixture_block_size": mixture.get("block_size", 2048),
            "target_budget": epoching.get("target_tokens"),
            "experiment_budget": epoching.get("experiment_tokens"),
            **settings,
        }
    )


def levanter_component(path: str, tags: list[str] | None = None) -> DatasetComponent:
    """A component of Levanter's data config, for one output of `tokenize`."""
    from levanter.data.text.datasets import DatasetComponent
    from levanter.data.text.formats import ChatLmDatasetFormat, TextLmDatasetFormat

    tokens = read_tokens(path)
    _check_tokenizer(path, tokens)
    if tokens["format"] == "text":
        format: Any = TextLmDatasetFormat()
    elif tokens["format"] == "chat":
        format = ChatLmDatasetFormat(chat_template=tokens["format_settings"]["chat_template"])
    else:
        format = ChatLmDatasetFormat(chat_template=_WRITTEN_OUT)
    # Levanter expects both splits below a cache; a flat one is training data alone.
    only_train = list(tokens["splits"]) == ["train"]
    return DatasetComponent(
        cache_dir=join(path, "train") if only_train else path, flat_cache=only_train, format=format, tags=tags
    )


def read_tokens(path: str) -> dict[str, Any]:
    """`tokens.json` of an output of `tokenize`."""
    tokens = read_json(join(path, "tokens.json"))
    if not isinstance(tokens, dict) or "splits" not in tokens:
        raise DataError(f"{path} has no tokens.json: it is not an output of tokenize, or that step has not finished")
    return tokens


def _check_tokenizer(path: str, tokens: dict[str, Any]) -> None:
    with local_tokenizer(join(path, "tokenizer")) as folder:
        if folder.sha256 != tokens["tokenizer"]["sha256"]:
            raise DataError(
                f"{path} was tokenized with another tokenizer ({tokens['tokenizer']['sha256'][:12]}) than that of its"
                f" folder `tokenizer` ({folder.sha256[:12]}), which somebody has changed. Tokenize again"
            )


def _of_one(path: str) -> dict[str, Any]:
    weight = 1.0 if "train" in read_tokens(path)["splits"] else 0.0
    return {"components": {"data": {"path": path}}, "stages": [{"start_step": 0, "weights": {"data": weight}}]}
