"""Rewritten imports: the same names from `marin_rules`, and a note for everything that is left of Marin."""

from __future__ import annotations

import textwrap

import pytest

from marin_rules.compat.migration import migrate


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from marin.execution.executor import ExecutorStep", "from marin_rules import ExecutorStep"),
        ("from fray.types import ResourceConfig as RC", "from marin_rules import ResourceConfig as RC"),
        ("from fray.types import get_tpu_topology", "from marin_rules import tpu_topology as get_tpu_topology"),
        ("    from marin.execution import versioned  # noqa", "    from marin_rules import versioned  # noqa"),
        (
            "from marin.execution.executor import (\n    versioned,\n    executor_main,\n)",
            "from marin_rules import executor_main, versioned",
        ),
        (
            "from marin.execution.executor import versioned, get_fn_name",
            "from marin_rules import versioned\nfrom marin.execution.executor import get_fn_name",
        ),
        (
            'é = "é"; from fray.types import ResourceConfig, JobRequest; x = 1',
            'é = "é"; from marin_rules import ResourceConfig; from fray.types import JobRequest; x = 1',
        ),
    ],
)
def test_imports_are_rewritten_and_nothing_else(before: str, after: str) -> None:
    frame = "# über, \x0c and \u2028\nimport os\nif os:\n    pass\n{}\nprint('marin.execution.executor')\n"
    if before.startswith(" "):
        frame = "def f():\n{}\n    return 1\n"
    migrated = migrate(frame.format(before))
    assert migrated.source == frame.format(after)
    assert migrated.changed == 1


def test_imports_that_follow_each_other_become_one() -> None:
    migrated = migrate(
        "import os\n"
        "from marin.execution.executor import executor_main, get_fn_name\n"
        "from fray.types import (\n    ResourceConfig,\n)\n"
        "from marin.execution.step_spec import StepSpec  # of June\n"
        "from rigging.filesystem import open_url\n"
        "from experiments.x import y\n"
        "from marin.execution.artifact import Artifact\n"
    )
    assert migrated.source == (
        "import os\n"
        "from marin_rules import ResourceConfig, executor_main\n"
        "from marin.execution.executor import get_fn_name\n"
        "from marin_rules import StepSpec  # of June\n"
        "from marin_rules import open_url\n"
        "from experiments.x import y\n"
        "from marin_rules import Artifact\n"
    )
    assert migrated.changed == 5


def test_long_imports_are_broken() -> None:
    names = [
        "ensure_versioned",
        "executor_main",
        "get_executor_step",
        "instantiate_config",
        "output_path_of",
        "versioned",
    ]
    migrated = migrate(f"from marin.execution.executor import {', '.join(names)}, this_output_path\n").source
    assert migrated.startswith("from marin_rules import (\n    ensure_versioned,\n")
    compile(migrated, "x", "exec")


def test_what_is_left_is_listed_with_what_to_use() -> None:
    source = textwrap.dedent(
        """
        import marin.execution.executor as executor
        from marin.processing.tokenize import tokenize
        from experiments.defaults import default_train
        from .marin import mine
        from fray.types import JobRequest, ResourceConfig
        """
    )
    migrated = migrate(source)
    assert [note.line for note in migrated.notes] == [2, 3, 6]
    assert "marin_rules import ..." in migrated.notes[0].text
    assert migrated.notes[1].text.startswith("marin.processing.tokenize.tokenize: ")
    assert "remote(...)" in migrated.notes[2].text
    assert "from experiments.defaults import default_train\nfrom .marin import mine\n" in migrated.source


def test_a_file_without_marin_stays_as_it_is() -> None:
    source = "import os\r\nfrom marinade import x\r\n"
    migrated = migrate(source)
    assert (migrated.source, migrated.changed, migrated.notes) == (source, 0, ())


@pytest.mark.parametrize(
    "source",
    [
        "from marin.execution.executor import *",
        "from marin.execution import executor",
        "from fray import types as t",
    ],
)
def test_whole_modules_are_no_names_without_a_counterpart(source: str) -> None:
    migrated = migrate(source)
    assert migrated.source == source
    (note,) = migrated.notes
    assert note.text.endswith(": write `from marin_rules import ...` for what it uses")


def test_modules_in_strings_are_listed() -> None:
    source = textwrap.dedent(
        """
        module = importlib.import_module("marin.execution.executor")
        patched = mock.patch("marin.execution.step_runner.StepRunner")
        others = "fray", "marin.yaml", "gs://marin.execution", "see marin.execution", "fraying.types"
        """
    )
    assert [note.line for note in migrate(source).notes] == [2, 3]
