"""What wants a fresh Python: `python -m benchmarks.fresh WHAT FOLDER` prints what it found as JSON."""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from pathlib import Path

from marin_rules.placement import place
from marin_rules.plan import make_plan
from marin_rules.plans.experiment_file import load_experiment
from marin_rules.plans.freezing import freeze
from marin_rules.plans.plan_file import write_plan
from marin_rules.plans.prepare import prepare_experiment
from marin_rules.plans.run import new_run
from marin_rules.settings.run_settings import Settings
from marin_rules.state.info import info_bytes, info_path, step_info
from marin_rules.state.status import Status, status_path
from marin_rules.state.step_lease import open_lease
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.regions import region_of
from marin_rules.units import timestamp


def plan(folder: Path) -> dict[str, float]:
    """CPU seconds to plan the experiment of a workspace, to place its steps, and to write the plan as bytes."""
    experiment, prefix = str(folder / "experiment.py"), str(folder / "marin")
    steps = load_experiment(experiment).steps
    run = new_run(prefix=prefix, caller_path=experiment)
    began = time.process_time()
    made = make_plan(steps, prefix=prefix)
    planned = time.process_time()
    place(made, region_of)
    placed = time.process_time()
    write_plan(freeze(made, run), str(folder / "plan"))
    return {"plan": planned - began, "place": placed - planned, "freeze": time.process_time() - placed}


def memory(folder: Path) -> dict[str, float]:
    """The most that Python had allocated while it planned, in megabytes, by tracemalloc."""
    steps = load_experiment(str(folder / "experiment.py")).steps
    tracemalloc.start()
    made = make_plan(steps, prefix=str(folder / "marin"))
    _, peak = tracemalloc.get_traced_memory()
    return {"steps": len(made.steps), "peak": peak / 1e6}


def finish(folder: Path) -> dict[str, float]:
    """Leave every step of a workspace as its worker leaves a step that succeeded."""
    made = prepare_experiment(Settings(experiment=str(folder / "experiment.py"), prefix=str(folder / "marin")))
    owner = Owner.current()
    for step in made.steps:
        lease = open_lease(step.output_path, owner)
        if (holder := lease.try_acquire()) is not None:
            raise RuntimeError(f"{step.output_path} is held by {holder}")
        now = timestamp(time.time())
        run = {"id": made.run.id, "worker_id": owner.worker_id, "attempt": 1, "started": now, "finished": now}
        info = info_bytes(step_info(made, step) | {"run": run})
        lease.commit(info_path(step.output_path), info, durable=False)
        lease.commit(status_path(step.output_path), Status.SUCCESS.encode())
        lease.release()
    return {"steps": len(made.steps)}


def paths(folder: Path) -> dict[str, list[str]]:
    """Where the steps of a workspace write, below their prefix."""
    steps = load_experiment(str(folder / "experiment.py")).steps
    return {"paths": [step.output_path.removeprefix("/marin/") for step in make_plan(steps, prefix="/marin").steps]}


if __name__ == "__main__":
    what, folder = sys.argv[1:]
    print(json.dumps({"plan": plan, "memory": memory, "finish": finish, "paths": paths}[what](Path(folder))))
