"""Files of the user's with names of Python's own modules: nothing of ours takes them for Python's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from marin_rules.plans.search_path import hides_python_module, with_folders
from support.lab import Lab

LIBRARY = frozenset({"/py.zip", "/py", "/py/dynload"})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (["/py.zip", "/py", "/py/dynload", "/site"], ["/py.zip", "/py", "/py/dynload", "/x", "/cwd", "/site"]),
        (["/x", "/py", "/site"], ["/py", "/x", "/cwd", "/site"]),
        (["/cwd", "/mine", "/py", "/site", "/x"], ["/mine", "/py", "/x", "/cwd", "/site"]),
        (["/site"], ["/x", "/cwd", "/site"]),
    ],
)
def test_own_folders_come_after_pythons_library_and_before_packages(path: list[str], expected: list[str]) -> None:
    assert with_folders(path, ["/x", "/cwd"], LIBRARY) == expected


def test_the_library_of_this_python_is_known() -> None:
    found = with_folders(sys.path, ["/x"])
    standard = [number for number, entry in enumerate(found) if (Path(entry) / "tokenize.py").is_file()]
    packages = [number for number, entry in enumerate(found) if (Path(entry) / "snakemake").is_dir()]
    assert max(standard) < found.index("/x") < min(packages)


@pytest.mark.parametrize(
    ("name", "hides"),
    [("random", True), ("email.mime", True), ("test", False), ("my_random", False), ("random_forest", False)],
)
def test_names_that_hide_a_module(name: str, hides: bool) -> None:
    assert hides_python_module(name) is hides


EXPERIMENT = """
    import random
    import helper
    from marin_rules import ExecutorStep, executor_main

    def work(config):
        import colorsys, tokenize
        import late_helper
        return [random.randint(3, 3), helper.number, late_helper.number, colorsys.rgb_to_hsv(0, 0, 0)[0]]

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("a", work, {})])
"""

SHADOWS = ("tokenize", "random", "colorsys", "selectors", "marin_rules")


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_files_in_the_working_directory_hide_nothing(door: str, lab: Lab, tmp_path: Path) -> None:
    """In the working directory for both doors, and for Snakemake beside the experiment and its rules as well."""
    folder = tmp_path / "work"
    file = lab.experiment(EXPERIMENT, "work/experiments/experiment.py")
    lab.experiment("number = 1", "work/helper.py" if door == "snakemake" else "work/experiments/helper.py")
    lab.experiment("number = 2", "work/late_helper.py")
    lab.experiment("rule unused:\n    shell: 'true'\n", "work/experiments/experiment.smk")
    for name in SHADOWS:
        lab.experiment("raise ImportError('taken for another')", f"work/{name}.py")
        if door == "snakemake":
            lab.experiment("raise ImportError('taken for another')", f"work/experiments/{name}.py")
    if door == "snakemake":
        result = lab.snakemake(experiment=file, cwd=folder)
    else:
        result = lab.python(file, "--prefix", lab.prefix, cwd=folder)
    assert result.code == 0, result.output
    assert "taken for another" not in result.output
    assert (lab.folder_of("a") / ".artifact.json").read_text().split() == ["[", "3,", "1,", "2,", "0.0", "]"]


def test_a_module_that_hides_pythons_own_is_refused_by_its_path(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(
        """
        from colorsys import own_function
        from marin_rules import ExecutorStep, executor_main

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep("a", own_function, {})])
        """
    )
    lab.experiment("def own_function(config): pass", "colorsys.py")
    for result in (lab.python(file, "--prefix", lab.prefix), lab.snakemake(experiment=file)):
        assert result.code == 1
        assert f"{tmp_path / 'colorsys.py'} has the name of a module of Python's own" in result.output
        assert "Traceback" not in result.output
    assert not lab.prefix.exists()
