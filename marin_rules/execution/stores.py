"""The buckets of a plan, asked once before anything else: are they there, and may we use them?"""

from __future__ import annotations

from marin_rules.plan import Plan
from marin_rules.storage.files import is_url


def check_stores(plan: Plan) -> None:
    """Refuse a plan whose output paths are in a bucket that cannot be used: one request a bucket."""
    paths = [step.output_path for step in plan.steps if step.needed and is_url(step.output_path)]
    if not paths:
        return
    from marin_rules.storage.bulk import check_bucket
    from marin_rules.storage.urls import bucket_root

    for root in dict.fromkeys(map(bucket_root, paths)):
        check_bucket(root)
