"""Jobs on this machine start as soon as they are ready, unless the user says how many may start in which time."""

from types import SimpleNamespace

import pytest
from snakemake.settings.types import MaxJobsPerTimespan

from marin_rules.engine.invocation import Invocation


@pytest.mark.parametrize(
    ("limit", "stays"),
    [("100/1s", False), ("100/1m", True), ("99/1s", True), ("1000/1s", True)],
)
def test_only_the_default_limit_is_lifted(limit: str, stays: bool) -> None:
    settings = SimpleNamespace(max_jobs_per_timespan=MaxJobsPerTimespan.parse_choice(limit))
    given = settings.max_jobs_per_timespan
    Invocation(SimpleNamespace(scheduling_settings=settings)).lift_default_rate()
    assert settings.max_jobs_per_timespan is (given if stays else None)


def test_no_limit_stays_none() -> None:
    settings = SimpleNamespace(max_jobs_per_timespan=None)
    Invocation(SimpleNamespace(scheduling_settings=settings)).lift_default_rate()
    assert settings.max_jobs_per_timespan is None


@pytest.mark.processes  # Plug-ins that are installed beside ours start some when they are imported.
def test_the_default_is_still_snakemakes() -> None:
    """Else the limit would come back without a word."""
    from snakemake.cli import get_argument_parser

    default = get_argument_parser().parse_args([]).max_jobs_per_timespan
    assert (default.max_jobs, default.timespan) == (100, 1)
