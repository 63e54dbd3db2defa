"""Draws the report and a plan's page in Chromium, for the pictures of `precision_lab.pictures.screenshots`.

They are those of the simulated fleet that the dashboards show, and say so: light, dark, on a phone and on paper.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from precision_api.kinds.report import ReportStatus
from precision_lab.builds.go_build import say
from precision_lab.pictures.sweep_plans import SOLVED
from precision_lab.pictures.sweeps import NAMESPACE, PROFILE, Sweep
from precision_operator.core.results.reading import read
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.page import page as plan_page
from precision_operator.report.facts import Given
from precision_operator.report.page import page as report_page

NODES, SWEEPS, SHOWN = 200, 7, 5
"""The stories are all on after the fifth of seven sweeps: a throttled rack cools down in the sixth."""
PRICE = 8.0
"""Made-up dollars of a GPU-hour."""


@dataclass(frozen=True)
class View:
    """One way to look at a page."""

    name: str
    width: int = 1280
    scheme: Literal["light", "dark"] = "light"
    paper: bool = False


VIEWS = (View("light"), View("dark", scheme="dark"), View("phone", width=420), View("print", width=794, paper=True))


def given(sweep: Sweep) -> Given:
    """The report's facts after this sweep."""
    nodes = tuple(
        read(raw["spec"]["nodeName"], status.hardware.pool if status.hardware else "", status)
        for raw in sweep.reports
        if (status := ReportStatus.model_validate(raw["status"])).run
    )
    return Given(f"Profile {NAMESPACE}/{PROFILE}", sweep.finished_at, nodes, price=PRICE)


def texts(sweep: Sweep) -> Iterator[tuple[str, str, tuple[View, ...]]]:
    """File name, HTML, and how it is looked at."""
    yield "report", report_page(given(sweep)), VIEWS
    answer = sweep.answer(SOLVED)
    yield "plan", plan_page(SOLVED, status(answer), answer), VIEWS[:1]


def draw_pages(browser: Browser, sweep: Sweep, out: Path) -> None:
    """One PNG of each page and view, of the whole page."""
    for name, text, views in texts(sweep):
        for view in views:
            tab = browser.new_page(viewport={"width": view.width, "height": 900}, color_scheme=view.scheme)
            tab.set_content(text)
            tab.emulate_media(media="print" if view.paper else "screen", color_scheme=view.scheme)
            path = out / (f"{name}-{view.name}.png" if len(views) > 1 else f"{name}.png")
            tab.screenshot(path=path, full_page=True)
            tab.close()
            say(str(path))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window, without a sandbox: it only opens our own page. ValueError when none is installed."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
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
