"""Helpers and named sets of evaluations: what enters versions, and what is refused while planning."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep, InputName, ResourceConfig, compute_output_path
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluate import EvaluateConfig, check_evaluation
from marin_rules.pipeline.evaluation.task_files import EvalTask
from marin_rules.pipeline.training.config import Hyperparameters, TrainConfig

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of `experiments/`, as an experiment file does."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    return lambda name: importlib.import_module(f"experiments.{name}")


def path(step: ExecutorStep) -> str:
    return str(compute_output_path(step.name, step.config, prefix="p"))


MODEL, TEXT = ExecutorStep(name="model", fn=print, config=None), ExecutorStep(name="text", fn=print, config=None)

RUNS = {str(number): ExecutorStep(name=f"run-{number}", fn=print, config=None) for number in range(7)}

TUNED = TrainConfig("tokens", None, Hyperparameters(4, 8, 1e-3), initialize_from_hf=InputName(MODEL, name=None))

HELPERS = {
    "eval": lambda d, **changes: d.default_eval(MODEL, **{"evals": ["piqa"], "held_out": {"text": TEXT}, **changes}),
    "tasks": lambda d, **changes: d.default_tasks("x", TEXT, **changes),
    "compare": lambda d, **changes: d.default_compare("x", {"one": MODEL, "two": TEXT}, **changes),
    "law": lambda d, **changes: d.default_scaling_law("x", RUNS, **changes),
    "speedrun": lambda d, **changes: d.default_speedrun("x", MODEL, TEXT, **{"set_name": "news", **changes}),
}


@pytest.mark.parametrize(
    ("helper", "change"),
    [
        ("eval", {"evals": ["boolq"]}),
        ("eval", {"evals": [EvalTask("piqa", 3)]}),
        ("eval", {"held_out": {"other": TEXT}}),
        ("eval", {"model_step": 3}),
        ("eval", {"max_length": 64}),
        ("eval", {"max_documents": 3}),
        ("eval", {"max_items": 3}),
        ("eval", {"chat_template": True}),
        ("eval", {"precision": "bfloat16"}),
        ("tasks", {"items": 20}),
        ("tasks", {"seed": 2}),
        ("compare", {"baseline": "two"}),
        ("law", {"metric": "eval/bpb"}),
        ("law", {"isoflops": True}),
        ("law", {"budgets": [1e18]}),
        ("law", {"held_out": {"two": TEXT}}),
        ("speedrun", {"set_name": "other"}),
    ],
)
def test_what_changes_the_result_changes_the_path(helper: str, change: dict[str, Any], experiments: Any) -> None:
    make, defaults = HELPERS[helper], experiments("defaults")
    assert path(make(defaults, **change)) != path(make(defaults))


@pytest.mark.parametrize(
    "make",
    [
        lambda d, place: d.default_eval(place, ["piqa"], name="x"),
        lambda d, place: d.default_eval(MODEL, held_out={"news": place}),
        lambda d, place: d.default_eval(MODEL, [EvalTask("own", folder=place)]),
        lambda d, place: d.default_tasks("x", place),
        lambda d, place: d.default_compare("x", {"one": MODEL, "two": place}),
        lambda d, place: d.default_scaling_law("x", {**RUNS, "one": place}),
        lambda d, place: d.default_scaling_law("x", RUNS, held_out={"two": place}),
        lambda d, place: d.default_speedrun("x", place, TEXT, "news"),
        lambda d, place: d.default_speedrun("x", MODEL, place, "news"),
    ],
    ids=["model", "held-out", "task", "tasks", "compare", "law", "law held-out", "trained", "evaluated"],
)
def test_so_does_another_plain_path(make: Any, experiments: Any) -> None:
    """A path is no step, so nothing else in the version says which data it is."""
    defaults = experiments("defaults")
    assert path(make(defaults, "gs://bucket/one")) != path(make(defaults, "gs://bucket/other"))


def test_machines_and_networks_do_not(experiments: Any) -> None:
    from marin_rules import ResourceConfig

    make, defaults = HELPERS["eval"], experiments("defaults")
    assert path(make(defaults, resources=ResourceConfig.with_tpu("v4-8"), offline=True)) == path(make(defaults))


def test_a_record_has_nothing_for_the_report(experiments: Any) -> None:
    """What a step declares and does not write is reported as missing."""
    defaults = experiments("defaults")
    record = HELPERS["speedrun"](defaults)
    assert list(record.report) == []
    assert list(defaults.default_leaderboard("x", [record]).report) == ["report/*"]


def test_named_sets_are_there_without_lm_eval(experiments: Any) -> None:
    sets = experiments("evals.task_configs")
    assert "lm_eval" not in sys.modules
    defaults = experiments("defaults")
    for name, tasks in sets.TASK_SETS.items():
        assert sets.task_set(name) == tasks
        assert defaults.default_eval(MODEL, tasks).name == "evaluation/model"
    with pytest.raises(DataError, match="no set of tasks 'cor': did you mean core"):
        sets.task_set("cor")
    with pytest.raises(DataError, match="no task 'word_ordr' is made of text: did you mean word_order"):
        sets.made_tasks(TEXT, ["word_ordr"])


def test_tasks_made_of_text_depend_on_the_step_that_makes_them(experiments: Any) -> None:
    sets, defaults = experiments("evals.task_configs"), experiments("defaults")
    evaluations = [
        defaults.default_eval(MODEL, sets.made_tasks(defaults.default_tasks("tasks", TEXT, seed=seed)))
        for seed in (0, 1)
    ]
    assert path(evaluations[0]) != path(evaluations[1])


def test_an_unknown_task_of_a_folder_is_refused_while_planning(experiments: Any, tmp_path: Path) -> None:
    defaults = experiments("defaults")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "quiz.yaml").write_text("dataset_path: json\ntask: quiz_hard # a comment\n")
    folder = str(tmp_path)
    defaults.default_eval(MODEL, [EvalTask("quiz_hard", folder=folder)])
    (tmp_path / "tagged.yaml").write_text("task: other\ntag:\n  - quizzes\n  - hard\n")
    defaults.default_eval(MODEL, [EvalTask("quizzes", folder=folder)])
    with pytest.raises(DataError, match="no task 'quiz' in"):
        defaults.default_eval(MODEL, [EvalTask("quiz", folder=folder)])
    with pytest.raises(DataError, match=r"no task 'quiz_hart' in .*: did you mean quiz_hard"):
        defaults.default_eval(MODEL, [EvalTask("quiz_hart", folder=folder)])
    with pytest.raises(DataError, match="two tasks are called 'piqa': give one of them an alias"):
        defaults.default_eval(MODEL, ["piqa", EvalTask("piqa", 5)])


CODE = {
    "a function": ("task: quiz\nprocess_docs: !function utils.run\n", r"executes Python \(process_docs\)"),
    "one of Python's": ("task: quiz\ndoc_to_text: !function os.system\n", r"executes Python \(doc_to_text\)"),
    "one in a list": (
        "task: quiz\nfilter_list:\n  - filter: [{filter_fn: !function a.b}]\n",
        r"executes Python \(filter_fn\)",
    ),
    "a class": ("task: quiz\nclass: anything\n", r"executes Python \(class\)"),
    "a file elsewhere": ("task: quiz\ninclude: /tmp/other.yaml\n", "includes a file outside its folder"),
    "a file above": ("task: quiz\ninclude: [own.yaml, ../other.yaml]\n", "includes a file outside its folder"),
    "a file by an alias": ("task: quiz\nx: &place ../other.yaml\ninclude: *place\n", "outside its folder"),
    "pickled data": ("group: quiz\ntask: [{task: one, dataset_path: pandas}]\n", "reads data as 'pandas'"),
    "a metric": ("task: quiz\nmetric_list: [{metric: own, hf_evaluate: true}]\n", "asks the library `evaluate`"),
}


@pytest.mark.parametrize("what", CODE)
def test_a_folder_with_code_is_refused_while_planning(what: str, experiments: Any, tmp_path: Path) -> None:
    """Unless somebody says that whoever can write there is trusted."""
    text, reason = CODE[what]
    (tmp_path / "quiz.yaml").write_text(text)
    make = experiments("defaults").default_eval
    task = EvalTask("quiz", folder=str(tmp_path))
    with pytest.raises(DataError, match=reason):
        make(MODEL, [task])
    make(MODEL, [replace(task, allow_code=True)])
    (tmp_path / "quiz.yaml").write_text("task: quiz\ninclude: own/base.yaml\ndataset_path: json\n")
    assert path(make(MODEL, [task])) == path(make(MODEL, [replace(task, allow_code=True)]))


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing to evaluate": (lambda d: d.default_eval(MODEL), "nothing to evaluate"),
    "resources before tasks": (
        lambda d: d.default_eval(MODEL, ResourceConfig.with_cpu(), ["piqa"]),
        "evals is a ResourceConfig: after the model, default_eval takes a list of tasks",
    ),
    "a task by itself": (lambda d: d.default_eval(MODEL, "piqa"), "evals is a str: after the model"),
    "a set that names no file": (lambda d: d.default_eval(MODEL, held_out={"a/b": TEXT}), "'a/b' cannot name a set"),
    "no items": (lambda d: d.default_eval(MODEL, ["piqa"], max_items=0), "max_items is 0: use at least 1"),
    "examples": (lambda d: d.default_eval(MODEL, [EvalTask("piqa", -1)]), "num_fewshot is -1: use at least 0"),
    "precision": (lambda d: d.default_eval(MODEL, ["piqa"], precision="f32"), "'f32' is none of float32, bfloat16"),
    "one name twice": (
        lambda d: d.default_eval(MODEL, [EvalTask("piqa", alias="held_out-news")], held_out={"news": TEXT}),
        "'held_out-news' has the name of a held-out set's samples",
    ),
    "a comparison of none": (lambda d: d.default_compare("x", {}), "at least two evaluations"),
    "a comparison of one": (lambda d: d.default_compare("x", {"one": MODEL}), "at least two evaluations"),
    "a baseline": (
        lambda d: d.default_compare("x", {"one": MODEL, "two": TEXT}, baseline="tow"),
        "the baseline 'tow' is none of the models one, two",
    ),
    "few runs": (lambda d: d.default_scaling_law("x", {"one": MODEL}), "1 runs cannot determine the five parameters"),
    "few sizes": (
        lambda d: d.default_scaling_law("x", {"one": MODEL, "two": TEXT}, law=False, isoflops=True),
        "2 runs have no best size among them",
    ),
    "a run twice": (lambda d: d.default_scaling_law("x", RUNS, held_out={"3": MODEL}), "3 cannot be held out"),
    "a run by two names": (
        lambda d: d.default_scaling_law("x", {**RUNS, "again": RUNS["3"]}),
        "the runs '3' and 'again' are the same training",
    ),
    "no law": (lambda d: d.default_scaling_law("x", RUNS, law=False), "nothing to fit"),
    "a budget": (lambda d: d.default_scaling_law("x", RUNS, budgets=[0.0]), "a budget of 0.0 FLOPs buys nothing"),
    "a set of a speedrun": (
        lambda d: d.default_speedrun("x", MODEL, d.default_eval(MODEL, held_out={"news": TEXT}), "new"),
        "'x': evaluation/model has no held-out set 'new': did you mean news",
    ),
    "a part of a set": (
        lambda d: d.default_speedrun("x", MODEL, d.default_eval(MODEL, held_out={"a": TEXT}, max_documents=3), "a"),
        "saw a part of the set only .max_documents 3",
    ),
    "another's weights": (
        lambda d: d.default_speedrun("x", ExecutorStep(name="tuned", fn=print, config=TUNED), TEXT, "a"),
        "'x': its training began with the weights of model",
    ),
    "a record twice": (
        lambda d: d.default_leaderboard("x", [d.default_speedrun("y", place, TEXT, "a") for place in (MODEL, TEXT)]),
        "two records are called speedruns/y",
    ),
    "no records": (lambda d: d.default_leaderboard("x", []), "at least one record"),
    "tasks without items": (lambda d: d.default_tasks("x", TEXT, items=3), "3 items of a task say nothing"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_succeed_is_refused_while_planning(what: str, experiments: Any) -> None:
    """And not after the trainings that it is about."""
    make, message = REFUSED[what]
    with pytest.raises(DataError, match=message):
        make(experiments("defaults"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed is -1: use at least 0"),
        ({"batch_rows": 0}, "batch_rows is 0: use at least 1"),
        ({"overlap": -1}, "overlap is -1: use at least 0"),
        ({"overlap": 64, "max_length": 64}, "an overlap of 64 leaves nothing to score in windows of 64 tokens"),
        ({"resamples": 20}, "20 resamples say little"),
    ],
)
def test_what_would_fail_after_hours_is_refused_at_once(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_evaluation(EvaluateConfig("model", {"news": "text"}, **change))


def test_a_model_without_a_name_needs_one_for_its_evaluation(experiments: Any) -> None:
    defaults = experiments("defaults")
    with pytest.raises(ValueError, match="give the evaluation one"):
        defaults.default_eval("gs://models/mine", ["piqa"])
    assert defaults.default_eval("gs://models/mine", ["piqa"], name="evaluation/mine").name == "evaluation/mine"
    assert defaults.default_eval(MODEL / "hf/step-3", ["piqa"]).name == "evaluation/model/hf/step-3"


def test_sets_of_paloma_are_places_in_its_download(experiments: Any) -> None:
    paloma = experiments("paloma")
    sets = paloma.paloma_sets("gs://raw/paloma/")
    assert len(sets) == 16
    assert sets["paloma-4chan"] == "gs://raw/paloma/4chan_meta_sep/val"
    assert paloma.paloma_sets(TEXT, ["ptb"]) == {"paloma-ptb": TEXT / "ptb/val"}
    with pytest.raises(DataError, match="Paloma has no set 'ptv': did you mean ptb"):
        paloma.paloma_sets("gs://raw/paloma", ["ptv"])
