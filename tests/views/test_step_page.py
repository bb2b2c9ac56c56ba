"""The page of a step in the report."""

from collections.abc import Sequence

from marin_rules.views.spreadsheet import Table
from marin_rules.views.step_facts import StepFacts
from marin_rules.views.step_page import step_page


def _page(environment: dict[str, object], *, tables: Sequence[Table] = (), **run: object) -> str:
    return step_page(
        StepFacts(
            name="a",
            description=None,
            function="m.f",
            output_path="out/a-123456",
            version={},
            config={},
            dependencies=[],
            status="SUCCESS",
            run={"environment": environment, **run},
            tables=tables,
        )
    )


def test_the_page_names_the_conda_environment_its_file_and_its_packages() -> None:
    page = _page(
        {
            "path": "/w/.snakemake/conda/77_",
            "conda_file": "/w/envs/own.yaml",
            "packages": {"python": "3.13.1 h1_cpython"},
            "pip_packages": {"tiny": "2.0"},
        }
    )
    for text in ("/w/.snakemake/conda/77_", "/w/envs/own.yaml", "3.13.1 h1_cpython", "added by pip", "tiny"):
        assert text in page


def test_the_page_of_an_environment_made_by_uv_speaks_of_no_conda_file() -> None:
    page = _page({"path": "/e/tables-12345678", "packages": {"tabulate": "0.9"}})
    assert "/e/tables-12345678" in page
    assert "conda" not in page


def test_the_page_says_what_a_job_cost_if_its_price_was_known() -> None:
    job = {"job_id": "7", "usd_an_hour": 2.0, "price_date": "2026-02-12"}
    assert "about $0.31 (list price of 2026-02-12)" in _page({}, seconds=558, gcp=job)
    assert "cost" not in _page({}, seconds=558, gcp={"job_id": "7"})


def test_the_page_shows_tables_as_text() -> None:
    page = _page({}, tables=[Table("scores.csv", ["<b>", "score"], [["a & b", "0.5"]], is_cut=True)])
    for text in ("&lt;b&gt;", "a &amp; b", "0.5", "scores.csv, the first 1 rows"):
        assert text in page
    assert page.index("scores.csv") < page.index("&lt;b&gt;"), "the name of a table stands above it"
