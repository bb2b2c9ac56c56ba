"""The random campaign: whole experiments from seeds. The short form has the same seeds always.

The long form takes as many as MARIN_CAMPAIGN_CASES says, from the seed MARIN_CAMPAIGN_SEED on.
"""

import os

import pytest

from campaign.cases import covering
from campaign.judge import judge

SHORT = covering(16, range(300))
LONG = int(os.environ.get("MARIN_CAMPAIGN_CASES", "300"))
FIRST = int(os.environ.get("MARIN_CAMPAIGN_SEED", "1000"))


@pytest.mark.processes
@pytest.mark.parametrize("seed", SHORT)
def test_short_campaign(seed: int) -> None:
    wrong = judge(seed)
    assert wrong is None, wrong


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(FIRST, FIRST + LONG))
def test_long_campaign(seed: int) -> None:
    wrong = judge(seed)
    assert wrong is None, wrong
