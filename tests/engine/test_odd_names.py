"""Names and prefixes with characters that mean something to a shell, to Snakemake or to a browser: they just work."""

import json
import re
from pathlib import Path

from support.lab import Lab

NAMES = ["a <word> & b", "a{b}c", "~/x", "x</script>y", "\u6f22" * 30, "-n", "$HOME;`id`", "long" * 50]

ODD = f"""
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, SnakemakeRule, executor_main

    def note(config):
        for name in ("plot{{x}}.txt", "<table>.csv"):
            with open(config["path"] + "/" + name, "w") as file:
                file.write("a,b\\n")

    config = {{"path": THIS_OUTPUT_PATH}}
    steps = [ExecutorStep(name, note, config, report=["*.txt", "*.csv"]) for name in {NAMES!r}]
    steps.append(ExecutorStep("by hand {{1}}", SnakemakeRule("by_hand"), {{"before": steps[0], **config}}))

    if __name__ == "__main__":
        executor_main(steps=steps)
"""

BY_HAND = """
rule by_hand:
    input:
        marin.inputs,
    output:
        marin.target("by_hand"),
    log:
        marin.log,
    params:
        path=marin.output_path,
    shell:
        marin.leased("echo made > {params.path:q}/made")
"""


def test_names_and_prefixes(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(ODD, "odd.py")
    (tmp_path / "odd.smk").write_text(BY_HAND)
    prefix = tmp_path / "o{x} <y> $z"
    result = lab.snakemake("-j", "2", experiment=file, prefix=prefix)
    assert result.code == 0, result.output
    statuses = [path.read_text() for path in prefix.rglob(".executor_status")]
    assert statuses == ["SUCCESS"] * (len(NAMES) + 1)
    names = {json.loads(path.read_text())["name"] for path in prefix.rglob(".executor_info")}
    assert names == {*NAMES, "by hand {1}"}
    (made,) = prefix.glob("by hand {1}-*/made")
    assert made.read_text() == "made\n"
    assert not list(tmp_path.glob("~*"))

    report = lab.snakemake("--report", "report.html", experiment=file, prefix=prefix)
    assert report.code == 0, report.output
    page = (tmp_path / "report.html").read_text()
    assert re.search(r"a <.{0,6}word> & b/<.{0,6}table>\.csv", page), "it may hold characters that nobody sees"
    assert "x</script>y" not in page, "a browser would end the script there"

    again = lab.python(file, "--prefix", prefix, "--dry_run")
    assert again.code == 0, again.output
    assert f"{len(NAMES) + 1} steps: {len(NAMES) + 1} cached" in again.output
