"""One driver at a time looks for a step's job and submits one."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_rules.state.step_lease import open_lease
from marin_rules.state.submission_turn import open_turn
from marin_rules.storage.leases.held import held
from marin_rules.storage.leases.owner import Owner


def test_the_turn_is_one_drivers_until_it_is_given_back(tmp_path: Path) -> None:
    first, second = open_turn(str(tmp_path)), open_turn(str(tmp_path))
    assert first.try_acquire() is None
    with held(first) as require_turn:
        require_turn()
        assert second.try_acquire() is not None
    assert second.try_acquire() is None


def test_the_turn_is_not_the_steps_own_lease(tmp_path: Path) -> None:
    """The worker in the job that is submitted takes the step while the driver still has its turn."""
    turn = open_turn(str(tmp_path))
    assert turn.try_acquire() is None
    assert open_lease(str(tmp_path), Owner.current()).try_acquire() is None


def test_an_error_in_the_turn_gives_it_back(tmp_path: Path) -> None:
    turn = open_turn(str(tmp_path))
    assert turn.try_acquire() is None
    with pytest.raises(ZeroDivisionError), held(turn):
        raise ZeroDivisionError
    assert open_turn(str(tmp_path)).try_acquire() is None
