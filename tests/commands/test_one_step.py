"""`marin-rules run | show | delete STEP`: a step by its name, its `<name>-<hash>`, its path or a regular expression."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.errors import MarinRulesError
from marin_rules.plans.prepare import prepare_experiment
from marin_rules.plans.step_names import matching
from marin_rules.settings.run_settings import Settings
from marin_rules.state.written_steps import WrittenStep
from marin_rules.upkeep.deletion import check_deletable, delete_step
from support.lab import Lab

EXPERIMENT = """
    import os
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of, versioned

    def write(config):
        print("writing", os.path.basename(config["path"]))
        with open(os.path.join(config["path"], "file"), "a") as file:
            file.write("x")

    data = ExecutorStep("raw/data", write, {"path": THIS_OUTPUT_PATH, "size": versioned(3)}, description="Some data.")
    stats = ExecutorStep("stats", write, {"path": THIS_OUTPUT_PATH, "data": output_path_of(data)})
    other = ExecutorStep("other", write, {"path": THIS_OUTPUT_PATH})

    if __name__ == "__main__":
        executor_main(steps=[stats, other])
"""


@pytest.fixture
def marin_rules(lab: Lab) -> Callable[..., Any]:
    """`marin_rules("show", "data")` runs the command to its end."""
    return lambda *words: lab.start([Path(sys.executable).with_name("marin-rules"), *words]).wait()


def test_one_step_is_run_shown_and_deleted(lab: Lab, marin_rules: Any, tmp_path: Path) -> None:
    file = lab.experiment(EXPERIMENT)
    where = ("--prefix", str(lab.prefix))

    ran = marin_rules("run", "stats", *where, "--experiment", str(file))
    assert ran.code == 0, ran.output
    assert (lab.status_of("raw/data"), lab.status_of("stats"), lab.status_of("other")) == ("SUCCESS", "SUCCESS", None)
    data, stats = lab.folder_of("raw/data"), lab.folder_of("stats")

    again = marin_rules("run", stats.name, *where, "--again", "--", "-j", "1")  # The experiment is known by now.
    assert again.code == 0, again.output
    assert (stats / "file").read_text() == "xx"
    assert (data / "file").read_text() == "x"

    for text in ("raw/data", f"raw/{data.name}", str(data), "^raw"):
        shown = marin_rules("show", text, *where)
        assert shown.code == 0, shown.output
        lines = [line.split(maxsplit=1) for line in shown.output.splitlines()]
        for pair in (["step", "raw/data"], ["path", str(data)], ["status", "SUCCESS"], ["description", "Some data."]):
            assert pair in lines, pair
        assert '"size": 3' in shown.output
        assert f"used by:\n  {stats}  SUCCESS" in shown.output
        assert f"  writing {data.name}\n" in shown.output
    assert f"depends on:\n  {data}  SUCCESS" in marin_rules("show", "stats", *where).output
    new = marin_rules("show", "other", *where)
    assert ["status", "not run"] in [line.split(maxsplit=1) for line in new.output.splitlines()]

    for text, said in (("nosuch", "no step 'nosuch'"), ("a", "may be one of several steps"), ("(", "no step '('")):
        unknown = marin_rules("show", text, *where)
        assert (unknown.code, said in unknown.output) == (1, True), unknown.output

    refused = marin_rules("delete", "raw/data", *where)
    assert refused.code == 1
    assert "add --yes" in refused.output
    assert (data / "file").exists()

    deleted = marin_rules("delete", "raw/data", *where, "--yes")
    assert deleted.code == 0, deleted.output
    assert f"  {stats}  SUCCESS" in deleted.output
    assert os.listdir(data.parent) == []
    assert lab.status_of("stats") == "SUCCESS"
    gone = marin_rules("delete", "raw/data", *where, "--yes")
    assert gone.code == 1
    assert "does not exist" in gone.output


def test_of_several_steps_of_one_name_the_one_that_is_meant_is_run(lab: Lab, marin_rules: Any) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, versioned

        def train(config):
            with open(os.path.join(config["path"], "file"), "a") as file:
                file.write("x")

        if __name__ == "__main__":
            steps = [ExecutorStep("train", train, {"path": THIS_OUTPUT_PATH, "rate": versioned(n)}) for n in range(3)]
            executor_main(steps=steps)
        """
    )
    where = ("--prefix", str(lab.prefix), "--experiment", str(file))
    plan = prepare_experiment(Settings(experiment=str(file), prefix=str(lab.prefix)))
    first, second, _ = (Path(step.output_path) for step in plan.steps)

    def trained() -> dict[str, str]:
        return {path.parent.name: path.read_text() for path in lab.prefix.glob("train-*/file")}

    for text in (first.name, str(second)):
        ran = marin_rules("run", text, *where)
        assert ran.code == 0, ran.output
    assert trained() == {first.name: "x", second.name: "x"}
    again = marin_rules("run", str(first), *where, "--again")
    assert again.code == 0, again.output
    assert trained() == {first.name: "xx", second.name: "x"}
    assert "3 steps: 1 to run, 1 cached, 1 not needed" in again.output


def test_a_step_that_the_experiment_does_not_have_is_not_run(lab: Lab, marin_rules: Any) -> None:
    file = lab.experiment(EXPERIMENT)
    ran = marin_rules("run", "^stat", "--prefix", str(lab.prefix), "--experiment", str(file))
    assert ran.code == 0, ran.output
    (stats,) = lab.prefix.glob("stats-*")
    os.rename(stats, lab.prefix / "stats-0123ab")  # As if the step had had another config then.
    for text, said in (
        ("nosuch", f"{file} has no step 'nosuch'. If another experiment has it, name that with --experiment FILE."),
        ("stat-s", "has no step 'stat-s'. Did you mean 'stats'?"),
        ("stats-0123ab", f"As the file is now, the step has another version: {stats.name}."),
        (str(lab.prefix / "stats-0123ab"), f"As the file is now, the step has another version: {stats.name}."),
    ):
        refused = marin_rules("run", text, "--prefix", str(lab.prefix), "--experiment", str(file), "--", "-n")
        assert (refused.code, said in " ".join(refused.output.split())) == (1, True), refused.output


def test_a_step_that_somebody_works_on_is_not_deleted(lab: Lab, marin_rules: Any) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main

        def wait(config):
            open("gate").read()

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep("slow", wait, [])])
        """
    )
    run = lab.start_snakemake(experiment=file)
    run.wait_for(lambda: list(lab.prefix.glob("slow-*/.executor_info")), "the step runs")
    refused = marin_rules("delete", "slow", "--prefix", str(lab.prefix), "--yes")
    assert refused.code == 1
    assert "is in use: held by" in refused.output
    lab.open_gate()
    assert run.wait().code == 0
    assert (lab.folder_of("slow") / ".executor_status").read_text() == "SUCCESS"


@pytest.fixture
def step_folder(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / ".executor_status").write_text("SUCCESS")
        return folder

    return make


def test_deletion_stays_below_the_prefix(step_folder: Callable[[str], Path], tmp_path: Path) -> None:
    outside, prefix = step_folder("elsewhere/a-123456"), tmp_path / "out"
    prefix.mkdir()
    (prefix / "a-123456").symlink_to(outside)
    (prefix / "folder").symlink_to(outside.parent)
    for path in (prefix / "a-123456", prefix / "folder" / "a-123456"):
        with pytest.raises(MarinRulesError, match="leads through a symbolic link to"):
            delete_step(str(path), str(prefix))
    assert (outside / ".executor_status").exists()

    own = step_folder("out/b-123456")
    (own / "link").symlink_to(outside)
    delete_step(str(own), str(prefix))
    assert sorted(os.listdir(prefix)) == ["a-123456", "folder"]
    assert (outside / ".executor_status").exists()

    linked = tmp_path / "linked"  # A prefix that is a link itself is as good as the folder.
    linked.symlink_to(prefix)
    step_folder("out/c-123456")
    delete_step(str(linked / "c-123456"), str(linked))
    assert not (prefix / "c-123456").exists()


def test_a_folder_with_another_step_inside_and_one_in_a_bucket_are_refused(
    step_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    outer = step_folder("out/a-123456")
    step_folder("out/a-123456/inner/b-654321")
    with pytest.raises(MarinRulesError, match=r"holds the folder of another step, .*b-654321"):
        delete_step(str(outer), str(tmp_path / "out"))
    with pytest.raises(MarinRulesError, match="is in a bucket"):
        check_deletable("gs://bucket/a-123456", "gs://bucket")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("train", ["train"]),
        ("train-aaaaaa", ["train"]),
        ("/p/train/big-bbbbbb", ["train/big"]),
        ("big$", ["train/big"]),
        ("^tr", ["train", "train/big"]),
        ("nothing", []),
        ("[", []),
    ],
)
def test_which_steps_a_text_means(text: str, names: list[str]) -> None:
    steps = [WrittenStep("train", "/p/train-aaaaaa"), WrittenStep("train/big", "/p/train/big-bbbbbb")]
    assert [step.name for step in matching(steps, text, "/p")] == names
