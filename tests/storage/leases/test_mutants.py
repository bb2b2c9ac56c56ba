"""The models find what is wrong with leases that are: otherwise their silence about the real one would say nothing."""

import re

import pytest

from support.lease_models.mutants import MUTANTS
from support.lease_models.replay import Replayer
from support.lease_models.search import Bounds, Search


@pytest.mark.parametrize("name", MUTANTS)
def test_the_search_finds(name: str) -> None:
    mutant = MUTANTS[name]
    replayer = Replayer(mutant.kind, mutant.program, mutant.make_lease, mutant.skews)
    schedule = Search(mutant.kind, replayer, Bounds()).run()
    assert schedule is not None
    assert re.search(mutant.harm, schedule[-1]), "\n".join(schedule)
