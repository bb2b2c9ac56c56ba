"""When a step that is run again is finished: what Snakemake's statistics are made of."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.run import new_run
from marin_rules.state.info import step_info
from marin_rules.units import timestamp


def do(config: Any) -> None:
    """Never called here."""


@pytest.mark.parametrize(
    ("by", "age", "forced", "live", "is_now"),
    [
        ("this run", 0, True, True, True),
        ("this run", 3600, True, True, True),  # The worker's clock is slow.
        ("another run", 0, True, True, True),  # It did the step while this run waited.
        ("another run", 3600, True, True, False),
        ("another run", 0, True, False, False),
        ("another run", 3600, False, True, False),
        (None, 0, True, True, False),
    ],
)
def test_a_step_that_is_run_again_ends_when_it_ends(
    by: str | None, age: int, forced: bool, live: bool, is_now: bool, tmp_path: Path
) -> None:
    run = new_run(prefix=str(tmp_path), caller_path="x.py")
    plan = freeze(make_plan([ExecutorStep("a", do, {})], prefix=str(tmp_path)), run)
    (step,) = plan.steps
    folder = Path(step.output_path)
    folder.mkdir()
    (folder / ".executor_status").write_text("SUCCESS")
    in_process = PlanInProcess(plan)
    began = time.time()
    in_process.assess(lambda step: forced)
    in_process.live = live
    assert in_process.finished_at(step.key) == 0
    if by is not None:
        notes = {"id": run.id if by == "this run" else "other", "finished": timestamp(time.time() - age)}
        (folder / ".executor_info").write_text(json.dumps(step_info(plan, step) | {"run": notes}))
    moment = in_process.finished_at(step.key)
    assert (moment >= began) if is_now else (moment == 0)
    assert in_process.finished_at(step.key) == moment
