"""lm-eval over a loaded model: log-likelihoods, rolling log-likelihoods and generated text.

lm-eval decides what is asked and how answers are judged; this module answers, and records with each score its standard
error and the score of guessing. Levanter has an adapter of its own, which can neither generate text outside of its own
trainer nor score whole texts, and gives the first token of a text without context no score.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluation.held_out import items_digest
from marin_rules.pipeline.evaluation.loaded_model import Generation, LoadedModel
from marin_rules.pipeline.evaluation.packing import Scored, windows
from marin_rules.pipeline.evaluation.statistics import agreeing
from marin_rules.pipeline.evaluation.task_chance import chance_of, error_of
from marin_rules.pipeline.evaluation.task_files import LoadedTask


def run_task(
    loaded: LoadedTask,
    model: LoadedModel,
    *,
    most_items: int | None,
    resamples: int,
    seed: int,
    chat_template: bool,
    begin_with_first_token: bool,
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Results by name of the task (a group has several), and the samples behind them."""
    from lm_eval import evaluator

    for task in loaded.contents["tasks"].values():
        task.set_fewshot_seed(seed=seed)
    adapter = _adapter(model, seed, begin_with_first_token)
    answer = evaluator.evaluate(
        adapter,
        loaded.contents,
        limit=most_items,
        bootstrap_iters=resamples,
        log_samples=True,
        apply_chat_template=chat_template,
        fewshot_as_multiturn=chat_template,
    )
    results, samples = {}, {}
    label_of = loaded.label_of
    for name, task in loaded.contents["tasks"].items():
        label = label_of(name)
        items = [_item(one) for one in answer["samples"][name]]
        blind = {id: -tokens * math.log(model.vocabulary) for id, tokens in adapter.tokens[name].items()}
        samples[label] = items
        results[label] = {
            "items": len({item["id"] for item in items}),
            "items_sha256": items_digest(sorted({(str(item["id"]), item["sha256"]) for item in items})),
            "num_fewshot": answer["n-shot"].get(name, 0),
            "version": answer["versions"].get(name),
            "truncated_prompts": len(adapter.truncated[name]),
            "metrics": _metrics(answer["results"][name], answer["samples"][name], items, task, blind, resamples, seed),
        }
    scores_of_tasks = {label_of(name): results[label_of(name)] for name in loaded.contents["tasks"]}
    for name in loaded.contents.get("groups", {}):
        members = [label_of(one) for one in _tasks_of(name, answer["group_subtasks"])]
        parts = {label: scores_of_tasks[label] for label in members if label in scores_of_tasks}
        is_known = label_of(name) in results or not parts
        weights = _weights(loaded.contents["groups"][name])
        if not is_known and (of_group := _group(answer["results"].get(name, {}), parts, weights)):
            results[label_of(name)] = of_group
    return results, samples


def _tasks_of(group: str, members: Mapping[str, Sequence[str]]) -> set[str]:
    """The tasks of a group, and of the groups within it, each once."""
    found: set[str] = set()
    for one in members.get(group, ()):
        found |= _tasks_of(one, members) if one in members else {one}
    return found


def _weights(group: Any) -> dict[str, bool]:
    """Of each metric of a group, whether a task counts as often as it has items, or as often as any other."""
    return {one.metric: one.weight_by_size for one in group.aggregate_metric_list or ()}


def _group(
    scores: dict[str, Any], results: dict[str, Any], weighted_by_size: Mapping[str, bool]
) -> dict[str, Any] | None:
    """The score of a group that lm-eval aggregates, as for MMLU; its items are those of its tasks."""
    metrics = {}
    for key, score in scores.items():
        metric, _, filter = key.partition(",")
        if metric.endswith("_stderr") or metric == "sample_len" or not isinstance(score, int | float):
            continue
        name = metric if filter == "none" else key
        is_weighted = weighted_by_size.get(metric, True)
        parts = [
            (one["metrics"][name], one["items"] if is_weighted else 1)
            for one in results.values()
            if name in one["metrics"]
        ]
        metrics[name] = {
            "score": float(score),
            "standard_error": _error_of_parts(parts),
            **_chance_of_parts(parts),
            "higher_is_better": parts[0][0].get("higher_is_better") if parts else None,
            "is_mean_of_items": False,
        }
    if not metrics:
        return None
    members = sorted((name, one["items_sha256"]) for name, one in results.items())
    return {
        "items": sum(one["items"] for one in results.values()),
        "items_sha256": items_digest(members),
        "num_fewshot": next(iter(results.values()))["num_fewshot"],
        "version": None,
        "truncated_prompts": sum(one["truncated_prompts"] for one in results.values()),
        "metrics": metrics,
    }


def _error_of_parts(parts: list[tuple[dict[str, Any], int]]) -> float | None:
    """Of their mean with these weights. (lm-eval's would be 0 for tasks whose items all agree.)"""
    if not parts or any(part["standard_error"] is None for part, _ in parts):
        return None
    return math.hypot(*(part["standard_error"] * weight for part, weight in parts)) / sum(weight for _, weight in parts)


def _chance_of_parts(parts: list[tuple[dict[str, Any], int]]) -> dict[str, float | None]:
    """With the weights of the score; unknown if it is of one part."""
    if not parts or any(part["chance"] is None for part, _ in parts):
        return {"chance": None, "chance_standard_error": None}
    total = sum(weight for _, weight in parts)
    chance = sum(part["chance"] * weight for part, weight in parts) / total
    error = math.hypot(*(part["chance_standard_error"] * weight for part, weight in parts)) / total
    return {"chance": chance, "chance_standard_error": error}


def _metrics(
    results: dict[str, Any],
    samples: list[dict[str, Any]],
    items: list[dict[str, Any]],
    task: Any,
    blind: Mapping[Any, float],
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """By name, as `acc` or `exact_match,strict` if the task has filters. `blind` is the log-probability of each item
    for a model that gives all tokens the same."""
    import numpy

    found = {}
    filters = {sample["filter"] for sample in samples}
    better = task.higher_is_better() or {}
    for key, score in results.items():
        metric, _, filter = key.partition(",")
        if filter not in filters or metric.endswith("_stderr") or not isinstance(score, int | float):
            continue
        error = results.get(f"{metric}_stderr,{filter}")
        of_filter = [sample for sample in samples if sample["filter"] == filter]
        of_items = {item["id"]: item["metrics"].get(metric) for item in items if item["filter"] == filter}
        values = list(of_items.values())
        aggregate = task.aggregation().get(metric)
        if not isinstance(error, int | float):
            error = error_of(metric, values, aggregate, resamples, seed)
        is_mean = _is_mean(values, float(score))
        if is_mean and (of_agreeing := agreeing(numpy.array(values, numpy.float64))) is not None:
            error = of_agreeing
        chance = chance_of(metric, of_items, of_filter, task, blind, resamples, seed)
        found[metric if filter == "none" else key] = {
            "score": float(score),
            "standard_error": None if error is None or len(values) < 2 else float(error),
            "chance": chance.score,
            "chance_standard_error": chance.standard_error,
            "higher_is_better": better.get(metric),
            "is_mean_of_items": is_mean,
        }
    return found


def _is_mean(values: Sequence[Any], score: float) -> bool:
    """Whether the score can be taken apart into items, as comparisons do."""
    if not values or not all(isinstance(value, int | float) for value in values):
        return False
    return bool(abs(sum(values) / len(values) - score) <= 1e-9 * max(1.0, abs(score)))


def _item(sample: dict[str, Any]) -> dict[str, Any]:
    values = {metric: sample[metric] for metric in sample["metrics"]}
    return {
        "id": sample["doc_id"],
        "sha256": f"{sample['doc_hash']}{sample['target_hash']}",
        "filter": sample["filter"],
        "target": sample["target"],
        "prompts": [next(iter(arguments)) for arguments in sample["arguments"]],
        "continuations": [one for arguments in sample["arguments"] for one in list(arguments)[1:2]],
        "responses": sample["filtered_resps"],
        "metrics": values,
    }


def _no_answer(task: str, answer: str) -> DataError:
    return DataError(
        f"task {task!r} has an answer without tokens of its own ({answer!r}), which any model is sure of: fix its"
        " answers, or its target_delimiter"
    )


def _adapter(model: LoadedModel, seed: int, begin_with_first_token: bool) -> Any:
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text

    class Adapter(TemplateLM):  # type: ignore[misc]
        """What lm-eval asks a model."""

        def __init__(self) -> None:
            super().__init__()
            self.tokenizer = model.tokenizer
            self.truncated: dict[str, set[Any]] = defaultdict(set)
            """Items of each task whose prompts had to be cut."""

            self.tokens: dict[str, dict[Any, int]] = defaultdict(dict)
            """How many of each item's tokens were scored: of the last answer, if it has several."""

            self._asked: list[Any] = []

        @property
        def eot_token_id(self) -> int:
            return model.end_token

        @property
        def prefix_token_id(self) -> int:
            return model.first_token

        @property
        def tokenizer_name(self) -> str:
            return str(model.tokenizer.name_or_path)

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **others: Any) -> list[int]:
            tokens = model.encode(string)
            is_to_begin = begin_with_first_token and add_special_tokens is None
            # A template may have begun it already.
            return [model.first_token, *tokens] if is_to_begin and tokens[:1] != [model.first_token] else tokens

        def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
            if not model.tokenizer.chat_template:
                raise DataError("the model's tokenizer has no chat template: evaluate without chat_template")
            prompt: str = model.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
            return prompt

        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            self._asked = requests
            for asked in requests:
                prompt, answer = asked.args[:2]
                if not prompt and not model.encode(answer):  # lm-eval looks at its first token.
                    raise _no_answer(asked.task_name, answer)
            answers: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
            return answers

        def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
            """lm-eval takes spaces at the end of a context for the beginning of the answer: all of it may be."""
            tokens: tuple[list[int], list[int]] = super()._encode_pair(context, continuation)
            return tokens[0] or [model.first_token], tokens[1]

        def _loglikelihood_tokens(self, requests: Any, **others: Any) -> list[tuple[float, bool]]:
            sequences = []
            for asked, ((_, answer), context, continuation) in zip(self._asked, requests, strict=True):
                name = asked.task_name
                if not continuation:
                    raise _no_answer(name, answer)
                self.tokens[name][asked.doc_id] = len(continuation)
                if len(continuation) > model.longest:
                    raise DataError(
                        f"task {name!r} has an answer of {len(continuation)} tokens, but the model sees {model.longest}"
                        " at once: evaluate it with a longer max_length"
                    )
                room = model.longest + 1 - len(continuation)
                if len(context) > room:
                    self.truncated[name].add(asked.doc_id)
                sequences.append(Scored(tuple(context[-room:]), tuple(continuation)))
            # What is asked twice is computed once: in another row it would differ by a last digit, which would decide
            # between equal answers.
            asked_once = list(dict.fromkeys(sequences))
            answers = {
                sequence: (float(scores.log_probabilities.sum()), bool(scores.is_greedy.all()))
                for sequence, scores in zip(asked_once, model.score(asked_once), strict=True)
            }
            return [answers[sequence] for sequence in sequences]

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
            texts = [model.encode(request.args[0]) for request in requests]
            for request, tokens in zip(requests, texts, strict=True):
                self.tokens[request.task_name][request.doc_id] = len(tokens)
            pieces = [windows(tokens, model.first_token, model.longest) for tokens in texts]
            scores = iter(model.score([window for of_text in pieces for window in of_text]))
            return [float(sum(next(scores).log_probabilities.sum() for _ in of_text)) for of_text in pieces]

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            made: list[str] = [""] * len(requests)
            alike: dict[Generation, list[tuple[int, list[int], list[str]]]] = defaultdict(list)
            for number, request in enumerate(requests):
                prompt, settings = request.args
                settings = normalize_gen_kwargs(settings)
                # Half of what the model sees at once is left to the prompt, whatever the task would like to have.
                most = min(settings["max_gen_toks"], model.longest // 2)
                how = Generation(
                    most, float(settings.get("temperature") or 0.0), float(settings.get("top_p") or 1.0), seed
                )
                tokens = self.tok_encode(prompt) or [model.first_token]
                if len(tokens) > model.longest - most:
                    self.truncated[request.task_name].add(request.doc_id)
                alike[how].append((number, tokens[-(model.longest - most) :], settings["until"]))
            for how, asked in alike.items():
                answers = model.generate([prompt for _, prompt, _ in asked], how)
                for (number, _, until), tokens in zip(asked, answers, strict=True):
                    made[number] = self._ended(tokens, until)
            return made

        def _ended(self, tokens: list[int], until: list[str]) -> str:
            """As text without special tokens, up to where the task wants it to end: at one of those, perhaps."""
            special = model.tokenizer.all_special_tokens
            is_special = any(token in end for token in special for end in until)
            text = model.tokenizer.decode(
                tokens, skip_special_tokens=not is_special, clean_up_tokenization_spaces=False
            )
            text = str(postprocess_generated_text(text, until, None))
            for token in special if is_special else ():
                text = text.replace(token, "")
            return text

    return Adapter()
