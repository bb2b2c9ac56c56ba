"""The page of a step in the report."""

from marin_rules.views.step_facts import StepFacts
from marin_rules.views.step_page import step_page


def _page(environment: dict[str, object]) -> str:
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
            run={"environment": environment},
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
