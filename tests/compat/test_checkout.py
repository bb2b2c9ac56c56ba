"""Marin's own modules from a checkout in the working directory: a plan holds them as it holds the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.lab import Lab

CHECKOUT = {
    "fray/__init__.py": "from fray.current_client import current_client\nfrom fray.types import JobRequest\n",
    "fray/current_client.py": "from .types import KINDS\ndef current_client():\n    return KINDS\n",
    "fray/types.py": "from .kinds import KINDS\nclass ResourceConfig: 'not ours'\nclass JobRequest: 'of Marin'\n",
    "fray/kinds.py": "KINDS = 'cpu, gpu'\n",
    "fray/untouched.py": "raise SystemExit('nobody asked for this')\n",
    "marin/__init__.py": "",
    "marin/tokenize.py": "from fray.current_client import current_client\n",
}

SCRIPT = """
from marin.execution.executor import ExecutorStep, executor_main
from marin.tokenize import current_client

def work(config):
    from fray import JobRequest, ResourceConfig
    return [JobRequest.__doc__, ResourceConfig.__module__, current_client()]

if __name__ == "__main__":
    executor_main([ExecutorStep("work", work, None)])
"""


@pytest.mark.processes
def test_a_name_that_only_marin_has_may_be_asked_for_first_by_a_step(lab: Lab) -> None:
    """At planning nothing asked for `fray.JobRequest`, but a module below `fray` was imported."""
    for name, text in {**CHECKOUT, "script.py": SCRIPT}.items():
        (lab.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (lab.folder / name).write_text(text)
    ran = lab.python("-m", "marin_rules.compat", "script.py", env={"MARIN_PREFIX": str(lab.prefix)})
    assert ran.code == 0, ran.output
    (artifact,) = Path(lab.prefix).glob("work-*/.artifact.json")
    assert '"of Marin"' in artifact.read_text()
    assert '"marin_rules.resources"' in artifact.read_text()
    assert '"cpu, gpu"' in artifact.read_text()
