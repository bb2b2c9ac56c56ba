"""The doors: `marin-rules`, `python experiment.py`, `snakemake` from anywhere; and what they are called with."""

import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.engine.names import rule_names
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenStep
from marin_rules.plans.run import new_run
from marin_rules.resources import ResourceConfig
from marin_rules.settings.profiles import chosen_profile, foreign_profile
from marin_rules.settings.run_settings import Settings, read_settings
from support.lab import Lab

EXPERIMENT = """
    import os
    from dataclasses import dataclass

    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of, versioned

    @dataclass(frozen=True)
    class Config:
        source: object = None
        output_path: str = THIS_OUTPUT_PATH

    def make(config):
        with open(os.path.join(config.output_path, "made"), "w") as file:
            file.write(str(config.source))

    data = ExecutorStep("data", make, Config(versioned("disk")))
    stats = ExecutorStep("stats", make, Config(output_path_of(data)))
    extra = ExecutorStep("extra", make, Config(output_path_of(data)))

    if __name__ == "__main__":
        executor_main(steps=[stats, extra], description="Three steps.")
"""


@pytest.fixture
def program() -> Any:
    """`program("snakemake")` is the program of that name beside this Python."""
    return lambda name: Path(sys.executable).with_name(name)


# -- marin-rules ---------------------------------------------------------------------------------------------


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Where Snakemake looks for the user's profiles, with `XDG_CONFIG_HOME` at `<tmp_path>/config`."""
    return tmp_path / "config" / "snakemake"


@pytest.fixture
def link(lab: Lab, program: Any, tmp_path: Path) -> Any:
    def run() -> str:
        command = [program("marin-rules"), "profiles", "link"]
        result = lab.start(command, env={"XDG_CONFIG_HOME": str(tmp_path / "config")}).wait()
        assert result.code == 0, result.output
        return str(result.output)

    return run


def test_linked_profiles_are_found_by_name(link: Any, profiles: Path, lab: Lab, program: Any, tmp_path: Path) -> None:
    said = link()
    assert f"profile debug: linked as {profiles / 'debug'}" in said.splitlines()
    linked = {entry.name: entry.resolve() for entry in profiles.iterdir()}
    own = {path.parent.name: path.parent for path in (lab.repository / "profiles").glob("*/config.yaml")}
    assert linked == {name: path for name, path in own.items() if name != "default"}
    assert all(entry.is_symlink() for entry in profiles.iterdir())

    before = {entry: entry.lstat().st_mtime_ns for entry in profiles.iterdir()}
    assert link() == ""
    assert {entry: entry.lstat().st_mtime_ns for entry in profiles.iterdir()} == before

    # Snakemake keeps its own files in its working directory: `--directory` leads them away from the project.
    hello_world = lab.repository / "experiments/tutorials/hello_world.py"
    arguments = ["-n", "--profile", "debug", "--directory", tmp_path / "work"]
    found = lab.start(
        [program("snakemake"), *arguments, "--config", f"experiment={hello_world}", f"prefix={lab.prefix}"],
        cwd=lab.repository,
        env={"XDG_CONFIG_HOME": str(tmp_path / "config")},
    ).wait()
    assert found.code == 0, found.output
    assert re.search(r"^Using profiles? .*\bdebug\b", found.output, re.MULTILINE), found.output
    assert "2 steps: 2 would run" in found.output.splitlines()


def test_a_profile_of_the_user_is_left_alone(link: Any, profiles: Path, lab: Lab) -> None:
    mine = profiles / "debug" / "config.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("cores: 1\n")
    said = link()
    assert f"left {profiles / 'debug'} as it is" in said
    assert f"--profile {lab.repository / 'profiles' / 'debug'}" in said
    assert not mine.parent.is_symlink()
    assert mine.read_text() == "cores: 1\n"


def test_a_link_of_the_user_is_left_alone_and_a_dangling_one_replaced(
    link: Any, profiles: Path, lab: Lab, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    profiles.mkdir(parents=True)
    (profiles / "debug").symlink_to(elsewhere)
    assert "left" in link()
    assert (profiles / "debug").resolve() == elsewhere

    elsewhere.rmdir()
    assert "profile debug: linked" in link()
    assert (profiles / "debug").resolve() == lab.repository / "profiles" / "debug"


def test_links_of_other_checkouts(link: Any, profiles: Path, lab: Lab, tmp_path: Path) -> None:
    """One that is there is left and named; of one that is gone, or all but gone, the link is replaced."""
    other = checkout(tmp_path / "other")
    profiles.mkdir(parents=True)
    (profiles / "debug").symlink_to(other / "profiles" / "debug")
    assert f"left {profiles / 'debug'} as it is (it belongs to the checkout {other})" in link()
    assert (profiles / "debug").resolve() == other / "profiles" / "debug"

    (other / "profiles" / "debug" / "config.yaml").unlink()
    assert "profile debug: linked" in link()
    assert (profiles / "debug").resolve() == lab.repository / "profiles" / "debug"


def checkout(folder: Path) -> Path:
    """What makes a folder a checkout of this project."""
    for name in ("Snakefile", "rules/steps.smk", "profiles/debug/config.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("printshellcmds: true\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ([], {}, None),
        (["-n", "--profile", "slurm"], {}, "slurm"),
        (["--profile=a/b", "-n"], {"SNAKEMAKE_PROFILE": "slurm"}, "a/b"),
        (["--profile"], {"SNAKEMAKE_PROFILE": "slurm"}, "slurm"),
        (["--workflow-profile", "x"], {"SNAKEMAKE_PROFILE": ""}, None),
    ],
)
def test_which_profile_a_run_has(arguments: list[str], variables: dict[str, str], expected: str | None) -> None:
    assert chosen_profile(arguments, variables) == expected


def test_a_profile_of_another_checkout_is_told(lab: Lab, tmp_path: Path) -> None:
    other = checkout(tmp_path / "other")
    own = lab.repository / "profiles" / "debug"
    assert foreign_profile(["--profile", str(own)]) is None
    assert foreign_profile(["--profile", str(tmp_path)]) is None
    result = lab.snakemake("-n", "--profile", str(other / "profiles" / "debug"), experiment=lab.experiment(EXPERIMENT))
    assert result.code == 0, result.output
    told = [line for line in result.output.splitlines() if line.startswith("warning: ")]
    assert len(told) == 1
    assert f"another checkout, {other}," in told[0]
    assert f"`--profile {own}` is its own" in told[0]


def test_marin_rules_needs_a_command_it_knows(lab: Lab, program: Any) -> None:
    for arguments in ([], ["profile"], ["profiles"], ["profiles", "unlink"]):
        result = lab.start([program("marin-rules"), *arguments]).wait()
        assert result.code == 2
        assert "usage: marin-rules" in result.output
        assert "Traceback" not in result.output


def test_a_config_folder_that_may_not_be_written(lab: Lab, program: Any, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file")
    command = [program("marin-rules"), "profiles", "link"]
    result = lab.start(command, env={"XDG_CONFIG_HOME": str(tmp_path / "config")}).wait()
    assert result.code == 1
    assert result.output.startswith("marin-rules: ")
    assert str(tmp_path / "config") in result.output
    assert len(result.output.splitlines()) == 1


# -- snakemake and python from anywhere ----------------------------------------------------------------------


def test_an_experiment_outside_the_repository(lab: Lab, program: Any, tmp_path: Path) -> None:
    where = lab.start([program("marin-rules"), "snakefile"]).wait()
    assert where.code == 0
    snakefile = Path(where.output.strip())
    assert snakefile == lab.repository / "Snakefile"

    folder = lab.experiment(EXPERIMENT, "elsewhere/three.py").parent
    # A prefix from the environment, which counts when nothing else names one.
    done = lab.start(
        [program("snakemake"), "--snakefile", snakefile, "--config", "experiment=three.py"],
        cwd=folder,
        env={"MARIN_PREFIX": str(lab.prefix)},
    ).wait()
    assert done.code == 0, done.output
    assert {lab.status_of(name) for name in ("data", "stats", "extra")} == {"SUCCESS"}
    assert {entry.name for entry in folder.iterdir()} == {"three.py", ".snakemake"}
    (description,) = (lab.prefix / "experiments").glob("*.json")
    assert re.fullmatch(r"three-[0-9a-f]{6}\.json", description.name)


def test_flags_of_an_experiment_file(lab: Lab, tmp_path: Path) -> None:
    script = lab.experiment(EXPERIMENT, "scripts/three.py")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    flags = ["--prefix", "out", "--run_only", '["^stats"]', "--max_concurrent", "4"]
    flags += ["--force_run_failed", "false", "--executor_info_base_path", "infos"]

    said = lab.python(script, *flags, "--dry_run", cwd=folder, env={"MARIN_PREFIX": str(tmp_path / "ignored")})
    assert said.code == 0, said.output
    assert "3 steps: 2 would run, 1 not needed" in said.output.splitlines()
    assert re.search(r"^would run +stats +out/stats-[0-9a-f]{6}", said.output, re.MULTILINE)
    assert {entry.name for entry in folder.iterdir()} <= {".snakemake"}
    assert list(Path(lab.environment["TMPDIR"]).glob("marin-rules-*")) == []

    done = lab.python(script, *flags, cwd=folder)
    assert done.code == 0, done.output
    assert "3 steps: 2 to run, 1 not needed" in done.output.splitlines()
    out = folder / "out"
    statuses = {path.parent.name[:-7]: path.read_text() for path in out.glob("*/.executor_status")}
    assert statuses == {"data": "SUCCESS", "stats": "SUCCESS"}
    (data,) = out.glob("data-*")
    (made,) = out.glob("stats-*/made")
    assert made.read_text() == f"out/{data.name}"
    assert {re.sub("[0-9a-f]{6}", "HASH", path.name) for path in (folder / "infos").iterdir()} >= {"three-HASH.json"}
    assert not (out / "experiments").exists()
    assert not (tmp_path / "ignored").exists()
    assert {entry.name for entry in script.parent.iterdir()} == {"three.py"}

    # The same steps have the same paths through the other door: all is there already.
    again = lab.python(script, *flags[:2], "--run_only", '["^stats"]', "--dry_run", "true", cwd=folder)
    assert again.code == 0, again.output
    assert "3 steps: 2 cached, 1 not needed" in again.output.splitlines()


# -- names of rules ------------------------------------------------------------------------------------------


def work(config: Any) -> None:
    pass


@pytest.fixture
def step(tmp_path: Path) -> FrozenStep:
    """A step of a real plan, of which others can be made."""
    plan = make_plan([ExecutorStep("data", work, {})], prefix=str(tmp_path))
    return freeze(plan, new_run(prefix=str(tmp_path), caller_path="experiment.py")).steps[0]


def names(step: FrozenStep, *functions: str, rules: tuple[str, ...] = ()) -> dict[str, str]:
    steps = [replace(step, function=function) for function in functions]
    steps += [replace(step, function=f"rule {rule}", rule=rule) for rule in rules]
    return {function: rule for (function, _), rule in rule_names(steps).items()}


def test_a_rule_has_the_name_of_its_function(step: FrozenStep) -> None:
    assert names(step, "package.tokenize", "__main__.train", "package.tokenize") == {
        "package.tokenize": "tokenize",
        "__main__.train": "train",
    }


def test_functions_of_one_name_are_told_apart_by_their_modules(step: FrozenStep) -> None:
    assert names(step, "books.tokenize", "code.tokenize", "code.train") == {
        "books.tokenize": "books_tokenize",
        "code.tokenize": "code_tokenize",
        "code.train": "train",
    }
    assert names(step, "a.data.load", "b.data.load") == {
        "a.data.load": "data_load",
        "b.data.load": "b_data_load",
    }


@pytest.mark.parametrize(
    "functions",
    [
        ["package.all"],
        ["all"],
        ["__main__.<lambda>"],
        ["__main__.<lambda>", "other.<lambda>"],
        ["package.make.<locals>.inner", "package.build.<locals>.inner"],
        ["__main__.größe", "__main__.数据", "__main__.资料"],
        ["__main__._", "__main__.__"],
        ["__main__.2nd", "__main__.a-b", "__main__.a b", "__main__.a_b"],
        ["package.Trainer.run", "package.Trainer_run", "run"],
        ["functools.partial", "x.partial"],
        ["<lambda>"],
    ],
    ids=lambda functions: ",".join(functions),
)
def test_every_name_is_safe_and_the_only_one(functions: list[str], step: FrozenStep) -> None:
    found = names(step, *functions)
    assert set(found) == set(functions)
    assert len(set(found.values())) == len(functions)
    for name in found.values():
        assert name != "all"
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)


def test_a_function_that_is_sent_away_and_stays_has_two_rules(step: FrozenStep) -> None:
    machines = MachineRequest.from_resources(ResourceConfig.with_cpu())
    here, away = (replace(step, function="package.train", machines=request) for request in (None, machines))
    taken = replace(step, function="other.train_here")
    assert rule_names([away]) == {("package.train", True): "train"}
    assert rule_names([here, away, taken]) == {
        ("package.train", False): "train_here_",
        ("package.train", True): "train",
        ("other.train_here", False): "train_here",
    }


def test_rules_written_by_hand_keep_their_names(step: FrozenStep) -> None:
    assert names(step, "package.count", rules=("count",)) == {"package.count": "package_count"}


def test_names_do_not_depend_on_how_many_steps_there_are(step: FrozenStep) -> None:
    few = names(step, "a.load", "b.load")
    assert names(step, *["a.load", "b.load"] * 50) == few


# -- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, Settings()),
        ({"experiment": "x.py", "prefix": None}, Settings(experiment="x.py")),
        ({"run_only": "^stats"}, Settings(run_only=("^stats",))),
        ({"run_only": ["^stats", "data"]}, Settings(run_only=("^stats", "data"))),
        ({"run_only": 7}, Settings(run_only=("7",))),
        ({"force": "^stats$"}, Settings(force=("^stats$",))),
        ({"force_run_failed": False}, Settings(force_run_failed=False)),
        ({"force_run_failed": "false"}, Settings(force_run_failed=False)),
        ({"force_run_failed": "true"}, Settings(force_run_failed=True)),
        ({"rules": "more.smk"}, Settings(rules=("more.smk",))),
        ({"rules": []}, Settings()),
        ({"cluster": "mine", "max_concurrent": 3}, Settings(cluster="mine", max_concurrent=3)),
        ({"max_usd": 25}, Settings(max_usd=25)),
        ({"max_usd": 0.5}, Settings(max_usd=0.5)),
        ({"only": "a-123456", "again": "true"}, Settings(only=("a-123456",), again=True)),
    ],
)
def test_settings_that_can_be_used(config: dict[str, Any], expected: Settings) -> None:
    assert read_settings(config) == expected


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({"prefx": "out"}, ["'prefx'", "Did you mean 'prefix'?", "Known keys: experiment, prefix"]),
        ({"zzz": 1}, ["'zzz'", "Known keys"]),
        ({"run_onyl": "x"}, ["Did you mean 'run_only'?"]),
        ({"force_run_failed": "perhaps"}, ["'force_run_failed'", "true or false"]),
        ({"force_run_failed": 7}, ["'force_run_failed'", "7", "true or false"]),
        ({"prefix": 7}, ["'prefix'", "7", "folder"]),
        ({"prefix": ""}, ["'prefix'", "folder"]),
        ({"experiment": ["a.py", "b.py"]}, ["'experiment'", "a Python file"]),
        ({"run_only": {"name": "x"}}, ["'run_only'", "regular expressions"]),
        ({"run_only": [1, 2]}, ["'run_only'", "regular expressions"]),
        ({"rules": 3}, ["'rules'", "Snakemake rules"]),
        ({"cluster": ""}, ["'cluster'", "config/clusters"]),
        ({"max_concurrent": 0}, ["'max_concurrent'", "at least 1", "how many steps"]),
        ({"max_concurrent": "many"}, ["'max_concurrent'", "how many steps"]),
        ({"max_usd": -1}, ["'max_usd'", "at least 0", "US dollars"]),
        ({"max_usd": "little"}, ["'max_usd'", "US dollars"]),
        ({"again": True}, ["'again'", "`only`"]),
    ],
)
def test_settings_that_cannot_be_used(config: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(config)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_setting_is_explained_in_the_file_that_people_edit(lab: Lab) -> None:
    explained = (lab.repository / "config" / "config.yaml").read_text()
    for setting in fields(Settings):
        assert re.search(rf"^(# )?{setting.name}:", explained, re.MULTILINE), setting.name
