"""The contract on identity: a thousand steps whose versions, paths and configs Marin itself has computed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = REPOSITORY.parent / "shared" / "golden"


def test_every_golden_vector_is_met() -> None:
    if not (GOLDEN / "check.py").is_file():
        reason = f"the golden vectors are not beside the repository ({GOLDEN})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)

    checked = subprocess.run(
        [
            sys.executable,
            str(GOLDEN / "check.py"),
            str(GOLDEN / "public.json"),
            "--module=marin_rules",
            "--strict",
        ],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    said = checked.stdout + checked.stderr
    assert checked.returncode == 0, said
    summary = re.search(
        r"^(\d+)/(\d+) graphs pass \((\d+) steps\), 0 fail, 0 allowed failures, \d+ skipped \[(.*)\],",
        checked.stdout,
        re.MULTILINE,
    )
    assert summary, said
    passed, checked_graphs, steps = map(int, summary.groups()[:3])
    assert passed == checked_graphs
    # Fewer would mean that the file, or the way it is read, has lost some of them.
    assert checked_graphs >= 137
    assert steps >= 976
    # StepSpec is not part of this package, jax not of its environment; numpy is.
    assert set(re.findall(r"'(.*?)'", summary[4])) <= {"StepSpec", "jax.numpy"}
    assert "not offered" not in said
