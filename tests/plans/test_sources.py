"""The modules that are packed into a plan: which ones, and that a step imports them as they were."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.errors import PlanError
from marin_rules.plans.sources import collect_sources
from support.lab import REPOSITORY, Lab


@pytest.fixture
def packed(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`packed(experiment, files)`: what is packed with an experiment file that nothing was imported of."""

    def collect(experiment: str, files: dict[str, str]) -> dict[str, Any]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        (tmp_path / "experiment.py").write_text(textwrap.dedent(experiment))
        found = collect_sources([str(tmp_path)], (), str(tmp_path / "experiment.py"))
        return dict(json.loads(found)) if found else {}

    return collect


def test_what_a_function_imports_when_it_runs_is_packed_and_nothing_else(
    packed: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    files = {
        "lib_one/__init__.py": "",
        "lib_one/inner.py": "from . import beside\ndef f():\n    from lib_two import g\n",
        "lib_one/beside.py": "X = 1\n",
        "lib_one/not_named.py": "Y = 1\n",
        "lib_two.py": "import lib_two  # itself\nimport numpy_that_is_not_there\n",
        "folder_only/deep.py": "Z = 1\n",
        "unused.py": "",
        ".env": "TOKEN=secret\n",
        "notes.txt": "lib_one",
    }
    found = packed("def step(config):\n    from lib_one.inner import f\n    import folder_only.deep\n", files)
    assert sorted(found) == [
        *("folder_only", "folder_only.deep"),
        *("lib_one", "lib_one.beside", "lib_one.inner", "lib_two"),
    ]
    assert found["lib_one.inner"]["text"] == files["lib_one/inner.py"]
    assert found["folder_only"]["locations"] == [str(tmp_path / "folder_only")]


def test_a_folder_of_data_does_not_hide_the_package_of_its_name(packed: Callable[..., dict[str, Any]]) -> None:
    assert packed("def step(config):\n    import datasets_x\n", {"datasets_x/data.json": "{}"}) == {}


def test_a_file_with_the_name_of_a_module_of_pythons_is_not_taken_for_it(
    packed: Callable[..., dict[str, Any]],
) -> None:
    assert packed("def step(config):\n    import wave\n", {"wave.py": "X = 1\n"}) == {}


def test_a_huge_module_is_refused_by_name_and_not_read(packed: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    with (tmp_path / "huge_module.py").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(PlanError, match=r"huge_module\.py has 2048 MB"):
        packed("def step(config):\n    import huge_module\n", {})


def test_a_module_is_where_its_file_is_whatever_leads_there(
    packed: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name} elsewhere"
    elsewhere.mkdir()
    (elsewhere / "outside.py").write_text("X = 1\n")
    (tmp_path / "inside_by_name.py").symlink_to(elsewhere / "outside.py")
    (tmp_path / "package_by_name").symlink_to(elsewhere)
    files = {"inner/__init__.py": "", "inner/one.py": "X = 1\n"}
    (tmp_path / "second_name").symlink_to("inner")
    found = packed("def step(config):\n    import inside_by_name, package_by_name.outside, second_name.one\n", files)
    assert sorted(found) == ["second_name", "second_name.one"]


PIPELINE_STEP = """
    import os
    from dataclasses import dataclass

    WORD = "planned"

    @dataclass(frozen=True)
    class Config:
        path: str
        after: object = None

    def wait(config):
        with open("waits", "w"):
            pass
        open("gate").read()

    def write(config):
        from marin_rules.pipeline.late import LATE
        with open(os.path.join(config.path, "words"), "w") as file:
            file.write(f"{WORD} {LATE} {config.after[0]}")
    """

PIPELINE_EXPERIMENT = """
    import own
    from marin_rules import ExecutorStep, executor_main, this_output_path
    from marin_rules.pipeline.words import Config, wait, write

    if __name__ == "__main__":
        first = ExecutorStep("first", wait, Config(this_output_path()))
        second = ExecutorStep("second", write, Config(this_output_path(), after=(own.WORD, first)))
        third = ExecutorStep("third", own.write, Config(this_output_path(), after=("-", first)))
        executor_main(steps=[second, third])
    """

OWN = """
    import os

    WORD = "mine"

    def write(config):
        import own_late
        with open(os.path.join(config.path, "words"), "w") as file:
            file.write(f"{WORD} {own_late.LATE}")
    """


def test_an_edit_of_the_pipeline_or_of_a_users_module_changes_nothing_that_was_planned(
    lab: Lab, tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    ignored = shutil.ignore_patterns("__pycache__", "_workflow", "tests", ".*", "docs", "benchmarks")
    for name in ("marin_rules", "rules", "profiles", "config", "envs"):
        shutil.copytree(REPOSITORY / name, installed / name, ignore=ignored)
    shutil.copy(REPOSITORY / "Snakefile", installed)
    edited = [
        lab.experiment(PIPELINE_STEP, "installed/marin_rules/pipeline/words.py"),
        lab.experiment('LATE = "as it was"\n', "installed/marin_rules/pipeline/late.py"),
        lab.experiment(OWN, "own.py"),
        lab.experiment('LATE = "as it was"\n', "own_late.py"),
    ]
    file = lab.experiment(PIPELINE_EXPERIMENT)
    run = lab.start(
        [sys.executable, file, "--prefix", lab.prefix],
        env={"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    run.wait_for(lambda: (tmp_path / "waits").exists(), "a step runs")
    for path in edited:
        path.write_text(path.read_text().replace("planned", "edited").replace("was", "is now").replace("mine", "other"))
    lab.open_gate()
    result = run.wait()

    assert result.code == 0, result.output
    assert (lab.folder_of("second") / "words").read_text() == "planned as it was mine"
    assert (lab.folder_of("third") / "words").read_text() == "mine as it was"


@pytest.mark.processes
def test_the_pipeline_is_a_room_of_its_own() -> None:
    """Steps' functions, whose imports are theirs: planning needs none of them."""
    code = "import marin_rules.worker.worker, sys; print('marin_rules.pipeline' in sys.modules)"
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
