"""A browser that draws our own pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window, without a sandbox: it only opens our own page. ValueError when none is installed."""
    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if program is None:
        raise ValueError("There is no Chromium on PATH. Install it (Debian: apt-get install chromium).")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()
