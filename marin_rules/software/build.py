"""Finds an environment, or builds it: once, for all who need it, on all machines that share its folder.

    <folder>/<name>                   an environment: complete, or not there
    <folder>/.<name>.lock             the lease of its builder
    <folder>/.<name>.making-<token>   what is being made (`removing` when its builder is gone)

A build that fails leaves nothing, one that is killed leaves only what the next one removes, and a builder that was
thought dead cannot harm what its successor made. An existing environment is found by two looks at the file system,
without uv and without a network.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from marin_rules.errors import MarinRulesError
from marin_rules.settings.ownership import Circle
from marin_rules.software.environment import Environment, explained_errors
from marin_rules.software.manifest import manifest_path
from marin_rules.software.trust import check_environment, check_folder


class EnvironmentBuildError(MarinRulesError):
    """An environment cannot be made, or cannot be used on this machine."""


def environment_path(environment: Environment, folder: str) -> str:
    """Where the environment is, or will be."""
    return os.path.join(folder, environment.name)


def ensure_environment(
    environment: Environment, folder: str, say: Callable[[str], None], circle: Circle | None = None
) -> str:
    """The path of the environment's Python, built first if it is not there; `say` gets the progress.

    One that was made by somebody outside `circle`, or that others can write to, is refused.
    """
    circle = circle or Circle.of()
    with explained_errors(folder):
        check_folder(folder, circle)
    python = find_python(environment, folder, circle)
    if python is not None:
        return python
    here = Environment.here(())
    if not environment.is_for(here):
        raise EnvironmentBuildError(
            f"environment {environment.name} is for {environment.describe_python()} and cannot be made by"
            f" {here.describe_python()}: make it on the machine that planned the run"
        )
    # Imported here: a job that finds its environment should not wait for it.
    from marin_rules.software.builder import Builder

    with explained_errors(folder):
        return Builder(environment, folder, say, circle).ensure()


def find_python(environment: Environment, folder: str, circle: Circle) -> str | None:
    """The environment's Python, None when there is no environment."""
    path = environment_path(environment, folder)
    if not os.path.exists(manifest_path(path)):
        return None
    check_environment(path, circle)
    python = os.path.join(path, "bin", "python")
    if not os.access(python, os.X_OK):
        raise EnvironmentBuildError(
            f"environment {environment.name} exists, but its Python, {os.path.realpath(python)}, is not on this"
            f" machine. Install that here; or delete {path}, and the next run makes it with another."
        )
    return python
