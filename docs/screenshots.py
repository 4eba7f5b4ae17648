"""Take the pictures of the documentation: `python docs/screenshots.py` trains, watches and writes docs/images/*.png.

Needs Chromium and `pip install playwright`. `SIAFU_CHROMIUM` names another browser than Debian's.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
SIAFU = [sys.executable, "-c", "from siafu.cli import main; main()"]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SIZE = {"width": 1100, "height": 760}
WHOLE = "whole"


def siafu(*words: str) -> None:
    subprocess.run([*SIAFU, *words], check=True)  # in the scratch directory, whose path is in no picture


@contextmanager
def dashboard() -> Iterator[str]:
    """Its address, while it is served."""
    process = subprocess.Popen([*SIAFU, "dashboard", "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split(": ")[1].split()[0]
    finally:
        process.terminate()
        process.wait()


def open_page(browser: Browser, address: str, scheme: str = "light") -> Page:
    page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto(address)
    return page


def both(browser: Browser, address: str, ready: str, name: str, part: str | None = None) -> None:
    """Take a page, or a part of it, in the light and in the dark, when the selector `ready` is there.

    part: a selector; WHOLE: the page to its end; None: its first screen
    """
    for scheme, ending in (("light", ""), ("dark", "-dark")):
        page = open_page(browser, address, scheme)
        page.wait_for_selector(ready)
        target = IMAGES / f"{name}{ending}.png"
        if part is None or part == WHOLE:
            page.screenshot(path=target, full_page=part == WHOLE)
        else:
            page.locator(part).screenshot(path=target)
        page.close()


def of_the_dashboard(browser: Browser) -> None:
    words = ["train", "demo", "--model", "gat", "--servers", "2", "--epochs", "400", "--out", "runs/demo-gat"]
    with dashboard() as address, subprocess.Popen([*SIAFU, *words]) as training:
        page = open_page(browser, address)
        expect(page.locator("tr", has_text="demo-gat")).to_contain_text("running", timeout=60_000)
        page.wait_for_function(_AT_EPOCH, arg=60, timeout=120_000)
        both(browser, address, "tr[data-run]", "dashboard-runs")
        page.get_by_role("link", name="demo-gat").click()
        page.wait_for_selector("canvas")
        both(browser, page.url, "canvas", "dashboard-run")
        page.get_by_role("button", name="Stop…").click()
        page.screenshot(path=IMAGES / "dashboard-stop.png")
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=IMAGES / "dashboard-stop-dark.png")
        page.get_by_role("button", name="Stop the run").click()
        expect(page.locator("#status")).to_have_text("stopped", timeout=60_000)
        training.wait()
        both(browser, page.url, "canvas", "dashboard-stopped", part=WHOLE)


_AT_EPOCH = """epoch => [...document.querySelectorAll("tr[data-run]")].some(
    (row) => row.textContent.includes("running") && parseInt(row.children[4].textContent) >= epoch)"""


def of_an_empty_dashboard(browser: Browser) -> None:
    with dashboard() as address:
        both(browser, address, "main", "dashboard-empty")


def of_files(browser: Browser) -> None:
    """Take the pages that are written to disk."""
    siafu("report", "runs/demo-gcn-async", "-o", "report.html")
    siafu("report", "runs/demo-vectors", "-o", "vectors.html")
    siafu("compare", "runs/demo-gcn", "runs/demo-gcn-async", "-o", "comparison.html")
    report, vectors, comparison = (
        Path(name).resolve().as_uri() for name in ("report.html", "vectors.html", "comparison.html")
    )
    both(browser, report, "body[data-drawn]", "report")
    both(browser, report, "body[data-drawn]", "report-whole", part=WHOLE)
    both(browser, report, "body[data-drawn]", "pipeline", part="#gantt figure")
    both(browser, vectors, "body[data-drawn]", "report-vectors")
    both(browser, comparison, "body[data-drawn]", "compare")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        os.chdir(scratch)
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("SIAFU_CHROMIUM", "/usr/bin/chromium"), args=FLAGS
        )
        of_an_empty_dashboard(browser)
        siafu("train", "demo", "--epochs", "120", "--out", "runs/demo-gcn")
        layout = ["--mode", "async", "--staleness", "1", "--servers", "2", "--intervals", "4"]
        siafu("train", "demo", "--epochs", "120", *layout, "--out", "runs/demo-gcn-async")
        disk = ["--partitions", "8", "--buffer", "3"]
        siafu(
            "embed",
            "demo",
            "--score",
            "dot",
            "--dim",
            "16",
            "--epochs",
            "6",
            *disk,
            "--out",
            "runs/demo-vectors",
        )
        of_the_dashboard(browser)
        of_files(browser)
        browser.close()
        os.chdir("/")


if __name__ == "__main__":
    main()
