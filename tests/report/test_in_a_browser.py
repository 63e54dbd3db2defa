"""The page in a real browser: no error, no request, nothing cut off; legible on a phone, whole on paper."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from precision_lab.pictures.pages import chromium
from precision_operator.report.page import page
from tests.report.sample import fleet_page, node_page, slow_page

HERE = Path(__file__).parent
NARROW, PHONE, DESKTOP = (420, 800), (375, 812), (1280, 900)
LEAST_PIXELS = 9.0
"""Height of the smallest letters on a phone."""
PAGES = {"node": node_page, "slow": slow_page, "fleet": fleet_page}


@dataclass
class Shown:
    """One page in the browser, and what went wrong or out while it was there."""

    tab: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Pages:
    """Each page is opened once, and brought to the size and the folds that a test wants."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser, self._folder = browser, folder
        self._open: dict[str, Shown] = {}

    def __call__(self, name: str, size: tuple[int, int]) -> Shown:
        found = self._open.get(name) or self._opened(name)
        found.tab.set_viewport_size({"width": size[0], "height": size[1]})
        found.tab.emulate_media(media="screen", color_scheme="light")
        found.tab.evaluate("document.querySelectorAll('details.fold').forEach(fold => { fold.open = true })")
        return found

    def _opened(self, name: str) -> Shown:
        path = self._folder / f"{name}.html"
        path.write_text(page(PAGES[name]()), encoding="utf-8")
        found = self._open[name] = Shown(self._browser.new_page())
        found.tab.on("console", lambda message: found.errors.append(message.text))
        found.tab.on("pageerror", lambda error: found.errors.append(str(error)))
        found.tab.on("request", lambda request: found.requests.append(request.url))
        found.tab.goto(path.as_uri())
        return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with chromium() as browser:
        yield Pages(browser, tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("size", [NARROW, PHONE, DESKTOP], ids=["420 px", "phone", "desktop"])
@pytest.mark.parametrize("name", PAGES)
def test_it_opens_without_an_error_or_a_request_and_fits(shown: Pages, name: str, size: tuple[int, int]) -> None:
    found = shown(name, size)
    assert found.errors == []
    assert all(url.startswith(("file:", "data:")) for url in found.requests)
    assert found.tab.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert found.tab.locator("figure svg").count() >= 5


@pytest.mark.parametrize("name", PAGES)
def test_letters_in_drawings_are_legible_on_a_phone_and_none_is_cut_off(shown: Pages, name: str) -> None:
    found = shown(name, PHONE)
    smallest, cut = found.tab.evaluate((HERE / "legible.js").read_text())
    assert smallest >= LEAST_PIXELS
    assert cut == []


@pytest.mark.parametrize("name", PAGES)
def test_labels_of_a_drawing_do_not_lie_on_each_other(shown: Pages, name: str) -> None:
    found = shown(name, DESKTOP)
    met = found.tab.evaluate((HERE / "overlaps.js").read_text())
    assert met == []


def test_on_paper_all_that_is_folded_is_open_and_the_figures_are_whole(shown: Pages) -> None:
    found = shown("node", DESKTOP)
    found.tab.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = false })")
    assert not found.tab.locator("#gemms svg").is_visible()
    found.tab.emulate_media(media="print")
    assert found.tab.locator("#gemms svg").is_visible()
    assert found.tab.locator("figure details td").first.is_visible()
    assert found.tab.locator("figure").first.evaluate("e => getComputedStyle(e).breakInside") == "avoid"
    assert found.tab.pdf()[:5] == b"%PDF-"


def test_without_the_hatch_and_the_words_a_failure_would_be_told_by_colour_alone(shown: Pages) -> None:
    found = shown("node", DESKTOP)
    hatched = found.tab.locator('#gemms svg rect[fill="url(#failed)"]')
    assert hatched.count() == 3
    assert found.tab.locator("pattern#failed").count() == 1


def test_in_the_dark_paper_and_ink_change_places_and_print_stays_light(shown: Pages) -> None:
    found = shown("node", DESKTOP)
    ink, paper = found.tab.locator("#speedup svg text").first, found.tab.locator("body")

    def colours(**media: Any) -> tuple[str, str]:
        found.tab.emulate_media(**media)
        fill: str = ink.evaluate("e => getComputedStyle(e).fill")
        ground: str = paper.evaluate("e => getComputedStyle(e).backgroundColor")
        return fill, ground

    light = colours(color_scheme="light", media="screen")
    dark = colours(color_scheme="dark", media="screen")
    assert light[1] == "rgb(255, 255, 255)"
    assert set(light).isdisjoint(dark)
    assert colours(color_scheme="dark", media="print") == light
