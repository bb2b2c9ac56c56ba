"""A user whom no list of users knows, as containers have them."""

import getpass
import os

import pytest

from marin_rules.engine.workflow import name_the_user


def test_a_user_without_a_name_is_called_by_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_123)
    with pytest.raises((OSError, KeyError)):
        getpass.getuser()
    name_the_user()
    assert getpass.getuser() == "4000123"


def test_a_user_with_a_name_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    name_the_user()
    assert getpass.getuser() == os.environ["LOGNAME"] == "ann"
