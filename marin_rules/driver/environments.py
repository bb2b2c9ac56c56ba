"""Where the Python environments of a run's steps are, and how they are built before the first job starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cached_property

from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.settings.ownership import Circle
from marin_rules.software.build import ensure_environment
from marin_rules.software.environment import environments_folder
from marin_rules.software.package import package_folder


class SoftwareFolder:
    """The environments of one plan."""

    def __init__(self, plan: FrozenPlan, *, deploys_conda: bool) -> None:
        self._plan = plan
        self._deploys_conda = deploys_conda
        self.shared: str | None = None
        """Where the cluster keeps environments, if its file says so. Set before any other use."""

        self.trust: tuple[str, ...] = ()
        """Whose environments are used there, beside the user's own and those of root."""

    @cached_property
    def path(self) -> str:
        return environments_folder(self.shared)

    @cached_property
    def package(self) -> str:
        """A folder that holds this package and nothing else, for Pythons that do not have it installed."""
        return package_folder(self.path, Circle.of(self.trust))

    def python(self, position: int) -> str:
        """The Python of an environment, which need not exist yet."""
        return os.path.join(self.path, self._plan.software[position].name, "bin", "python")

    def position(self, step: FrozenStep) -> int | None:
        """Which of the environments a step runs in; None for one that has its own from conda, or none at all."""
        has_conda = step.conda_file is not None and self._deploys_conda
        return None if has_conda else step.software

    def obstacle(self, step: FrozenStep) -> str | None:
        """Why the environment of a step cannot be built here; None if it is there, or if uv may try."""
        position = self.position(step)
        if position is None or os.path.exists(self.python(position)):
            return None
        # Imported here: most runs find their environments.
        from marin_rules.software.uv import find_uv

        try:
            find_uv()
        except MarinRulesError as error:
            return str(error)
        return None

    def ensure(self, steps: Iterable[FrozenStep], say: Callable[[str], None]) -> None:
        """Build what these steps need and is missing. A build that fails ends the run before it has begun."""
        positions = {position for step in steps if (position := self.position(step)) is not None}
        for position in sorted(positions):
            ensure_environment(self._plan.software[position], self.path, say, Circle.of(self.trust))
