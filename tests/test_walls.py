"""The walls between the rooms: what the pages say, what the tree has, and what the linter enforces are one."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "marin_rules"

FLOOR = "marin_rules/*.py"
"""The modules beside the rooms, on which all of them stand."""


def layers() -> list[str]:
    """The enforced layers, from the floor up."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (contract,) = (found for found in settings["tool"]["importlinter"]["contracts"] if found["type"] == "layers")
    return list(reversed(contract["layers"]))


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


# -- clusters ------------------------------------------------------------------------------------------------

CLUSTER = re.compile(r"slurm|sbatch|squeue|scancel|scontrol|\bsrun\b|sacct|sinfo", re.IGNORECASE)
"""What a file outside the folder of a cluster need not know."""

USERS_WORDS = (
    r"--executor marin-slurm",
    r"--marin-slurm-",
    r"--profile slurm",
    r"docs/slurm(-drmaa)?\.md",
)
"""What people type or read: words of the command line and names of pages."""

KNOWN_BY_NAME = {
    "clusters/open.py": "finds clusters by their names",
    "clusters/protocol.py": "examples of names",
    "clusters/policy.py": "examples of names",
    "clusters/ranks.py": "an example of a way to start ranks",
    "engine/plugins/snakemake_executor_plugin_marin_slurm/__init__.py": "Snakemake finds executors by such names",
    "engine/plugins/snakemake_executor_plugin_marin_drmaa/__init__.py": "the same, and its help for users",
    "engine/invocation.py": "the names of Snakemake's own plug-ins",
    "settings/cluster_file.py": "the block `slurm:` of a cluster's file, as an example",
    "units.py": "what a bare number means elsewhere",
}
"""Files that may say more, and why. A file that has become silent has to leave this list."""


def cluster_words() -> dict[str, list[str]]:
    """The lines of the package that know a cluster, by file; without those of the cluster's own folder."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE).as_posix()
        if path.is_dir() or "__pycache__" in name or name.startswith(("clusters/slurm/", "_workflow/")):
            continue
        for line in path.read_text().splitlines():
            if CLUSTER.search(re.sub("|".join(USERS_WORDS), "", line)):
                found.setdefault(name, []).append(line.strip())
    return found


def test_only_its_own_folder_knows_a_cluster() -> None:
    unexpected = {name: lines for name, lines in cluster_words().items() if name not in KNOWN_BY_NAME}
    assert unexpected == {}


def test_the_exceptions_are_needed() -> None:
    assert KNOWN_BY_NAME.keys() - cluster_words().keys() == set()


def test_only_the_registries_import_a_cluster() -> None:
    """All others ask `clusters.open` and `clusters.allocation`."""
    importing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"marin_rules\.clusters\.slurm", path.read_text())
    }
    assert {name for name in importing if not name.startswith("clusters/")} == set()
