"""Code after `executor_main` is found, wherever the call stands, and told under Snakemake."""

from __future__ import annotations

import textwrap

import pytest

from marin_rules.plans.code_after import line_after_executor_main
from support.lab import Lab


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("executor_main(steps=[])", None),
        ("executor_main(steps=[])\nprint()", 2),
        ("executor_main(steps=[])\nexecutor_main(steps=[])", None),
        ("executor_main(steps=[])\ndef f(): pass\n", None),
        ("if main:\n    marin_rules.executor_main(steps=[])\n    report()", 3),
        ("if main:\n    executor_main(steps=[])\nreport()", 3),
        ("if main:\n    executor_main(steps=[])\nelse:\n    report()", None),
        ("def main():\n    executor_main(steps=[])\nmain()", None),
        ("def main():\n    executor_main(steps=[])\n    report()\nmain()", 3),
        ("try:\n    executor_main(steps=[])\nfinally:\n    close()", 4),
        ("try:\n    executor_main(steps=[])\nexcept E:\n    executor_main(steps=[])\n    report()", 5),
        ("with a:\n    executor_main(steps=[])", None),
        ("executor_main.__wrapped__(config, steps=[])\nreport()", 2),
        ("x = 1", None),
    ],
)
def test_where_a_file_goes_on(source: str, line: int | None) -> None:
    assert line_after_executor_main(textwrap.dedent(source)) == line


def test_it_is_told_under_snakemake_alone(lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main
        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep("a", print, [])])
            print("after the steps")
        """
    )
    told = f"warning: {file} continues after executor_main (line 5): `snakemake` runs that code before the steps"
    result = lab.snakemake("-n", experiment=file)
    assert told in result.output
    assert result.output.index("after the steps") < result.output.index("would run")
    result = lab.python(file, "--prefix", lab.prefix, "--dry_run")
    assert "warning" not in result.output
    assert result.output.index("would run") < result.output.index("after the steps")
