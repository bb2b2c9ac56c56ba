"""Snakemake's report of an experiment, as a person sees it: in a real browser."""

import base64
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from marin_rules.views.step_facts import StepFacts
from marin_rules.views.step_page import step_page
from support.lab import Lab

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1300,900",
)
SECONDS_TO_RENDER = 30

UNFINISHED = """
    import os
    from dataclasses import dataclass

    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH

    def write_page(config):
        with open(os.path.join(config.output_path, "page.html"), "w") as file:
            file.write("<h1>A page of its own</h1>")

    def fail(config):
        with open(os.path.join(config.output_path, "plot.svg"), "w") as file:
            file.write('<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100"></svg>')
        raise ValueError("told to <b>fail</b> & does")

    def wait(config):
        pass

    good = ExecutorStep("good", write_page, Config(), report=["*.html", "absent.png"])
    bad = ExecutorStep("bad", fail, Config(), report=["plot.svg"])
    never = ExecutorStep("never", wait, Config(), description="Nobody asked for it.", report=["plot.svg"])

    if __name__ == "__main__":
        executor_main(steps=[good, bad, never])
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A headless Chromium with an empty profile."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.fail(
            "the report is looked at in Chromium, which is not here: run scripts/ensure-chromium, or install"
            " chromium and chromedriver (Debian: apt install chromium chromium-driver)"
        )
    home = tmp_path_factory.mktemp("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={home / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(home / "downloads")})
    service = Service(driver, env={**os.environ, "HOME": str(home)})
    chromium = webdriver.Chrome(options=options, service=service)
    yield chromium
    chromium.quit()


class Report:
    """A report that is open in the browser."""

    def __init__(self, browser: webdriver.Chrome, file: Path) -> None:
        self._browser = browser
        self._address = file.as_uri()

    def open(self) -> dict[str, str]:
        """Open the report, as a reader does; returns the rows of the first page's tables."""
        self._browser.switch_to.default_content()
        self._browser.get(self._address)
        return self._shown(None)

    def follow(self, text: str, title: str) -> dict[str, str]:
        """Click a link (or a box of the graph) on the page that is shown; returns the rows of the page it leads to."""
        self._enter()
        links = self._browser.find_elements(By.CSS_SELECTOR, "a")
        script = "return arguments[0].textContent === arguments[1] || arguments[0].title === arguments[1]"
        found = [link for link in links if self._browser.execute_script(script, link, text)]
        assert found, f"no link {text} on this page"
        click = "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
        self._browser.execute_script(click, found[0])
        return self._shown(title)

    def column(self, table: int, head: str) -> list[str]:
        """Sort a table of the page that is shown by a column; returns the cells of the column."""
        self._enter()
        script = """
            const table = document.querySelectorAll("table")[arguments[0]];
            const head = [...table.tHead.rows[0].cells].find(cell => cell.textContent === arguments[1]);
            head.click();
            return [...table.tBodies[0].rows].map(row => row.cells[head.cellIndex].innerText);
        """
        cells: list[str] = self._browser.execute_script(script, table, head)
        self._browser.switch_to.default_content()
        return cells

    def boxes(self) -> list[str]:
        """The steps in the graph of the page that is shown."""
        self._enter()
        script = (
            "return [...document.querySelectorAll('.graph a title')].map(title => title.textContent.split('\\n')[0])"
        )
        names: list[str] = self._browser.execute_script(script)
        self._browser.switch_to.default_content()
        return names

    def pictures(self) -> list[tuple[int, int]]:
        """The sizes of the pictures on the page that is shown."""
        self._enter()
        sizes = [self.size(picture) for picture in self._browser.find_elements(By.CSS_SELECTOR, "figure img")]
        self._browser.switch_to.default_content()
        return sizes

    def _enter(self) -> None:
        self._browser.switch_to.default_content()
        self._browser.switch_to.frame(self._browser.find_element(By.TAG_NAME, "iframe"))

    def _shown(self, title: str | None) -> dict[str, str]:
        def shown() -> bool:
            self._enter()
            heading = self._browser.find_element(By.TAG_NAME, "h1").text
            return bool(heading) if title is None else heading == title

        self._wait(shown, f"the page {title or 'in front'}")
        self.title = self._browser.find_element(By.TAG_NAME, "h1").text
        self.text = self._browser.find_element(By.TAG_NAME, "body").text
        script = "return [...document.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.innerText))"
        rows = self._browser.execute_script(script)
        self._browser.switch_to.default_content()
        return {row[0]: "\n".join(row[1:]) for row in rows}

    def menu_is_open(self) -> bool:
        """Whether Snakemake's menu takes room beside the page, once the page's scripts have run and nothing moves."""
        self._enter()
        ready = "return document.readyState"
        self._wait(lambda: self._browser.execute_script(ready) == "complete", "the whole page")
        self._browser.switch_to.default_content()
        moving = "return document.querySelector('nav').getAnimations().length"
        self._wait(lambda: self._browser.execute_script(moving) == 0, "the menu stands still")
        return self._browser.find_element(By.TAG_NAME, "nav").size["width"] > 0

    def close_menu(self) -> None:
        self._browser.switch_to.default_content()
        self._click("//nav/h1/a")

    def open_category(self, name: str) -> None:
        self._browser.switch_to.default_content()
        self._browser.get(self._address)
        self._click(f"//li/a[span[normalize-space()='{name}']]")
        self._wait(lambda: self.rows(), f"the category {name}")

    def rows(self) -> list[list[str]]:
        """The entries of the open category, each with its labels, as they look."""
        lines = self._browser.find_elements(By.XPATH, "//nav//tbody/tr")
        return [
            [cell.text.replace("\u2060", "") for cell in line.find_elements(By.TAG_NAME, "td")[:-1]] for line in lines
        ]

    def button(self, entry: str) -> WebElement:
        """What opens the entry, which must be in sight."""
        lines = self._browser.find_elements(By.XPATH, "//nav//tbody/tr")
        labels = self.rows()
        found = [
            line
            for line, row in zip(lines, labels, strict=True)
            if any(label == entry or label.endswith(("/" + entry, " " + entry)) for label in row)
        ]
        assert len(found) == 1, f"{entry} is not in sight among {labels}"
        return found[0].find_element(By.XPATH, ".//a[@iconname='eye']")

    def open_page(self, entry: str, title: str | None = None) -> dict[str, str]:
        """Open an entry that is an HTML page; returns the rows of its table, by their first cell."""
        self.button(entry).click()
        return self._shown(title or entry)

    def open_picture(self, entry: str, file: str | None = None) -> WebElement:
        self.button(entry).click()
        found = f"//img[contains(@src, 'filename={file or entry};')]"
        return self._wait(lambda: self._browser.find_element(By.XPATH, found), f"the picture {entry}")

    def size(self, picture: WebElement) -> tuple[int, int]:
        """Of a picture that the browser could draw; zero of one that it could not."""
        script = "return [arguments[0].naturalWidth, arguments[0].naturalHeight]"
        self._wait(lambda: picture.get_property("complete"), "the picture is loaded")
        width, height = self._browser.execute_script(script, picture)
        return width, height

    def _click(self, path: str) -> None:
        self._wait(lambda: self._browser.find_element(By.XPATH, path), path).click()

    def _wait(self, condition: Callable[[], Any], what: str) -> Any:
        wait = WebDriverWait(self._browser, SECONDS_TO_RENDER, ignored_exceptions=[WebDriverException])
        return wait.until(lambda _: condition(), f"does not come into sight: {what}")


def content(address: str) -> bytes:
    """The bytes in a data address."""
    return base64.b64decode(address.partition("base64,")[2])


def test_a_finished_sweep(browser: webdriver.Chrome, lab: Lab, tmp_path: Path) -> None:
    sweep = lab.repository / "experiments/tutorials/sweep.py"
    done = lab.snakemake(experiment=sweep)
    assert done.code == 0, done.output
    again = lab.snakemake("-R", "summarize", experiment=sweep)
    assert again.code == 0, again.output
    made = lab.snakemake("--report", "report.html", experiment=sweep)
    assert made.code == 0, made.output
    # The statistics have a point for every job, also for the one that was run again, and none from 1970.
    ends = re.findall(r'"endtime": "(\d{4})-', (tmp_path / "report.html").read_text())
    assert len(ends) == 14
    assert "1970" not in ends
    report = Report(browser, tmp_path / "report.html")

    # It opens on the overview, from which every step is a click away, and from there its neighbours.
    assert set(report.open()) == {"step", *report.boxes()}
    assert report.title == "sweep"
    for words in ("Learning rate against batch size.", "14 SUCCESS", "Sweep of fit"):
        assert words in report.text
    results = [json.loads(path.read_text()) for path in sorted(lab.prefix.rglob("fit/*/.artifact.json"))]
    losses = sorted(result["loss"] for result in results)
    assert [float(cell) for cell in report.column(0, "loss")] == pytest.approx(losses, rel=1e-5)
    assert [float(cell) for cell in report.column(0, "loss")] == pytest.approx(losses[::-1], rel=1e-5)
    assert [float(cell) for cell in report.column(0, "batch_size")] == sorted(r["batch_size"] for r in results)
    assert report.column(1, "step")[0].startswith("sweep/fit/")
    facts = report.follow("sweep/summary", title="sweep/summary")
    best = min(results, key=lambda result: result["loss"])
    assert json.loads(facts["returned"]) == best
    report.follow("sweep/fit/lr=0.1-bs=8", title="sweep/fit/lr=0.1-bs=8")
    report.follow(str(lab.folder_of("sweep/points")), title="sweep/points")
    report.follow("← overview", title="sweep")

    report.open_category("Experiment")
    statuses = {row[0]: row[1:] for row in report.rows()}
    del statuses["overview"]
    assert len(statuses) == 14
    for name, (status, runtime) in statuses.items():
        assert status == "SUCCESS", name
        assert re.fullmatch(r"\d+\.\ds", runtime), name

    steps = report.open_page("overview", title="sweep")
    assert "Learning rate against batch size." in report.text
    assert set(statuses) == set(steps) - {"step"}
    assert steps["sweep/points"].startswith("SUCCESS")
    assert str(lab.folder_of("sweep/points")) in steps["sweep/points"]

    facts = report.open_page("sweep/fit/lr=0.1-bs=8")
    assert facts["status"] == "SUCCESS"
    assert re.fullmatch(r"\d+\.\ds", facts["runtime"])
    assert facts["function"].endswith(".fit")
    assert facts["output path"] == str(lab.folder_of("sweep/fit/lr=0.1-bs=8"))
    versioned = json.loads(facts["versioned config"])
    assert versioned | {"learning_rate": 0.1, "batch_size": 8, "steps": 200} == versioned
    assert str(lab.folder_of("sweep/points")) in facts["dependencies"]

    facts = report.open_page("sweep/summary")
    assert "Losses of all fits, and the best of them." in report.text
    assert len(facts["dependencies"].split()) == 12

    report.open_category("Pictures and tables")
    picture = report.open_picture("losses.svg")
    width, height = report.size(picture)
    assert width > 100
    assert height > 100
    assert content(str(picture.get_attribute("src"))) == (lab.folder_of("sweep/summary") / "losses.svg").read_bytes()
    table = report.button("results.csv")
    if table.get_attribute("download"):
        shown = content(str(table.get_attribute("href"))).decode()
    else:
        report.open_page("results.csv", title="sweep/summary/results.csv")
        shown = report.text
    for line in (lab.folder_of("sweep/summary") / "results.csv").read_text().splitlines():
        for value in line.split(","):
            assert value in shown

    trouble = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert trouble == []


def test_an_unfinished_experiment_shows_all_its_steps(browser: webdriver.Chrome, tmp_path: Path, lab: Lab) -> None:
    lab.experiment(UNFINISHED)
    failed = lab.snakemake("--keep-going", experiment="experiment.py", config={"run_only": "^(good|bad)$"})
    assert failed.code != 0
    # As long as each other, which the report must not take for a reason to show one half of the steps at a time.
    for name in ("good", "bad"):
        info = lab.info_of(name)
        info["run"]["seconds"] = 0.1
        (lab.folder_of(name) / ".executor_info").write_text(json.dumps(info))
    made = lab.snakemake("--report", "report.html", experiment="experiment.py")
    assert made.code == 0, made.output
    report = Report(browser, tmp_path / "report.html")

    report.open()
    assert "bad ValueError: told to <b>fail</b> & does" in report.text
    assert "good declares absent.png, which is not there" in report.text
    assert "never declares" not in report.text
    report.follow("bad", title="bad")
    for line in ("Traceback (most recent call last):", 'raise ValueError("told to <b>fail</b> & does")'):
        assert line in report.text
    report.open_category("Experiment")
    assert {row[0] for row in report.rows()} == {"overview", "good", "bad", "never"}
    assert {row[0]: row[1] for row in report.rows() if row[0] != "overview"} == {
        "good": "SUCCESS",
        "bad": "FAILED",
        "never": "not run",
    }
    facts = report.open_page("bad")
    assert facts["status"] == "FAILED"
    assert "ValueError: told to <b>fail</b> & does" in facts["error"]
    facts = report.open_page("never")
    assert facts["status"] == "not run"
    assert facts["runtime"] == ""
    assert "Nobody asked for it." in report.text
    steps = report.open_page("overview", title="experiment")
    assert {name: row.split()[0] for name, row in steps.items() if name != "step"} == {
        "good": "SUCCESS",
        "bad": "FAILED",
        "never": "not",
    }

    # What is declared and there can be opened; what is declared and not there is left out.
    report.open_category("Pictures and tables")
    assert len(report.rows()) == 2
    report.open_page("page.html", title="A page of its own")
    assert report.size(report.open_picture("plot.svg")) == (200, 100)


def test_damaged_notes_and_odd_names_cost_nothing_else(browser: webdriver.Chrome, tmp_path: Path, lab: Lab) -> None:
    lab.experiment(
        """
        import os

        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

        def count(config):
            return {"number": config["number"]}

        def draw(path):
            with open(os.path.join(path, "<plot>.svg"), "w") as file:
                file.write('<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100"></svg>')

        steps = [ExecutorStep(f"step{number}", count, {"number": number}) for number in range(4)]
        odd = ExecutorStep("odd <b>{x}", draw, THIS_OUTPUT_PATH, report=["*.svg"])

        if __name__ == "__main__":
            executor_main(steps=[*steps, odd], description="{{ nothing }} </script><!-- `x`_")
        """
    )
    done = lab.snakemake(experiment="experiment.py")
    assert done.code == 0, done.output
    (lab.folder_of("step0") / ".executor_info").write_bytes(b'{"name": "st')
    (lab.folder_of("step1") / ".artifact.json").write_bytes(b"\xff\xfe")
    (lab.folder_of("step2") / ".executor_status").write_bytes(b"PERHAPS")
    made = lab.snakemake("--report", "report.html", experiment="experiment.py")
    assert made.code == 0, made.output

    report = Report(browser, tmp_path / "report.html")
    rows = report.open()
    statuses = {name: row.split()[0] for name, row in rows.items() if name != "step"}
    healthy = {"step0": "SUCCESS", "step1": "SUCCESS", "step3": "SUCCESS", "odd <b>{x}": "SUCCESS"}
    assert statuses == healthy | {"step2": "damaged"}
    assert "{{ nothing }} </script><!-- `x`_" in report.text
    for name, file in (("step0", ".executor_info"), ("step1", ".artifact.json"), ("step2", ".executor_status")):
        assert re.search(rf"^{name}: .*{re.escape(str(lab.folder_of(name) / file))}", report.text, re.MULTILINE)
        report.follow(name, title=name)
        assert str(lab.folder_of(name) / file) in report.text
        report.follow("← overview", title="experiment")
    assert json.loads(report.follow("step3", title="step3")["returned"]) == {"number": 3}
    report.open()
    report.follow("odd <b>{x}", title="odd <b>{x}")
    assert report.pictures() == [(200, 100)]

    # Names that mean something to Snakemake or to a browser are names.
    report.open_category("Pictures and tables")
    assert report.rows() == [["odd <b>{x}/<plot>.svg"]]
    assert report.size(report.open_picture("<plot>.svg", file="_plot>.svg")) == (200, 100)


@pytest.mark.parametrize(("width", "closed_by_reader"), [(1300, False), (1300, True), (500, False)])
def test_the_menu_leaves_room_for_the_page_and_stays_closed(
    browser: webdriver.Chrome, tmp_path: Path, lab: Lab, width: int, closed_by_reader: bool
) -> None:
    lab.experiment(UNFINISHED)
    made = lab.snakemake("--report", "report.html", experiment="experiment.py")
    assert made.code == 0, made.output
    report = Report(browser, tmp_path / "report.html")
    size = browser.get_window_size()
    browser.set_window_size(width, 900)
    try:
        report.open()
        if closed_by_reader:
            assert report.menu_is_open()
            report.close_menu()
        open_before = report.menu_is_open()
        report.follow("good", title="good")
        open_on_a_page = report.menu_is_open()
        report.follow("← overview", title="experiment")
        open_on_the_overview = report.menu_is_open()
    finally:
        browser.set_window_size(size["width"], size["height"])
    assert [open_before, open_on_a_page, open_on_the_overview] == [width > 700 and not closed_by_reader] * 3


@pytest.mark.processes
def test_a_page_fits_a_narrow_window(browser: webdriver.Chrome, tmp_path: Path) -> None:
    facts = StepFacts(
        name="tokens",
        description=None,
        function="marin_rules.pipeline.tokenize.tokenize",
        output_path="out/tokens-123456",
        version={},
        config={"files": ["a" * 64]},
        dependencies=[],
        status="SUCCESS",
        run={"git_commit": "0123456789" * 4},
    )
    file = tmp_path / "page.html"
    file.write_text(step_page(facts))
    size = browser.get_window_size()
    browser.set_window_size(500, 900)
    try:
        browser.get(file.as_uri())
        page, window = browser.execute_script(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
    finally:
        browser.set_window_size(size["width"], size["height"])
    assert window <= 500
    assert page <= window
