"""What can be submitted, and how a command line is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_rules.driver.submitted_command import (
    Program,
    SubmittedCommand,
    given_variables,
    has_file,
    inside,
    moved_files,
    without_file,
)
from marin_rules.errors import SettingsError

PYTHON = "/env/bin/python"


@pytest.mark.parametrize(
    ("words", "program", "arguments"),
    [
        (["snakemake"], Program.SNAKEMAKE, ()),
        (["snakemake", "-j", "4"], Program.SNAKEMAKE, ("-j", "4")),
        (["/env/bin/snakemake", "-F"], Program.SNAKEMAKE, ("-F",)),
        (["python", "x.py", "--prefix", "out"], Program.PYTHON, ("x.py", "--prefix", "out")),
        (["python3", "x.py"], Program.PYTHON, ("x.py",)),
        (["python3.13", "x.py"], Program.PYTHON, ("x.py",)),
        (["/env/bin/python", "x.py"], Program.PYTHON, ("x.py",)),
    ],
)
def test_two_programs_are_understood(words: list[str], program: Program, arguments: tuple[str, ...]) -> None:
    assert SubmittedCommand.parse(words, PYTHON) == SubmittedCommand(program, arguments)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "what should be submitted? Write `marin-rules submit ... -- snakemake ...`"),
        (["make", "run"], "cannot submit 'make': only snakemake and python are supported; write"),
        (["./snakemake.sh"], "only snakemake and python are supported"),
        (["pythonic", "x.py"], "only snakemake and python are supported"),
        (
            ["/other/bin/python", "x.py"],
            "it belongs to a different environment from this marin-rules, which runs with /env/bin",
        ),
        (["/other/bin/snakemake"], "or write snakemake alone"),
        (["python"], "the experiment's file comes first"),
        (["python", "-m", "x"], "the experiment's file comes first"),
        (["python", "-m", "marin_rules.compat", "x.py"], "snakemake --config experiment=x.py compat=true"),
    ],
)
def test_other_commands_are_refused_with_what_works(words: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        SubmittedCommand.parse(words, PYTHON)
    assert said in str(refused.value)


def test_variables_come_from_the_environment_or_from_the_command_line() -> None:
    given = ["TOKEN", "MODE=a=b", "EMPTY=", "TWICE=1", "TWICE=2"]
    assert given_variables(given, {"TOKEN": "secret"}) == {"TOKEN": "secret", "MODE": "a=b", "EMPTY": "", "TWICE": "2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("TOKEN", "-e TOKEN: it is not set here; `export TOKEN=...` first, or write -e TOKEN=VALUE"),
        ("my token", "-e 'my token': this is not the name of a variable"),
        ("1ST=hidden", "-e '1ST': this is not the name of a variable"),
        ("=hidden", "-e '': this is not the name of a variable"),
        ("", "-e '': this is not the name of a variable"),
        ("MARIN_RULES_PLAN=hidden", "control marin-rules"),
    ],
)
def test_bad_variables_are_refused_without_their_values(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        given_variables([text], {})
    assert said in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "without", "moved"),
    [
        (["-s", "a/Snakefile", "-n"], ["-n"], ["-n"]),
        (["--snakefile=a/Snakefile", "all"], ["all"], ["all"]),
        (["--profile", "slurm", "-j", "3"], ["--profile", "slurm", "-j", "3"], ["--profile", "<slurm>", "-j", "3"]),
        (["--profile=slurm"], ["--profile=slurm"], ["--profile", "<slurm>"]),
        (["--workflow-profile", "w"], ["--workflow-profile", "w"], ["--workflow-profile", "<w>"]),
        (["--config", "a=-s", "x"], ["--config", "a=-s", "x"], ["--config", "a=-s", "x"]),
        (["-n", "--profile"], ["-n", "--profile"], ["-n", "--profile"]),
    ],
)
def test_files_of_the_project_are_found_among_the_arguments(
    arguments: list[str], without: list[str], moved: list[str]
) -> None:
    assert without_file(arguments, "-s") == without
    assert moved_files(without, lambda path: f"<{path}>") == moved
    assert has_file(arguments, "--workflow-profile") == (arguments[0] == "--workflow-profile")


def test_a_file_of_the_project_has_its_place_in_the_code(tmp_path: Path) -> None:
    project, code = tmp_path / "project", tmp_path / "code"
    (project / "profiles" / "slurm").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(project / "profiles" / "slurm")
    assert inside(str(link), project, code) == str(code / "profiles" / "slurm")
    assert inside(str(tmp_path / "other"), project, code) is None
