"""Many short jobs at once: each gets the answer that is meant for it."""

from pathlib import Path
from typing import Any

STEPS = 150


def test_many_short_steps_side_by_side(experiment: Any, snakemake: Any, tmp_path: Path) -> None:
    path = experiment(
        f"""
        from marin_rules import ExecutorStep, executor_main, this_output_path, versioned

        def write(config):
            with open(config["path"], "w") as file:
                file.write(str(config["number"]))

        executor_main(steps=[
            ExecutorStep(f"short/{{i}}", write, {{"number": versioned(i), "path": this_output_path("number")}})
            for i in range({STEPS})
        ])
        """
    )
    result = snakemake("-j", "8", experiment=path)
    assert result.code == 0, result.output
    numbers = sorted(int(file.read_text()) for file in tmp_path.rglob("short/*/number"))
    assert numbers == list(range(STEPS))
