"""Experiment files: what they hand over without running it, and what is said of those that fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from marin_rules import Executor, ExecutorStep, ExperimentError, StepSpec
from marin_rules.plans.experiment_file import current_experiment_file, load_experiment

REPOSITORY = Path(__file__).resolve().parents[2]


def experiment(folder: Path, text: str, name: str = "experiment.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.fixture(autouse=True)
def _own_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_an_experiment_file_hands_over_its_steps(tmp_path: Path) -> None:
    path = experiment(
        tmp_path,
        "import sys\n"
        "from marin_rules import *\n"
        'assert __name__ == "__main__" and sys.argv == [__file__] and sys.modules["__main__"].__file__ == __file__\n'
        'a = ExecutorStep("a", print, None)\n'
        'if __name__ == "__main__":\n'
        '    executor_main(steps=[a], description="First.")\n'
        '    executor_main(ExecutorMainConfig(run_only=["x"], prefix="/q"), steps=[a / "x"])\n',
    )
    main, arguments = sys.modules["__main__"], sys.argv
    loaded = load_experiment(path)
    assert loaded.path == path
    first, second = loaded.steps
    assert isinstance(first, ExecutorStep)
    assert first.name == "a"
    assert second == first / "x"
    assert loaded.description == "First."
    assert loaded.defaults["run_only"] == ["x"]
    assert loaded.defaults["prefix"] == "/q"
    assert sys.modules["__main__"] is main
    assert sys.argv is arguments
    assert current_experiment_file() is None
    assert not (tmp_path / "out").exists()


def test_the_tutorial_hands_over_the_steps_that_everybody_knows() -> None:
    loaded = load_experiment(str(REPOSITORY / "experiments" / "tutorials" / "hello_world.py"))
    executor = Executor("/p", "/p/experiments")
    for item in loaded.steps:
        assert isinstance(item, ExecutorStep)
        executor.compute_version(item, is_pseudo_dep=False)
    assert list(executor.output_paths.values()) == [
        "/p/hello_world/data-d50b06",
        "/p/hello_world/stats-b5daf3",
    ]


@pytest.mark.parametrize(
    "call",
    [
        "executor_main(steps=[a], description='Why?')",
        "executor_main([a], 'Why?')",
        "executor_main([a], description='Why?')",
        "executor_main(ExecutorMainConfig(), [a], 'Why?')",
        "executor_main(config=ExecutorMainConfig(), steps=[a], description='Why?')",
    ],
)
def test_steps_may_come_first(call: str, tmp_path: Path) -> None:
    path = experiment(tmp_path, f"from marin_rules import *\na = ExecutorStep('a', print, None)\n{call}\n")
    found = load_experiment(path)
    assert [getattr(step, "name", "") for step in found.steps] == ["a"]
    assert found.description == "Why?"


def test_an_experiment_without_steps_is_none_that_fails(tmp_path: Path) -> None:
    path = experiment(tmp_path, "from marin_rules import *\nexecutor_main([])\n")
    assert load_experiment(path).steps == []


def test_a_step_runner_hands_its_steps_over(tmp_path: Path) -> None:
    path = experiment(
        tmp_path,
        "from marin_rules import *\n"
        "StepRunner().run(iter([StepSpec('a', fn=print)]), force_run_failed=False)\n"
        "print('goes on')\n",
    )
    found = load_experiment(path, prefix="/there")
    (handed,) = found.steps
    assert isinstance(handed, ExecutorStep)
    assert handed.override_output_path == f"/there/{StepSpec('a').name_with_hash}"
    assert found.defaults["force_run_failed"] is False
    assert found.line_after == 3
    assert os.environ.get("MARIN_PREFIX") != "/there"


def test_a_file_that_ends_itself_well_is_fine(tmp_path: Path) -> None:
    path = experiment(
        tmp_path,
        'import sys\nfrom marin_rules import *\nexecutor_main(steps=[ExecutorStep("a", print, 1)])\nsys.exit(0)\n',
    )
    assert len(load_experiment(path).steps) == 1


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("helo_world.py", r"Did you mean .*/hello_world\.py\?"),
        ("zzz", r"Files there: hello_world\.py, other\.py\."),
        ("nowhere/x.py", r"the folder .*/nowhere does not exist"),
    ],
)
def test_an_unknown_file(tmp_path: Path, asked: str, hint: str) -> None:
    for name in ("hello_world.py", "other.py", "notes.txt"):
        experiment(tmp_path, "", name)
    with pytest.raises(ExperimentError, match=f"there is no experiment file .*{asked}.*{hint}"):
        load_experiment(str(tmp_path / asked))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="there is no experiment file"):
        load_experiment(str(tmp_path))


FAILURES = [
    pytest.param("x = 1\n\nraise KeyError('lost')\n", r"\(line 3\): KeyError: 'lost'", id="raises"),
    pytest.param("def f():\n    return 1 / 0\n\n\nf()\n", r"\(line 2\): ZeroDivisionError", id="in a function"),
    pytest.param("import json\n\njson.loads('{')\n", r"\(line 3\): JSONDecodeError", id="in a library"),
    pytest.param("import nowhere_to_be_found\n", r"\(line 1\): ModuleNotFoundError", id="import"),
    pytest.param("import fray.types\n", r"\(line 1\): .*written for Marin: add compat=true", id="Marin's import"),
    pytest.param("x = 1\ndef f(:\n    pass\n", r"is not valid Python: line 2: ", id="syntax"),
    pytest.param("if x:\nprint()\n", r"is not valid Python: line 2: ", id="indentation"),
    pytest.param("", r"has no steps: it must call executor_main", id="empty"),
    pytest.param("import sys\nsys.exit(3)\n", r"ended itself with exit code 3", id="exit"),
    pytest.param("raise SystemExit('enough')\n", r"ended itself with exit code enough", id="exit text"),
]


@pytest.mark.parametrize(("text", "message"), FAILURES)
def test_a_file_that_fails_is_told_of_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = experiment(tmp_path, text)
    main, arguments = sys.modules["__main__"], sys.argv
    with pytest.raises(ExperimentError, match=f"the experiment {path} .*{message}"):
        load_experiment(path)
    assert current_experiment_file() is None
    assert sys.modules["__main__"] is main
    assert sys.argv is arguments


def test_the_whole_stack_is_the_cause(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        load_experiment(experiment(tmp_path, "raise KeyError('lost')\n"))
    assert isinstance(caught.value.__cause__, KeyError)


def test_executor_main_in_a_loaded_file_starts_nothing_even_from_a_thread(tmp_path: Path) -> None:
    path = experiment(
        tmp_path,
        "import threading\nfrom marin_rules import *\n"
        'start = lambda: executor_main(steps=[ExecutorStep("a", print, None)])\n'
        "thread = threading.Thread(target=start)\nthread.start()\nthread.join()\n",
    )
    assert [getattr(item, "name", None) for item in load_experiment(path).steps] == ["a"]
