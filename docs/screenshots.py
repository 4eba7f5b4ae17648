"""Take the pictures of the documentation: `python docs/screenshots.py` trains, watches and writes docs/images/*.png.

Needs Chromium and `pip install 'siafu[dashboard]' playwright`. `SIAFU_CHROMIUM` names another browser than Debian's.
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


def of_the_dashboard(browser: Browser) -> None:
    train = [
        *SIAFU,
        "train",
        "demo",
        "--model",
        "gat",
        "--servers",
        "2",
        "--epochs",
        "400",
        "--out",
        "runs/demo-gat",
    ]
    with dashboard() as address, subprocess.Popen(train) as training:
        page = open_page(browser, address)
        expect(page.locator("tr", has_text="demo-gat")).to_contain_text("running", timeout=60_000)
        page.wait_for_function(_AT_EPOCH, arg=60, timeout=120_000)
        page.screenshot(
            path=IMAGES / "dashboard-runs.png", clip={"x": 0, "y": 0, "width": 1100, "height": 420}
        )
        page.get_by_role("link", name="demo-gat").click()
        page.wait_for_selector("canvas")
        page.screenshot(path=IMAGES / "dashboard-run.png")
        dark = open_page(browser, page.url, "dark")
        dark.wait_for_selector("canvas")
        dark.screenshot(path=IMAGES / "dashboard-dark.png")
        page.get_by_role("button", name="Stop…").click()
        page.screenshot(path=IMAGES / "dashboard-stop.png")
        page.get_by_role("button", name="Stop the run").click()
        expect(page.locator("#status")).to_have_text("stopped", timeout=60_000)
        training.wait()


_AT_EPOCH = """epoch => [...document.querySelectorAll("tr[data-run]")].some(
    (row) => row.textContent.includes("running") && parseInt(row.children[4].textContent) >= epoch)"""


def of_files(browser: Browser) -> None:
    """Pages that are written to disk."""
    siafu("report", "runs/demo-gcn-async", "-o", "report.html")
    siafu("compare", "runs/demo-gcn", "runs/demo-gcn-async", "-o", "comparison.html")
    report = open_page(browser, Path("report.html").resolve().as_uri())
    report.wait_for_selector("body[data-drawn]")
    report.screenshot(path=IMAGES / "report.png")
    report.locator("#gantt figure").screenshot(path=IMAGES / "pipeline.png")
    comparison = open_page(browser, Path("comparison.html").resolve().as_uri())
    comparison.wait_for_selector("body[data-drawn]")
    comparison.screenshot(path=IMAGES / "compare.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        os.chdir(scratch)
        siafu("train", "demo", "--epochs", "120", "--out", "runs/demo-gcn")
        layout = ["--mode", "async", "--staleness", "1", "--servers", "2", "--intervals", "4"]
        siafu("train", "demo", "--epochs", "120", *layout, "--out", "runs/demo-gcn-async")
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("SIAFU_CHROMIUM", "/usr/bin/chromium"), args=FLAGS
        )
        of_the_dashboard(browser)
        of_files(browser)
        browser.close()
        os.chdir("/")


if __name__ == "__main__":
    main()
