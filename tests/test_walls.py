"""The walls between the rooms: what the pages say, what the tree has, and what the linter enforces are one."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "marin_rules"

FLOOR = "marin_rules/*.py"
"""The modules beside the rooms, on which all of them stand."""

TO_COME = {"(pipeline)"}
"""Rooms that have their place in the layers and are not built yet: in parentheses, as import-linter wants it."""


def layers() -> list[str]:
    """The enforced layers, from the floor up."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (contract,) = (found for found in settings["tool"]["importlinter"]["contracts"] if found["type"] == "layers")
    return [layer for layer in reversed(contract["layers"]) if layer not in TO_COME]


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_table_of_rooms_is_what_the_linter_enforces(page: str) -> None:
    table = re.search(
        r"^\| room \| holds \|\n\|---\|---\|\n((?:\|.*\|\n)+)", (REPOSITORY / page).read_text(), re.MULTILINE
    )
    assert table is not None
    rooms = re.findall(r"^\| `([^`]+)` \|", table[1], re.MULTILINE)
    floor, *above = layers()
    assert " : " in floor
    assert rooms == [FLOOR, *(f"marin_rules/{layer}/" for layer in above)]


def test_the_floor_is_all_modules_beside_the_rooms() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert set(layers()[0].split(" : ")) == modules


def test_files_that_the_architecture_names_exist() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/.]+/[\w.]+\.(?:py|toml|smk)|\w+\.(?:py|toml))`", text))
    assert len(named) > 15
    missing = [name for name in named if not (REPOSITORY / name).exists() and not (PACKAGE / name).exists()]
    assert missing == []
