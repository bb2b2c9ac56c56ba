"""Marin's modules by their own names: which are ours, which are Marin's, and what is said of those that nobody has."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import marin_rules
from marin_rules.compat.counterparts import COUNTERPARTS, PACKAGES, RENAMED
from marin_rules.compat.finder import CompatFinder, install


@pytest.fixture(autouse=True)
def compat(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installed for one test; the process is as before afterwards."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    before = forget()
    install()
    yield
    forget()
    sys.modules.update(before)


def forget() -> dict[str, Any]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in PACKAGES}


def run(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(source, names)
    return names


@pytest.mark.parametrize("module", COUNTERPARTS)
def test_the_names_of_a_module_are_ours(module: str) -> None:
    found = importlib.import_module(module)
    for name in COUNTERPARTS[module]:
        assert getattr(found, name) is getattr(marin_rules, RENAMED.get(name, name))
        assert name in dir(found)


def test_a_script_finds_them_however_it_imports() -> None:
    names = run(
        "import marin.execution.executor\n"
        "import fray.types as types\n"
        "from marin.execution import StepSpec\n"
        "from rigging.filesystem import marin_prefix as where\n"
        "step_class = marin.execution.executor.ExecutorStep\n"
        "from marin.execution.remote import *\n"
    )
    assert names["remote"] is marin_rules.remote
    assert names["step_class"] is marin_rules.ExecutorStep
    assert names["types"].ResourceConfig is marin_rules.ResourceConfig
    assert names["StepSpec"] is marin_rules.StepSpec
    assert names["where"] is marin_rules.marin_prefix


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("from fray.types import JobRequest", ["fray.types has no 'JobRequest'", "remote(...)"]),
        ("from fray import current_client", ["fray has no 'current_client'", "let a step run it"]),
        ("import marin.processing.tokenize", ["there is no marin.processing", "write the function"]),
        ("from marin.rl import x", ["there is no marin.rl", "PYTHONPATH"]),
        ("from marin.execution.lazy import ArtifactStep", ["there is no marin.execution.lazy", "StepSpec"]),
        ("from marin.execution.executor import get_fn_name", ["has no 'get_fn_name'", "internal"]),
        ("from rigging.distributed_lock import create_lock", ["there is no rigging.distributed_lock", "lease"]),
    ],
)
def test_what_nobody_has_is_named_with_what_to_use(source: str, told: list[str]) -> None:
    with pytest.raises(ImportError) as raised:
        run(source)
    for text in [*told, "docs/from-marin.md"]:
        assert text in str(raised.value)


def test_a_question_is_answered_as_by_any_module() -> None:
    """Only `from ... import ...` is an ImportError: picklers and others look around in modules."""
    import fray.types  # type: ignore[import-not-found]

    assert not hasattr(fray.types, "JobRequest")
    assert getattr(fray.types, "nothing", None) is None
    assert pickle.loads(pickle.dumps(fray.types.ResourceConfig)) is marin_rules.ResourceConfig


@pytest.fixture
def marin(tmp_path: Path) -> Callable[[str, str], None]:
    """`marin("fray/types.py", "...")` writes a module of Marin's own, which is on the search path."""
    sys.path.append(str(tmp_path))

    def write(path: str, source: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in file.relative_to(tmp_path).parents:
            (tmp_path / folder / "__init__.py").touch()
        file.write_text(source)
        importlib.invalidate_caches()

    return write


def test_marins_own_modules_find_ours(marin: Callable[[str, str], None]) -> None:
    marin(
        "marin/processing/tokenize.py",
        "from marin.execution.executor import ExecutorStep\n"
        "from marin.execution.inner import secret\n"
        "def step(): return ExecutorStep('tokens', print, secret)\n",
    )
    marin("marin/execution/inner.py", "secret = 7")
    step = run("from marin.processing.tokenize import step\nmade = step()")["made"]
    assert isinstance(step, marin_rules.ExecutorStep)
    assert step.config == 7


def test_names_that_only_marin_has_are_marins(marin: Callable[[str, str], None]) -> None:
    marin(
        "fray/types.py",
        "from dataclasses import dataclass\n"
        "class ResourceConfig: 'not ours'\n"
        "@dataclass\nclass JobRequest:\n    resources: ResourceConfig\n",
    )
    names = run("from fray.types import JobRequest, ResourceConfig\nrequest = JobRequest(ResourceConfig())")
    assert names["ResourceConfig"] is marin_rules.ResourceConfig
    assert pickle.loads(pickle.dumps(names["request"])) == names["request"]
    with pytest.raises(ImportError, match=r"fray\.types has no 'Entrypoint'"):
        run("from fray.types import Entrypoint")


def test_a_name_of_a_package_hides_the_submodule_that_has_it(marin: Callable[[str, str], None]) -> None:
    marin("fray/current_client.py", "def current_client(): return 'client'\n")
    marin("fray/other.py", "x = 1\n")
    marin("fray/__init__.py", "from fray.current_client import current_client\n")
    names = run(
        "import fray.other\n"
        "import fray.current_client\n"
        "from fray import ResourceConfig, current_client, other\n"
        "import fray.types as types\n"
    )
    assert names["current_client"]() == "client"
    assert names["other"].x == names["fray"].other.x == 1
    assert names["types"].ResourceConfig is names["ResourceConfig"] is marin_rules.ResourceConfig


def test_a_module_of_marin_that_fails_says_so_itself(marin: Callable[[str, str], None]) -> None:
    marin("marin/processing/broken.py", "1 / 0")
    marin("fray/types.py", "1 / 0")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            run("import marin.processing.broken")
        with pytest.raises(ZeroDivisionError):
            run("from fray.types import ResourceConfig, JobRequest")


def test_packages_of_marin_may_have_no_file_of_their_own(tmp_path: Path) -> None:
    sys.path.append(str(tmp_path))
    (tmp_path / "rigging" / "deep").mkdir(parents=True)
    (tmp_path / "rigging" / "deep" / "inner.py").write_text("from rigging.filesystem import marin_prefix")
    assert run("import rigging.deep.inner as inner")["inner"].marin_prefix is marin_rules.marin_prefix


def test_it_stays_first(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.meta_path.insert(0, object())  # type: ignore[arg-type]
    install()
    assert isinstance(sys.meta_path[0], CompatFinder)
    assert sum(isinstance(finder, CompatFinder) for finder in sys.meta_path) == 1
    sys.meta_path.pop(1)


def test_a_star_takes_the_names_of_both(marin: Callable[[str, str], None]) -> None:
    marin("fray/types.py", "import os\nclass JobRequest: ...\nclass ResourceConfig: 'not ours'\n_hidden = 1\n")
    marin("rigging/filesystem.py", "__all__ = ['listed']\nlisted, unlisted = 1, 2\n")
    names = run("from fray.types import *\nfrom rigging.filesystem import *\n")
    assert names["JobRequest"].__module__ == "fray.types"
    assert names["ResourceConfig"] is marin_rules.ResourceConfig
    assert names["marin_prefix"] is marin_rules.marin_prefix
    assert {"listed", "unlisted", "_hidden"} & names.keys() == {"listed"}
