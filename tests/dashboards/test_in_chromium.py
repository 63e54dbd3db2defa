"""The dashboards of 24 nodes, drawn by Perses in Chromium: all panels, no error, and the stories in words."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from precision_lab.monitoring.perses import dashboard as perses
from precision_lab.monitoring.perses.dashboard import not_drawn
from precision_lab.pictures.browser import chromium
from precision_lab.pictures.screenshots import DAYS, Shown, draw, pools_of
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.panel import Dashboard

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda page: page.uid)
def test_a_dashboard_is_drawn_without_an_error(shown: Shown, browser: Browser, dashboard: Dashboard) -> None:
    drawn = draw(browser, shown.url, dashboard, {"start": f"{DAYS}d", "var-node": shown.sweeps[-1].planted.slow})
    assert drawn.problems == ()
    made = perses.resource(dashboard, {"pool": pools_of(shown.sweeps[-1])})["spec"]["panels"]
    assert drawn.panels == len(made) >= len(dashboard.panels) - len(not_drawn(dashboard))
    for panel in made.values():
        assert panel["spec"]["display"]["name"] in drawn.text


def test_a_query_that_prometheus_refuses_is_a_problem(shown: Shown, browser: Browser) -> None:
    assert any("400" in problem for problem in draw(browser, shown.url, DASHBOARDS[1], {"var-pue": "("}).problems)
