"""The overview of an experiment, as text; tests/engine/test_report.py looks at it in a browser."""

import re
from dataclasses import replace

from marin_rules.views.front_page import front_page
from marin_rules.views.overview_page import ExperimentFacts, overview_page
from marin_rules.views.step_facts import Picture, Reference, StepFacts
from marin_rules.views.step_graph import Node, shortened, step_graph

EXPERIMENT = ExperimentFacts("x", "About <it>.", "x.py", "out", "2026-01-01T00:00:00+00:00")


def step(index: int, status: str = "SUCCESS", **more: object) -> StepFacts:
    facts: dict[str, object] = {"dependencies": [], "run": {}, "index": index, "page": f"p{index}.html"} | more
    return StepFacts(
        name=f"s{index}",
        description=None,
        function="m.f",
        output_path=f"out/s{index}",
        version={},
        config={},
        status=status,
        **facts,  # type: ignore[arg-type]
    )


def test_counts_failures_and_missing_files() -> None:
    above = [Reference(0, "s0", "out/s0", "p0.html")]
    page = overview_page(
        EXPERIMENT,
        [
            step(0, missing_report_files=["a<b.png"]),
            step(1, "FAILED", run={"error": "ValueError: <no>", "seconds": 3}, dependencies=above),
            step(2, "not run", troubles=["out/s2/.executor_info is damaged"]),
        ],
    )
    text = re.sub(r"<[^>]*>", "", page)
    assert "3 steps" in text
    assert "1 FAILED" in text
    assert "s1 ValueError: &lt;no&gt;" in text
    assert "s0 declares a&lt;b.png, which is not there" in text
    assert "s2: out/s2/.executor_info is damaged" in text
    assert 'data-from="0" data-to="1"' in page


def test_long_names_break_between_their_parts() -> None:
    page = overview_page(EXPERIMENT, [step(0), step(1)])
    assert page.count("<code>m.<wbr>f</code>") == 2
    assert page.count("<code>out/<wbr>s1</code>") == 1


def test_what_the_steps_cost_as_far_as_it_is_known() -> None:
    job = {"job_id": "7", "usd_an_hour": 2.0, "price_date": "2026-02-12"}
    ran = {"seconds": 558, "gcp": job}
    text = re.sub(r"<[^>]*>", "", overview_page(EXPERIMENT, [step(0, run=ran), step(1, run={"seconds": 3}), step(2)]))
    assert "about $0.31 (list price of 2026-02-12) for 1 step" in text
    assert text.count("about $0.31 (list price of 2026-02-12)") == 2
    assert "cost" not in overview_page(EXPERIMENT, [step(0, run={"seconds": 3})])


def test_pictures_of_the_last_steps_come_first() -> None:
    pictures = [Picture(f"<{number}>.svg", f"data:image/svg+xml;base64,{number:04}") for number in range(14)]
    page = overview_page(EXPERIMENT, [step(number, pictures=[one]) for number, one in enumerate(pictures)])
    assert re.findall('src="data:image/svg.xml;base64,([0-9]+)"', page) == [f"{n:04}" for n in range(13, 1, -1)]
    assert "&lt;13&gt;.svg of s13" in page
    assert "The other 2 are on the pages of their steps." in page
    assert "<h2>Pictures" not in overview_page(EXPERIMENT, [step(0)])


def test_a_sweep_comes_before_its_many_pictures_which_are_small() -> None:
    picture = Picture("loss.svg", "data:image/svg+xml;base64,0000")
    steps = [step(rate, returned={"loss": rate / 2}, pictures=[picture]) for rate in range(3)]
    page = overview_page(EXPERIMENT, [replace(one, config={"model.rate": one.index}) for one in steps])
    assert page.index("Sweep of f") < page.index("<h2>Pictures")
    assert 'class="pictures many"' in page
    assert "model.<wbr>rate</th>" in page
    assert 'class="pictures"' in overview_page(EXPERIMENT, steps[:1])


def test_a_thousand_failures_stay_readable() -> None:
    page = overview_page(EXPERIMENT, [step(number, "FAILED", run={"error": "E"}) for number in range(1000)])
    assert "... and 950 more" in page
    assert "<svg" not in page
    assert page.count("<tr>") == 1001


def test_the_front_page_cannot_end_the_script_that_holds_it() -> None:
    page = front_page(overview_page(EXPERIMENT, [step(0)]))
    assert "</script" not in page
    assert "<!--" not in page
    assert "&lt;/script" in page


def test_names_fit_their_boxes() -> None:
    assert shortened("a/b") == "a/b"
    assert shortened("a" * 20) == "a" * 20
    assert shortened("tokenized/a-long-name/part-17") == "…a-long-name/part-17"
    assert shortened("evaluation/checkpoints/tiny") == "…/checkpoints/tiny", "and not the last two letters of a part"
    assert shortened("名" * 20) == "…" + "名" * 9


def test_the_graph_is_as_wide_as_its_widest_row() -> None:
    """More would be an empty place, and all that a narrow window shows of it."""

    def margins(names: str) -> tuple[float, float]:
        above = [Node(name, "f", "SUCCESS", None, []) for name in names]
        below = Node("below", "f", "SUCCESS", None, range(len(above)))
        drawing = step_graph(dict(enumerate([*above, below])))
        assert drawing is not None
        left, right = min(box.x for box in drawing.boxes), max(box.x for box in drawing.boxes) + drawing.box_width
        return left, drawing.width - right

    assert margins("a") == margins("ab") == margins("abcdef") == margins("abcdefg") == (12, 12)
