"""Where the steps of a plan write, checked once before anything else.

Do the buckets exist, may we use them, and can they keep leases? Do two output paths lead to one folder?
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache

from marin_rules.errors import PlanError
from marin_rules.plan import Plan, PlannedStep, collision
from marin_rules.storage.files import local_path
from marin_rules.urls import is_url

_CONDITIONAL_SCHEMES = ("gs", "gcs", "s3")
"""Stores where leases depend on conditional writes."""


def check_stores(plan: Plan) -> None:
    """Refuse a plan whose output paths cannot be used: one request per bucket, and a check of the links of
    overrides."""
    _check_links(plan)
    paths = [step.output_path for step in plan.steps if step.needed and is_url(step.output_path)]
    if not paths:
        return
    from marin_rules.storage.bulk import check_bucket
    from marin_rules.urls import bucket_root

    for root in dict.fromkeys(map(bucket_root, paths)):
        check_bucket(root)


def _check_links(plan: Plan) -> None:
    """Refuse two versions in one folder that has two names through symbolic links. Only overrides can choose theirs."""
    local = [step for step in plan.steps if not is_url(step.output_path)]
    if all(step.step.override_output_path is None for step in local):
        return
    real_folder = cache(os.path.realpath)
    taken: dict[str, PlannedStep] = {}
    for step in local:
        path = local_path(step.output_path).rstrip("/")
        if step.step.override_output_path is not None:
            place = os.path.realpath(path)
        else:
            place = os.path.join(real_folder(os.path.dirname(path)), os.path.basename(path))
        other = taken.setdefault(place, step)
        if other is not step:
            raise PlanError(collision(other, step))


def check_leases(output_paths: Iterable[str]) -> None:
    """Refuse steps whose leases their store cannot keep; tests each bucket once, by changing an object of ours."""
    paths = [path for path in output_paths if path.partition("://")[0] in _CONDITIONAL_SCHEMES]
    if not paths:
        return
    from marin_rules.storage.objects.promises import require_promises
    from marin_rules.urls import bucket_root

    for path in {bucket_root(path): path for path in paths}.values():
        require_promises(f"{path}/", say=lambda text: print(f"marin-rules: {text}", file=sys.stderr))
