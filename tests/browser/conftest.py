"""A real browser, for tests of pages: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_SECONDS = 60  # that a busy machine may take; nothing waits longer than it has to


expect.set_options(timeout=1000 * _SECONDS)


def chromium() -> str | None:
    """Where Chromium is; `$SIAFU_CHROMIUM` names another."""
    return os.environ.get("SIAFU_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


# Playwright keeps an event loop in the thread that uses it: it must have gone before tests elsewhere begin their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once a file; tests skip where there is none."""
    executable = chromium()
    if executable is None:
        pytest.skip("no Chromium here: apt-get install chromium, or set SIAFU_CHROMIUM to one")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a new profile, which must end without an error in its console."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(1000 * _SECONDS)
    opened = context.new_page()
    errors: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            errors.append(message.text)

    opened.on("console", heard)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    yield opened
    context.close()
    assert errors == []
