"""The user's own folders of this program, where the system keeps such things.

On Linux `$XDG_STATE_HOME/marin-rules` (`~/.local/state/marin-rules`) and `$XDG_CACHE_HOME/marin-rules`
(`~/.cache/marin-rules`).
"""

from __future__ import annotations

import os

_NAME = "marin-rules"


def state_folder() -> str:
    """For what should outlive a run: which runs exist, what stores guarantee."""
    try:
        from platformdirs import user_state_dir
    except ImportError:
        return _below("XDG_STATE_HOME", ".local", "state")
    return user_state_dir(_NAME, appauthor=False)


def cache_folder() -> str:
    """For what can be rebuilt: environments of steps."""
    from platformdirs import user_cache_dir

    return user_cache_dir(_NAME, appauthor=False)


def _below(variable: str, *default: str) -> str:
    """The same folder on Linux without platformdirs, which a step's own environment does not have."""
    home = os.environ.get(variable, "").strip() or os.path.join(os.path.expanduser("~"), *default)
    return os.path.join(home, _NAME)
