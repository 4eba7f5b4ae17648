"""What a report asks of others, and of those who read it."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Request, expect

import siafu
from siafu.report.files.run_record import read_run
from siafu.report.pages.run_report import run_report
from tests.sessions import gcn
from tests.toys import toy_graph

pytestmark = pytest.mark.slow  # starts a browser

HOSTILE = "<script>document.title='taken'<∕script> & \"more\""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small run whose name is somebody else's."""
    runs, graph = tmp_path_factory.mktemp("runs"), toy_graph()
    siafu.train(graph, gcn(graph), epochs=12, servers=2, intervals=2, out=runs / HOSTILE)
    path = runs / "report.html"
    path.write_text(run_report(read_run(runs / HOSTILE)))
    return path


def test_it_opens_from_disk_with_the_network_off(page: Page, report: Path) -> None:
    asked: list[Request] = []
    page.context.set_offline(True)
    page.on("request", lambda request: asked.append(request))
    page.goto(report.as_uri())
    expect(page.locator("body[data-drawn]")).to_be_attached()
    expect(page.locator("canvas.gantt")).to_be_visible()
    assert page.get_by_role("figure", name="Loss").is_visible()
    assert page.get_by_role("heading", level=1).text_content() == HOSTILE
    assert page.title() == f"{HOSTILE} – Siafu"
    assert [request.url for request in asked] == [report.as_uri()]


def test_nothing_in_it_keeps_out_those_who_see_or_hear_otherwise(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    expect(page.locator("body[data-drawn]")).to_be_attached()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
