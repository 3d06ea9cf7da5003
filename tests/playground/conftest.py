"""A browser without a screen, and pages that must neither complain nor ask for anything outside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from delayssm_lab import pretrained

PLAYGROUND = Path(__file__).parents[2] / "docs" / "playground"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
#: This word is heard as if it were spoken into a microphone.
SPOKEN = pretrained.directory("listener") / "yes.wav"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={SPOKEN}%noloop",
]  # fmt: skip

Open = Callable[[str], Page]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start Chromium; on a user's machine without it, skip."""
    if CHROMIUM is None:
        assert "CI" not in os.environ, "install Chromium"
        pytest.skip("needs Chromium to show the page")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Return a function that opens a page of the playground, and watch it until the test has ended."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    complaints: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if _leaves(request.url) else None)

    def open_page(address: str) -> Page:
        page.goto(address if "://" in address else f"{PLAYGROUND.as_uri()}/{address}")
        return page

    yield open_page
    context.close()
    assert complaints == []


def _leaves(url: str) -> bool:
    """Return whether a request leaves the machine."""
    return not url.startswith(
        (PLAYGROUND.as_uri(), "data:", "blob:null/", "blob:http://127.0.0.1:", "http://127.0.0.1:")
    )
