"""The user's folders: where they have always been on Linux, with and without platformdirs."""

import sys

import pytest

from marin_rules.settings.user_folders import cache_folder, state_folder


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize(
    ("variable", "expected"),
    [("/x/state", "/x/state/marin-rules"), ("", "/home/ann/.local/state/marin-rules")],
)
def test_state(is_installed: bool, variable: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_STATE_HOME", variable)
    if not is_installed:  # As in the environment of a step.
        monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert state_folder() == expected


@pytest.mark.parametrize(
    ("variable", "expected"), [("/x/cache", "/x/cache/marin-rules"), ("", "/home/ann/.cache/marin-rules")]
)
def test_cache(variable: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_CACHE_HOME", variable)
    assert cache_folder() == expected
