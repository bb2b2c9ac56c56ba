"""`marin-rules run STEP`: the command line of Snakemake that it becomes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.commands.main import main
from marin_rules.project import project_folder


@pytest.fixture
def snakemake_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """`snakemake_words("data", ...)` are the words after `snakemake` that `marin-rules run data ...` goes on with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARIN_PREFIX", raising=False)

    class Replaced(BaseException):
        """`os.execv` does not return."""

    def words(*arguments: str) -> list[str]:
        became: list[str] = []

        def execv(program: str, words: list[str]) -> None:
            became.extend(words)
            raise Replaced

        monkeypatch.setattr(os, "execv", execv)
        with pytest.raises(Replaced):
            main(["run", *arguments])
        assert became[2:4] == ["-m", "snakemake"]
        return became[4:]

    return words


def described(prefix: Path, experiment: str, *names: str) -> None:
    """What a run leaves below its prefix of an experiment with these steps."""
    steps = [{"name": name, "output_path": f"{prefix}/{name}-a1b2c3", "dependencies": []} for name in names]
    (prefix / "experiments").mkdir(parents=True)
    content = {"prefix": str(prefix), "caller_path": experiment, "steps": steps}
    (prefix / "experiments" / "x-000000.json").write_text(json.dumps(content))


def config_of(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words[words.index("--config") + 1 :])


def test_a_step_of_an_experiment_that_is_given(snakemake_words: Callable[..., list[str]], tmp_path: Path) -> None:
    words = snakemake_words("data", "--experiment", "x.py", "--prefix", "out", "--", "-n", "-j", "3")
    project = project_folder()
    assert words[:2] == ["--snakefile", str(project / "Snakefile")]
    assert words[2:4] == ["--workflow-profile", str(project / "profiles" / "default")]
    assert words[4:7] == ["-n", "-j", "3"]
    assert config_of(words) == {"experiment": "x.py", "prefix": "out", "only": '["data"]'}


def test_the_experiment_of_a_step_that_ran_before(snakemake_words: Callable[..., list[str]], tmp_path: Path) -> None:
    described(tmp_path / "out", "/elsewhere/y.py", "raw/data", "stats")
    config = config_of(snakemake_words("raw/data", "--prefix", "out", "--again"))
    assert config["experiment"] == "/elsewhere/y.py"
    assert (json.loads(config["only"]), config["again"]) == (["raw/data"], "true")


def test_the_working_directory_says_what_is_not_given(
    snakemake_words: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("prefix: configured\nexperiment: mine.py\n")
    config = config_of(snakemake_words("data"))
    assert (config["prefix"], config["experiment"]) == ("configured", "mine.py")
    assert config_of(snakemake_words("data", "--prefix", "given"))["prefix"] == "given"


def test_a_step_of_no_known_experiment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "data", "--prefix", "out"]) == 1
    said = capsys.readouterr().err
    assert said == "marin-rules: which experiment has the step data? Add --experiment FILE.\n"
