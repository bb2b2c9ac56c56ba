"""What a step gets from its driver: its own variables, the working directory, the code as planned; and nothing else."""

import base64
import hashlib
import json
import sys
from pathlib import Path

import pytest

from support.lab import Lab

SECRETIVE = """
    import hashlib
    import json
    import os
    import time
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, SnakemakeRule, executor_main, remote, versioned

    def look(config):
        seen = {name: hashlib.sha256(value.encode()).hexdigest() for name, value in os.environ.items()}
        with open(os.path.join(config["path"], "seen.new"), "w") as file:
            json.dump(seen, file)
        os.rename(os.path.join(config["path"], "seen.new"), os.path.join(config["path"], "seen"))
        while not os.path.exists("go"):
            time.sleep(0.02)

    def step(name, fn):
        return ExecutorStep(name=name, fn=fn, config={"path": THIS_OUTPUT_PATH, "name": versioned(name)})

    steps = [
        step("one", remote(look, env_vars={"TOKEN": os.environ["FIRST"], "MODE": "fast"})),
        step("two", remote(look, env_vars={"TOKEN": os.environ["SECOND"]})),
        step("none", look),
        step("shell", remote(SnakemakeRule("look_too"), env_vars={"TOKEN": os.environ["SECOND"]})),
    ]

    if __name__ == "__main__":
        executor_main(steps=steps)
"""

SECRETIVE_RULE = """
    rule look_too:
        input:
            marin.inputs,
        output:
            marin.target("look_too"),
        params:
            path=marin.output_path,
        shell:
            marin.leased(
                '''
                compgen -e > {params.path:q}/names
                printf %s "$TOKEN" | sha256sum > {params.path:q}/seen
                until [ -e go ]; do sleep 0.05; done
                '''
            )
"""


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_variables_reach_their_step_and_no_file_or_command_line(door: str, lab: Lab, tmp_path: Path) -> None:
    secrets = {"FIRST": "swordfish-0451", "SECOND": "open-sesame-1001"}
    file = lab.experiment(SECRETIVE)
    lab.experiment(SECRETIVE_RULE, "experiment.smk")
    if door == "snakemake":
        run = lab.start_snakemake("-j", "4", "-p", experiment=file, env=secrets)
    else:
        run = lab.start([sys.executable, file, "--prefix", lab.prefix, "--max_concurrent", "4"], env=secrets)
    run.wait_for(lambda: len(list(lab.prefix.glob("*/seen"))) == 4, "all four steps run")

    spellings = [spelling for value in secrets.values() for spelling in spellings_of(value)]
    for pid, command in run.command_lines().items():
        assert not any(spelling.decode() in command for spelling in spellings), pid
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "plan" for path in files)
    for path in files:
        data = path.read_bytes()
        assert not any(spelling in data for spelling in spellings), path

    (tmp_path / "go").touch()
    result = run.wait()
    assert result.code == 0, result.output
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert not any(spelling in data for spelling in spellings), path

    seen = {name: json.loads((lab.folder_of(name) / "seen").read_text()) for name in ("one", "two", "none")}
    first, second = (hashlib.sha256(value.encode()).hexdigest() for value in secrets.values())
    assert seen["one"]["TOKEN"] == first
    assert seen["one"]["MODE"] == hashlib.sha256(b"fast").hexdigest()
    assert seen["two"]["TOKEN"] == second
    assert (lab.folder_of("shell") / "seen").read_text().split()[0] == second
    assert "MODE" not in seen["two"]
    assert not {"TOKEN", "MODE"} & seen["none"].keys()
    shell_names = (lab.folder_of("shell") / "names").read_text().split()
    for names in (*seen.values(), shell_names):
        assert "FIRST" in names, "what the user has set is there"
        assert not [name for name in names if name.startswith("MARIN_RULES_")]


def spellings_of(secret: str) -> list[bytes]:
    return [secret.encode(), base64.b64encode(secret.encode()).rstrip(b"=")[:-1]]


def test_modules_beside_the_experiment_and_functions_of_one_name(lab: Lab, tmp_path: Path) -> None:
    for letter in ("alpha", "beta"):
        lab.experiment(
            f"""
            import os

            def work(config):
                from helpers import greeting

                with open("ran", "a") as file:
                    file.write("{letter}\\n")
                with open(os.path.join(config["path"], "said"), "w") as file:
                    file.write(greeting("{letter}") + " in " + os.getcwd())
            """,
            f"project/{letter}.py",
        )
    lab.experiment("def greeting(name):\n    return f'hello from {name}'\n", "project/helpers.py")
    file = lab.experiment(
        """
        import alpha
        import beta
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

        def work(config):
            alpha.work(config)

        steps = [
            ExecutorStep(name=name, fn=fn, config={"path": THIS_OUTPUT_PATH})
            for name, fn in {"a": alpha.work, "b": beta.work, "c": work}.items()
        ]

        if __name__ == "__main__":
            executor_main(steps=steps)
        """,
        "project/experiment.py",
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = lab.snakemake(experiment=file, cwd=elsewhere)
    assert result.code == 0, result.output
    assert (lab.folder_of("a") / "said").read_text() == f"hello from alpha in {elsewhere}"
    assert (lab.folder_of("b") / "said").read_text() == f"hello from beta in {elsewhere}"
    assert (lab.folder_of("c") / "said").read_text() == f"hello from alpha in {elsewhere}"
    assert [lab.info_of(name)["fn_name"] for name in "ab"] == ["alpha.work", "beta.work"]

    # Three functions, three rules: one can be forced without the others.
    (elsewhere / "ran").unlink()
    result = lab.snakemake("--forcerun", "beta_work", experiment=file, cwd=elsewhere)
    assert result.code == 0, result.output
    assert (elsewhere / "ran").read_text().split() == ["beta"]


SPELT_OUT = {
    "short.py": """
        def answer():
            return "4 as planned"
    """,
    "spelt.py": """
        TOKEN = "xyzzy-plugh-7331"

        def answer():
            return "as planned"
    """,
    "kept.py": """
        TOKEN = "xyzzy-plugh-7331"

        def answer():
            return "not edited"
    """,
    "experiment.py": """
        import kept
        import short
        import spelt
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, remote

        def wait(config):
            open("gate").read()

        def answer(config):
            module = __import__(config["module"])
            with open(config["path"] + "/answer", "w") as file:
                file.write(module.answer())

        answering = remote(answer, env_vars={"EMPTY": "", "THREADS": "4", "TOKEN": spelt.TOKEN})
        waiting = ExecutorStep("waiting", wait, None)
        steps = [
            ExecutorStep(name, answering, {"path": THIS_OUTPUT_PATH, "module": name, "after": waiting})
            for name in ("short", "spelt", "kept")
        ]

        if __name__ == "__main__":
            executor_main(steps=steps)
    """,
}


def test_modules_that_hold_the_values_of_variables(lab: Lab) -> None:
    files = {name: lab.experiment(text, name) for name, text in SPELT_OUT.items()}
    run = lab.start_snakemake("-k", "-j", "3", experiment="experiment.py")
    run.wait_for(lambda: lab.status_of("waiting") == "RUNNING", "a step runs")
    (plan,) = lab.prefix.glob("experiments/.runs/*/plan")
    assert b"xyzzy-plugh-7331" not in plan.read_bytes()
    for name in ("short.py", "spelt.py"):
        files[name].write_text("def answer():\n    return 'edited'\n")
    lab.open_gate()
    result = run.wait()
    assert result.code == 1, result.output
    assert (lab.folder_of("short") / "answer").read_text() == "4 as planned"
    assert (lab.folder_of("kept") / "answer").read_text() == "not edited"
    assert lab.status_of("spelt") == "FAILED"
    assert f"ImportError: {files['spelt.py']} was edited after the run was planned" in result.output
    assert "xyzzy-plugh-7331" not in result.output


EDITED = {
    "experiment.py": """
        import os
        import grammar
        from dataclasses import dataclass
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

        WORD = "planned"

        @dataclass(frozen=True)
        class Config:
            inputs: list
            word: str = WORD
            path: str = THIS_OUTPUT_PATH

            def sentence(self):
                return f"{self.word} {WORD} {helper()}"

        def helper():
            return WORD

        def wait(config):
            with open("waits", "w"):
                pass
            open("gate").read()

        def write(config):
            with open(os.path.join(config.path, "words"), "w") as file:
                file.write(config.sentence())

        first = ExecutorStep(name="first", fn=wait, config=Config(inputs=[]))
        second = ExecutorStep(name="second", fn=write, config=Config(inputs=[first]))
        third = ExecutorStep(name="third", fn=grammar.write, config=Config(inputs=[first]))

        if __name__ == "__main__":
            executor_main(steps=[second, third])
    """,
    "grammar.py": """
        import os

        WORD = "planned"

        def write(config):
            with open(os.path.join(config.path, "words"), "w") as file:
                file.write(WORD)
    """,
}


@pytest.mark.parametrize("edited", EDITED)
def test_an_edit_during_a_run_changes_nothing_that_was_planned(edited: str, lab: Lab, tmp_path: Path) -> None:
    files = {name: lab.experiment(source, name) for name, source in EDITED.items()}
    run = lab.start_snakemake(experiment=files["experiment.py"])
    run.wait_for((tmp_path / "waits").exists, "the first step runs")
    lab.experiment(EDITED[edited].replace('"planned"', '"edited"').replace('"second"', '"renamed"'), edited)
    lab.open_gate()
    result = run.wait()
    assert result.code == 0, result.output
    assert (lab.folder_of("second") / "words").read_text() == "planned planned planned"
    assert (lab.folder_of("third") / "words").read_text() == "planned"


NAMED_CLUSTER = """
    import os
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    def look(config):
        with open(os.path.join(config["path"], "cluster"), "w") as file:
            file.write(os.environ["MARIN_CLUSTER"])

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name="look", fn=look, config={"path": THIS_OUTPUT_PATH})])
"""


def test_a_step_finds_the_cluster_of_its_run(lab: Lab) -> None:
    experiment = lab.experiment(NAMED_CLUSTER)
    clusters = lab.folder / "config" / "clusters"
    clusters.mkdir(parents=True)
    for name in ("chosen", "other"):
        (clusters / f"{name}.yaml").write_text("data: {}\n")
    result = lab.snakemake(experiment=experiment, config={"cluster": "chosen"}, env={"MARIN_CLUSTER": "other"})
    assert result.code == 0, result.output
    assert (lab.folder_of("look") / "cluster").read_text() == "chosen"
