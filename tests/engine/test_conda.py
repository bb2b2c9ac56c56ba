"""`snakemake --sdm conda`: steps and rules run in the conda environments that they name.

Everything here is real except conda: see tests/conda. So this is about who runs where, not about conda's own work.
"""

import importlib.metadata
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conda.installed import DRIVERS_OWN_MODULE, PYTHON_VERSION, InstalledDriver
from support.lab import Lab

pytest_plugins = ["conda.fixtures"]

IMPOSSIBLE = "channels: [conda-forge]\ndependencies: [no-such-tool >=2]\n"


@pytest.fixture
def snakemake(lab: Lab, conda: dict[str, str], installed_driver: InstalledDriver, tmp_path: Path) -> Callable[..., Any]:
    """`snakemake(*arguments, experiment=, env=)`: that of a driver with marin_rules installed and conda on PATH."""
    variables = conda | {"MARIN_ENVIRONMENTS": str(tmp_path / "environments")}

    def run(*arguments: str, experiment: Path, env: dict[str, str] | None = None) -> Any:
        snakefile = installed_driver.project / "Snakefile"
        settings = [f"experiment={experiment}", f"prefix={lab.prefix}"]
        command = [installed_driver.python, "-m", "snakemake", "--snakefile", snakefile, *arguments]
        return lab.start([*command, "--config", *settings], env=variables | (env or {})).wait()

    return run


@pytest.fixture
def environments(tmp_path: Path) -> Callable[[], list[Path]]:
    """`environments()` are the conda environments that runs in this test's folder have made."""
    return lambda: sorted(path for path in (tmp_path / ".snakemake" / "conda").iterdir() if path.is_dir())


def test_the_first_tutorial_runs_in_the_projects_environment_which_is_made_once(
    lab: Lab, snakemake: Callable[..., Any], environments: Callable[[], list[Path]]
) -> None:
    source = (lab.repository / "experiments" / "tutorials" / "hello_world.py").read_text()
    telling = source.replace('print(f"writing', 'import sys; print(f"{sys.prefix} is writing')
    assert telling != source
    file = lab.experiment(telling, "hello_world.py")

    result = snakemake("--sdm", "conda", experiment=file)
    assert result.code == 0, result.output
    (environment,) = environments()
    assert f"[hello_world/data] {environment} is writing 100 numbers\n" in result.output
    assert lab.status_of("hello_world/data") == lab.status_of("hello_world/stats") == "SUCCESS"
    assert json.loads((lab.folder_of("hello_world/stats") / ".artifact.json").read_text())["mean"] == 49.5

    (environment / "kept").touch()
    result = snakemake("--sdm", "conda", "--forceall", experiment=file)
    assert result.code == 0, result.output
    assert result.started == ["hello_world/data", "hello_world/stats"]
    assert environments() == [environment]
    assert (environment / "kept").exists()


LOOKING = """
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, remote

    def look(config):
        import importlib.util
        import json
        import os
        import sys

        def origin(name):
            spec = importlib.util.find_spec(name)
            return spec and spec.origin

        seen = {"executable": sys.executable, **{name: origin(name) for name in config["modules"]}}
        with open(os.path.join(config["path"], "seen.json"), "w") as file:
            json.dump(seen, file)

    def step(name, fn=look, **options):
        config = {"modules": MODULES, "path": THIS_OUTPUT_PATH}
        return ExecutorStep(name=name, fn=fn, config=config, **options)

    if __name__ == "__main__":
        executor_main(steps=STEPS)
"""


@pytest.fixture
def looking(lab: Lab) -> Callable[..., Path]:
    """`looking(modules, steps)` writes an experiment whose steps write down from where they would import modules."""

    def write(modules: list[str], steps: str) -> Path:
        return lab.experiment(LOOKING.replace("MODULES", repr(modules)).replace("STEPS", steps))

    return write


@pytest.fixture
def seen_by(lab: Lab) -> Callable[[str], dict[str, str | None]]:
    """`seen_by("name")` is what that step of `looking` has written: its Python and the file of each module."""
    return lambda name: json.loads((lab.folder_of(name) / "seen.json").read_text())


def test_a_step_has_what_its_environment_has_and_nothing_of_the_drivers(
    looking: Callable[..., Path],
    snakemake: Callable[..., Any],
    environments: Callable[[], list[Path]],
    seen_by: Callable[[str], dict[str, str]],
) -> None:
    modules = ["marin_rules", "fsspec", "cloudpickle", "snakemake", DRIVERS_OWN_MODULE]
    result = snakemake("--sdm", "conda", experiment=looking(modules, "[step('look')]"))
    assert result.code == 0, result.output
    (environment,) = environments()
    seen = seen_by("look")
    assert seen["executable"] == str(environment / "bin" / "python")
    assert seen["marin_rules"]
    assert seen["fsspec"].startswith(f"{environment}/")
    assert seen["cloudpickle"].startswith(f"{environment}/")
    assert seen["snakemake"] is None
    assert seen[DRIVERS_OWN_MODULE] is None


def test_functions_and_steps_name_environments_of_their_own(
    looking: Callable[..., Path],
    lab: Lab,
    snakemake: Callable[..., Any],
    environments: Callable[[], list[Path]],
    seen_by: Callable[[str], dict[str, str]],
) -> None:
    own = f"channels: [conda-forge]\ndependencies: [python ={PYTHON_VERSION}, cloudpickle, fsspec, iniconfig]\n"
    lab.experiment(own, "envs/own.yaml")
    lab.experiment(IMPOSSIBLE, "envs/impossible.yaml")
    file = looking(
        ["iniconfig"],
        f"""[
            step("none"),
            step("of_the_project", conda="steps-{PYTHON_VERSION}.yaml"),
            step("of_the_function", remote(look, conda="envs/own.yaml")),
            step("of_the_step", conda="envs/own.yaml"),
            step("of_both", remote(look, conda="envs/impossible.yaml"), conda="envs/own.yaml"),
        ]""",
    )
    result = snakemake("--sdm", "conda", experiment=file)
    assert result.code == 0, result.output
    shared, own_one = seen_by("none"), seen_by("of_the_function")
    assert seen_by("of_the_project") == shared
    assert seen_by("of_the_step") == seen_by("of_both") == own_one
    assert shared["iniconfig"] is None
    assert own_one["iniconfig"] is not None
    own_folder = Path(own_one["executable"]).parents[1]
    assert own_one["iniconfig"].startswith(f"{own_folder}/")
    assert {Path(shared["executable"]).parents[1], own_folder} == set(environments())


def test_an_environment_file_that_is_missing_is_told_before_anything_runs(
    looking: Callable[..., Path], snakemake: Callable[..., Any], lab: Lab
) -> None:
    file = looking([], "[step('first'), step('second', conda='envs/missing.yaml')]")
    result = snakemake("--sdm", "conda", experiment=file)
    assert result.code != 0
    assert "step 'second': there is no conda environment file envs/missing.yaml" in result.output
    assert str(file.parent / "envs" / "missing.yaml") in result.output
    assert "Traceback" not in result.output
    assert not lab.prefix.exists()


def test_a_shell_rule_finds_its_tools_in_its_environment(
    lab: Lab,
    tmp_path: Path,
    conda: dict[str, str],
    snakemake: Callable[..., Any],
    environments: Callable[[], list[Path]],
) -> None:
    # Tools that fail, in front of the machine's own: only those of an environment can do the work.
    broken = tmp_path / "broken"
    broken.mkdir()
    for tool in ("tr", "sort", "uniq", "awk"):
        (broken / tool).write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
        (broken / tool).chmod(0o755)
    path = {"PATH": f"{broken}{os.pathsep}{conda['PATH']}"}
    file = lab.repository / "experiments" / "tutorials" / "mixed.py"

    result = snakemake(experiment=file, env=path)
    assert result.code != 0
    assert lab.status_of("mixed/counts") == "FAILED"
    assert environments() == []

    result = snakemake("--sdm", "conda", experiment=file, env=path)
    assert result.code == 0, result.output
    assert result.started == ["mixed/counts", "mixed/top"]
    counts = (lab.folder_of("mixed/counts") / "counts.txt").read_text()
    found = {word: int(count) for count, word in (line.split() for line in counts.splitlines())}
    assert found == Counter((lab.folder_of("mixed/text") / "text.txt").read_text().split())
    assert lab.status_of("mixed/counts") == lab.status_of("mixed/top") == "SUCCESS"
    assert len(environments()) == 2


OWN_ENVIRONMENT = {
    "experiment.py": """
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, SnakemakeRule, executor_main

        def write(config):
            with open("ran", "w"):
                pass

        first = ExecutorStep(name="first", fn=write, config={})
        second = ExecutorStep(name="second", fn=SnakemakeRule("tell"), config={"after": first})

        if __name__ == "__main__":
            executor_main(steps=[second])
    """,
    "experiment.smk": """
        rule tell:
            input:
                marin.inputs,
            output:
                marin.target("tell"),
            conda:
                "ENVIRONMENT"
            params:
                path=marin.output_path,
            shell:
                marin.leased("command -v sort > {params.path:q}/sort")
    """,
}


@pytest.fixture
def own_environment(lab: Lab) -> Callable[[str], Path]:
    """`own_environment(name)` writes an experiment whose last step is a shell rule in the environment of that name."""

    def write(name: str) -> Path:
        lab.experiment(OWN_ENVIRONMENT["experiment.smk"].replace("ENVIRONMENT", name), "experiment.smk")
        return lab.experiment(OWN_ENVIRONMENT["experiment.py"])

    return write


def test_an_environment_that_cannot_be_solved_is_told_before_any_step_runs(
    tmp_path: Path, own_environment: Callable[[str], Path], lab: Lab, snakemake: Callable[..., Any]
) -> None:
    lab.experiment(IMPOSSIBLE, "envs/impossible.yaml")
    result = snakemake("--sdm", "conda", experiment=own_environment("envs/impossible.yaml"))
    assert result.code != 0
    assert "No candidates were found for no-such-tool >=2" in result.output
    assert "envs/impossible.yaml" in result.output
    assert "Traceback" not in result.output
    assert result.started == []
    assert not (tmp_path / "ran").exists()
    assert lab.status_of("first") is lab.status_of("second") is None


@pytest.fixture
def conda_command(conda: dict[str, str], conda_installation: Path) -> Callable[..., str]:
    """`conda_command(*arguments)` is what conda prints."""

    def run(*arguments: str | Path) -> str:
        command = [conda_installation / "bin" / "conda", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    return run


@pytest.fixture
def made_by_hand(tmp_path: Path, lab: Lab, conda_command: Callable[..., str]) -> Path:
    """An environment with shell tools that no run has made."""
    file = lab.experiment("channels: [conda-forge]\ndependencies: [coreutils]\n", "tools.yaml")
    conda_command("env", "create", "--file", file, "--prefix", tmp_path / "made-by-hand")
    return tmp_path / "made-by-hand"


def test_pins_beside_an_environment_file_are_installed_and_nothing_is_solved(
    made_by_hand: Path,
    conda_command: Callable[..., str],
    own_environment: Callable[[str], Path],
    lab: Lab,
    snakemake: Callable[..., Any],
    environments: Callable[[], list[Path]],
) -> None:
    platform = json.loads(conda_command("info", "--json"))["platform"]
    lab.experiment(IMPOSSIBLE, "envs/pinned.yaml")
    lab.experiment(conda_command("list", "--explicit", "--prefix", made_by_hand), f"envs/pinned.{platform}.pin.txt")
    result = snakemake("--sdm", "conda", experiment=own_environment("envs/pinned.yaml"))
    assert result.code == 0, result.output
    tool = Path((lab.folder_of("second") / "sort").read_text().strip())
    assert tool.parents[1] in environments()


def test_a_rule_may_name_an_environment_that_was_made_by_hand(
    made_by_hand: Path, own_environment: Callable[[str], Path], snakemake: Callable[..., Any], lab: Lab
) -> None:
    result = snakemake("--sdm", "conda", experiment=own_environment(str(made_by_hand)))
    assert result.code == 0, result.output
    assert (lab.folder_of("second") / "sort").read_text().strip() == str(made_by_hand / "bin" / "sort")


@pytest.fixture
def venv_over_conda(
    tmp_path: Path, conda: dict[str, str], installed_driver: InstalledDriver, conda_command: Callable[..., str]
) -> dict[str, str]:
    """The variables after `conda activate base` and then `source .venv/bin/activate`: the driver's Python is first."""
    file = tmp_path / "base.yaml"
    file.write_text("channels: [conda-forge]\ndependencies: [coreutils]\n")
    base = tmp_path / "base"
    conda_command("env", "create", "--file", file, "--prefix", base)
    path = os.pathsep.join([str(installed_driver.folder / "bin"), str(base / "bin"), conda["PATH"]])
    return {"PATH": path, "CONDA_PREFIX": str(base), "CONDA_SHLVL": "1", "VIRTUAL_ENV": str(installed_driver.folder)}


def test_steps_and_rules_run_in_their_environments_though_a_virtual_environment_is_in_front_of_them(
    looking: Callable[..., Path],
    lab: Lab,
    snakemake: Callable[..., Any],
    venv_over_conda: dict[str, str],
    installed_driver: InstalledDriver,
    environments: Callable[[], list[Path]],
    seen_by: Callable[[str], dict[str, str]],
) -> None:
    own = f"channels: [conda-forge]\ndependencies: [python ={PYTHON_VERSION}, cloudpickle, fsspec, iniconfig]\n"
    lab.experiment(own, "envs/own.yaml")
    rule = """
        rule RULE:
            input:
                marin.inputs,
            output:
                marin.target("RULE"),
            ENVIRONMENT
            params:
                path=marin.output_path,
            shell:
                marin.leased("command -v python > {params.path:q}/python")
    """
    inside = rule.replace("RULE", "inside").replace("ENVIRONMENT", 'conda: "envs/own.yaml"')
    outside = rule.replace("RULE", "outside").replace("ENVIRONMENT", "")
    source = LOOKING.replace("import THIS_OUTPUT_PATH", "import SnakemakeRule, THIS_OUTPUT_PATH")
    lab.experiment(inside + outside, "experiment.smk")
    steps = """[
        step("of_the_step", conda="envs/own.yaml"), step("none"),
        ExecutorStep("inside", SnakemakeRule("inside"), {}), ExecutorStep("outside", SnakemakeRule("outside"), {}),
    ]"""
    file = lab.experiment(source.replace("MODULES", "['iniconfig', 'snakemake']").replace("STEPS", steps))
    result = snakemake("--sdm", "conda", experiment=file, env=venv_over_conda)
    assert result.code == 0, result.output
    named = Path(seen_by("of_the_step")["executable"]).parents[1]
    default = Path(seen_by("none")["executable"]).parents[1]
    assert {named, default} == set(environments())
    assert seen_by("of_the_step")["snakemake"] is seen_by("none")["snakemake"] is None
    assert (lab.folder_of("inside") / "python").read_text() == f"{named}/bin/python\n"
    assert (lab.folder_of("outside") / "python").read_text() == f"{installed_driver.python}\n"

    for name in ("of_the_step", "inside"):
        written = lab.info_of(name)["run"]["environment"]
        assert written["path"] == str(named)
        assert written["conda_file"] == str(file.parent / "envs" / "own.yaml")
        assert set(written["packages"]) == {"python", "cloudpickle", "fsspec", "iniconfig"}
        assert written["packages"]["iniconfig"] == f"{importlib.metadata.version('iniconfig')} py_0"
        assert "pip_packages" not in written
    assert lab.info_of("none")["run"]["environment"]["path"] == str(default)
    assert "environment" not in lab.info_of("outside")["run"]


def test_a_run_with_nothing_to_do_makes_no_environment_and_cannot_fail_for_one(
    own_environment: Callable[[str], Path], lab: Lab, snakemake: Callable[..., Any], tmp_path: Path
) -> None:
    lab.experiment(IMPOSSIBLE, "envs/impossible.yaml")
    file = own_environment("envs/impossible.yaml")
    assert snakemake(experiment=file).code == 0
    assert lab.status_of("first") == lab.status_of("second") == "SUCCESS"
    result = snakemake("--sdm", "conda", experiment=file)
    assert result.code == 0, result.output
    assert result.cached == ["first", "second"]
    assert result.started == []
    assert not list((tmp_path / ".snakemake").glob("conda/*"))


def test_a_step_that_would_run_with_another_python_than_its_environments_does_not_run(
    looking: Callable[..., Path],
    snakemake: Callable[..., Any],
    installed_driver: InstalledDriver,
    lab: Lab,
    environments: Callable[[], list[Path]],
) -> None:
    file = looking([], "[step('look')]")
    assert snakemake("--sdm", "conda", "--conda-create-envs-only", experiment=file).code == 0
    (environment,) = environments()
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").write_text(f'#!/bin/sh\nexec {installed_driver.python} "$@"\n')
    (environment / "bin" / "python").chmod(0o755)
    result = snakemake("--sdm", "conda", experiment=file)
    assert result.code != 0
    told = f"the step is to run in the conda environment {environment}, but its Python is {installed_driver.python}."
    assert f"[look] error: {told}" in result.output
    assert "Traceback" not in result.output
    assert not list(lab.prefix.glob("look-*/seen.json"))
