"""`remote`: the function stays itself, the mark is carried, secrets are not shown, pickles can be read elsewhere."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, assert_type

import pytest

from marin_rules.remote import RemoteCallable, remote
from marin_rules.resources import ResourceConfig

REPOSITORY = Path(__file__).resolve().parents[1]
GPU = ResourceConfig.with_gpu("H100", count=8)


def add(left: int, right: int = 2) -> int:
    """Adds."""
    return left + right


@remote
def decorated(left: int, right: int = 2) -> int:
    """Adds, elsewhere."""
    return left + right


@remote(resources=GPU, env_vars={"HF_TOKEN": "hunter2"}, pip_dependency_groups=["gpu"], name="adder")
def configured(left: int) -> int:
    return left + 1


class Functions:
    """A place for a function whose qualified name has a dot."""

    @staticmethod
    @remote
    def nested(left: int) -> int:
        return left * 3


# --- the three ways to mark


def test_a_bare_decorator_asks_for_a_cpu() -> None:
    assert isinstance(decorated, RemoteCallable)
    assert decorated.resources == ResourceConfig.with_cpu()
    assert (decorated.env_vars, decorated.pip_dependency_groups, decorated.name) == ({}, (), None)


def test_a_decorator_with_details_keeps_them() -> None:
    assert configured.resources == GPU
    assert configured.env_vars == {"HF_TOKEN": "hunter2"}
    assert configured.pip_dependency_groups == ("gpu",)
    assert configured.name == "adder"


def test_a_function_can_be_marked_without_changing_it() -> None:
    marked = remote(add, name="adder", resources=GPU, env_vars={"A": "1"}, pip_dependency_groups=["gpu", "x"])
    assert marked == RemoteCallable(add, GPU, {"A": "1"}, ("gpu", "x"), "adder")
    assert marked.fn is add
    assert not isinstance(add, RemoteCallable)


def test_one_decorator_marks_many_functions() -> None:
    mark = remote(resources=GPU)
    assert mark(add).resources is mark(max).resources is GPU


# --- it is still the function


def test_calling_it_calls_the_function() -> None:
    assert decorated(1) == 3
    assert decorated(1, right=5) == 6
    assert configured(1) == 2


def test_an_error_of_the_function_is_its_own() -> None:
    def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        remote(fail)()


def test_it_looks_like_the_function() -> None:
    marked = remote(add)
    assert marked.__name__ == "add"
    assert marked.__qualname__ == "add"
    assert marked.__module__ == __name__
    assert marked.__doc__ == "Adds."
    assert marked.__wrapped__ is add
    assert inspect.unwrap(marked) is add
    assert inspect.signature(marked) == inspect.signature(add)
    assert Functions.nested.__qualname__ == "Functions.nested"
    assert configured.__doc__ is None
    assert RemoteCallable.__name__ == "RemoteCallable", "the class keeps its own name"


def test_a_callable_without_a_name_goes_by_its_type() -> None:
    marked = remote(partial(add, right=10))
    assert marked(1) == 11
    assert marked.__name__ == "partial"


def test_type_checkers_see_the_functions_signature() -> None:
    # mypy --strict on this file is the test; at run time these only pass their values through.
    assert_type(decorated(1, right=2), int)
    assert_type(configured(1), int)
    assert_type(remote(add)(1), int)
    with pytest.raises(TypeError):
        decorated("1", wrong=2)  # type: ignore[call-arg, arg-type]


# --- it is a value


def test_it_is_frozen_and_shares_nothing() -> None:
    env_vars = {"A": "1"}
    groups = ["gpu"]
    marked = remote(add, env_vars=env_vars, pip_dependency_groups=groups)
    env_vars["B"] = "2"
    groups.append("tpu")
    assert marked.env_vars == {"A": "1"}
    assert marked.pip_dependency_groups == ("gpu",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        marked.name = "other"  # type: ignore[misc]


def test_equal_marks_are_equal_and_hash_alike() -> None:
    assert remote(add, env_vars={"A": "1"}) == remote(add, env_vars={"A": "1"})
    assert hash(remote(add, env_vars={"A": "1"})) == hash(remote(add, env_vars={"A": "1"}))
    assert remote(add, env_vars={"A": "1"}) != remote(add, env_vars={"A": "2"})
    assert remote(add) != remote(max)


def test_replace_changes_a_detail() -> None:
    changed = dataclasses.replace(configured, resources=ResourceConfig.with_cpu())
    assert changed.resources == ResourceConfig.with_cpu()
    assert changed.env_vars == configured.env_vars
    assert (changed.__name__, changed(1)) == ("configured", 2)


# --- secrets


def test_the_repr_shows_names_of_variables_and_never_values() -> None:
    shown = f"{configured!r} {configured}"
    assert "hunter2" not in shown
    assert "HF_TOKEN" in shown
    assert f"{__name__}.configured" in shown
    assert "H100" in shown


@pytest.mark.parametrize(
    "env_vars", [{"TOKEN": b"hunter2"}, {"TOKEN": ["hunter2"]}, [("TOKEN", "hunter2")], {"A=B": "hunter2"}]
)
def test_errors_about_variables_never_show_values(env_vars: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        remote(add, env_vars=env_vars)
    assert "env_vars" in str(caught.value)
    assert "hunter2" not in str(caught.value)


# --- refusals


def test_a_mark_on_a_mark_is_refused() -> None:
    with pytest.raises(ValueError, match=r"decorated is remote already: .*dataclasses\.replace"):
        remote(decorated)
    with pytest.raises(ValueError, match="decorated is remote already"):
        remote(resources=GPU)(decorated)
    with pytest.raises(ValueError, match="decorated is remote already"):
        RemoteCallable(decorated)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="remote needs a function, got 'train'"):
        remote("train")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="resources 'H100' is not a ResourceConfig: use ResourceConfig"):
        remote(add, resources="H100")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"pip_dependency_groups 'gpu' is one string: write a list, \['gpu'\]"):
        remote(add, pip_dependency_groups="gpu")


# --- pickles

PICKLERS = ["pickle", "cloudpickle"]


def round_trip(pickler: str, value: Any) -> Any:
    return pickle.loads(pytest.importorskip(pickler).dumps(value))


@pytest.mark.parametrize("pickler", PICKLERS)
@pytest.mark.parametrize(
    "marked",
    [
        pytest.param(remote(add, resources=GPU, env_vars={"A": "1"}, name="adder"), id="marked"),
        pytest.param(decorated, id="decorated"),
        pytest.param(configured, id="configured"),
        pytest.param(Functions.nested, id="in a class"),
        pytest.param(dataclasses.replace(configured, resources=ResourceConfig(), name=None), id="replaced"),
        pytest.param(remote(partial(add, right=10)), id="partial"),
    ],
)
def test_pickles_come_back_whole(pickler: str, marked: RemoteCallable[..., int]) -> None:
    loaded = round_trip(pickler, marked)
    assert loaded(1) == marked(1)
    for detail in ("resources", "env_vars", "pip_dependency_groups", "name"):
        assert getattr(loaded, detail) == getattr(marked, detail)
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(loaded, attribute) == getattr(marked, attribute)


@pytest.mark.parametrize("pickler", PICKLERS)
def test_a_decorated_function_is_found_by_name(pickler: str) -> None:
    assert round_trip(pickler, decorated) is decorated
    assert round_trip(pickler, dataclasses.replace(decorated, name="other")).fn is decorated.fn


def test_copies_are_equal() -> None:
    for marked in (decorated, remote(add, env_vars={"A": "1"})):
        assert copy.copy(marked) == copy.deepcopy(marked) == marked


def test_cloudpickle_carries_a_local_function() -> None:
    offset = 40

    @remote(env_vars={"A": "1"})
    def local(left: int) -> int:
        return left + offset

    loaded = round_trip("cloudpickle", local)
    assert loaded(2) == 42
    assert loaded.env_vars == {"A": "1"}
    assert loaded.__qualname__ == local.__qualname__


def test_a_function_registered_by_value_is_frozen_in_its_pickle() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    module = ModuleType("an_experiment")
    source = "from marin_rules.remote import remote\n@remote\ndef answer():\n    return {}\n"
    sys.modules["an_experiment"] = module
    try:
        exec(source.format(42), module.__dict__)
        by_name = cloudpickle.dumps(module.answer)
        cloudpickle.register_pickle_by_value(module)
        by_value = cloudpickle.dumps(module.answer)
        exec(source.format(43), module.__dict__)
        assert pickle.loads(by_name)() == 43
        assert pickle.loads(by_value)() == 42, "an edit after the plan must not change what was planned"
    finally:
        if "an_experiment" in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(module)
        del sys.modules["an_experiment"]


@pytest.mark.processes
def test_a_function_of_a_script_travels_to_another_process(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    script = tmp_path / "experiment.py"
    script.write_text(
        "import sys, cloudpickle\n"
        "from marin_rules.remote import remote\n"
        "from marin_rules.resources import ResourceConfig\n"
        "@remote(resources=ResourceConfig.with_tpu('v4-128'), env_vars={'A': '1'})\n"
        "def factorial(number):\n"
        "    return 1 if number == 0 else number * factorial(number - 1)\n"  # looks itself up: a cycle
        "if __name__ == '__main__':\n"
        "    cloudpickle.dump(factorial, open(sys.argv[1], 'wb'))\n"
    )
    pickled = tmp_path / "factorial.pickle"
    load = (
        "import pickle, sys\n"
        "fn = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(type(fn).__name__, fn.__name__, fn(5), fn.resources.replicas, dict(fn.env_vars))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, str(script), str(pickled)], env=environment, check=True)
    script.unlink()
    loaded = subprocess.run(
        [sys.executable, "-c", load, str(pickled)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert loaded.stdout == "RemoteCallable factorial 120 16 {'A': '1'}\n"
