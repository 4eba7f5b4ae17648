"""Reports in a real browser, from disk, with the network off."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

import siafu
from siafu.report.files.run_record import read_run
from siafu.report.pages.comparison import comparison_page
from siafu.report.pages.run_report import run_report
from tests.sessions import gcn
from tests.toys import toy_graph

pytestmark = pytest.mark.slow  # starts a browser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "<b>bold & <i>"
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=20, servers=2, intervals=4, out=path)
    return path


def opened(page: Page, text: str, path: Path) -> None:
    path.write_text(text)
    page.context.set_offline(True)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-drawn]")


def test_a_report_opens_with_its_charts_and_its_pipeline(page: Page, run: Path, tmp_path: Path) -> None:
    opened(page, run_report(read_run(run)), tmp_path / "report.html")
    assert page.locator("h1").inner_text() == "<b>bold & <i>"
    assert page.locator("#curves figure").count() >= 4
    assert page.locator("#curves canvas").count() >= 4
    chart = page.locator("canvas.gantt")
    assert "Epoch 20" in (chart.get_attribute("aria-label") or "")
    page.get_by_label("Epoch", exact=True).select_option(label="3")
    assert "Epoch 3" in (chart.get_attribute("aria-label") or "")


def test_time_in_tasks_is_a_few_areas_that_add_up(page: Page, run: Path, tmp_path: Path) -> None:
    opened(page, run_report(read_run(run)), tmp_path / "report.html")
    figure = page.locator("#curves figure", has_text="Time in tasks, shares of all threads' time")
    shown = figure.locator(".u-legend tr.u-series").count() - 1  # the first is the epoch
    assert 2 <= shown <= 6
    told = figure.locator(".u-legend").inner_text()
    assert "other kinds" in told and told.count("%") == shown


def test_values_of_a_legend_stand_beside_their_names(page: Page, run: Path, tmp_path: Path) -> None:
    opened(page, run_report(read_run(run)), tmp_path / "report.html")
    gaps = page.locator("#curves .u-legend tr").evaluate_all(
        "rows => rows.map(row => row.lastChild.getBoundingClientRect().left - row.querySelector('.u-label').getBoundingClientRect().right)"
    )
    assert len(gaps) >= 8
    assert all(0 <= gap < 15 for gap in gaps), gaps


def test_the_axis_of_the_pipeline_has_round_times(page: Page, run: Path, tmp_path: Path) -> None:
    page.add_init_script(
        "window.written = []; const plain = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
        " if (this.canvas.classList.contains('gantt')) written.push(text); return plain.call(this, text, ...rest); };"
    )
    opened(page, run_report(read_run(run)), tmp_path / "report.html")
    times = [each for each in page.evaluate("written") if re.fullmatch(r"[\d.,]+ (s|ms|µs)", each)]
    assert len(set(times)) >= 3
    assert all(len(re.sub(r"\D", "", each).strip("0")) <= 2 for each in times), times


def test_the_pipeline_is_walked_with_the_keys_and_read_out(page: Page, run: Path, tmp_path: Path) -> None:
    opened(page, run_report(read_run(run)), tmp_path / "report.html")
    page.locator("canvas.gantt").focus()
    told = page.locator("#gantt .told")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "End", "+"):
        page.keyboard.press(key)
        seen.append(told.inner_text())
    assert all("graph server" in each or "weight server" in each for each in seen)
    assert len(set(seen)) >= 3


def test_behind_the_pipeline_is_a_table(page: Page, run: Path, tmp_path: Path) -> None:
    opened(page, run_report(read_run(run)), tmp_path / "report.html")
    page.locator("#gantt summary").click()
    page.wait_for_selector("#gantt table")
    assert "train T0" in page.locator("#gantt table").inner_text()


def test_a_comparison_draws_a_line_for_each_run(page: Page, run: Path, tmp_path: Path) -> None:
    record = read_run(run)
    opened(page, comparison_page([record, record]), tmp_path / "compare.html")
    assert page.locator("#curves figure").count() >= 4
