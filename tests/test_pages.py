"""The pages for people: their links lead somewhere, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marin_rules.commands.main import COMMANDS
from marin_rules.compat.counterparts import COUNTERPARTS, RENAMED

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "marin_rules"
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for pattern in ("*.md", "docs/*.md", "benchmarks/*.md", "config/**/*.md")
    for path in REPOSITORY.glob(pattern)
)
EXAMPLES = {
    "experiments/primes.py",  # The reader writes it.
    "experiments/.runs/",  # Below the prefix.
    "experiments/.code/",
    "experiments/.drivers/",
    "config/clusters/NAME.yaml",
    "config/clusters/name.yaml",
}


def test_the_import_map_is_what_is_served() -> None:
    """docs/from-marin.md, row by row."""
    table = re.search(
        r"^\| Marin's module \| names \|\n\|---\|---\|\n((?:\|.*\|\n)+)",
        (REPOSITORY / "docs/from-marin.md").read_text(),
        re.MULTILINE,
    )
    assert table is not None
    shown = {}
    for row in table[1].splitlines():
        modules, names = (
            set(re.findall(r"`([\w.]+)`(?: \(`(\w+)`\))?", cell)) for cell in row.strip("| ").split(" | ")
        )
        shown |= {module: names for module, _ in modules}
    served = {module: {(name, RENAMED.get(name, "")) for name in names} for module, names in COUNTERPARTS.items()}
    assert shown == served


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", (REPOSITORY / page).read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What links to parts of a page may say after the `#`, by GitHub's rule."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def folders() -> set[str]:
    """What the first part of a path on a page may be: a folder of the repository, or a room of the package.

    Not what runs and builds leave behind there (`.snakemake`, `out`), which a fresh clone does not have.
    """
    left_behind = {"out", "build", "dist"}
    found = {path.name for parent in (REPOSITORY, PACKAGE) for path in parent.iterdir() if path.is_dir()}
    return {name for name in found - left_behind if not name.startswith(".") or name == ".ci"}


def test_the_pages_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/slurm.md", "config/clusters/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (REPOSITORY / page).parent / path if path else REPOSITORY / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_are_named_exist(page: str) -> None:
    named = set(re.findall(r"`([\w.-]+/[\w./-]*)`", prose(page))) - EXAMPLES
    named = {path for path in named if path.split("/")[0] in folders()}
    missing = [path for path in named if not (REPOSITORY / path).exists() and not (PACKAGE / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_named_exist(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)`", text)) <= targets
    assert set(re.findall(r"`marin-rules ([a-z]+)\b", text)) <= set(COMMANDS)
