"""Every expression and rule on a real Prometheus that scrapes two exporters of a fleet with planted stories.

The dashboards of 24 nodes, drawn by Perses in Chromium: all panels, no error, and the stories in words.
"""

import math
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from precision_lab.monitoring.perses import dashboard as perses
from precision_lab.monitoring.perses.dashboard import not_drawn
from precision_lab.pictures.pages import chromium
from precision_lab.pictures.screenshots import DAYS, Shown, draw, pools_of
from precision_lab.pictures.sweep_plans import BOUND, INFEASIBLE, SOLVED
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.panel import Dashboard, Panel
from precision_operator.monitoring.dashboards.plans import NONE_HERE
from precision_operator.monitoring.rules import RECORDED
from tests.dashboards.promql import chosen
from tests.dashboards.test_definitions import panels
from tests.support.golden import beside

TABLES = beside(__file__)

pytestmark = pytest.mark.cluster

DAY = 86_400.0
RANGES = TABLES["ranges"]
"""What a value of this unit can be in the fleet of 24 nodes: a figure in another unit lies elsewhere."""


def values(shown: Shown, panel: Panel, expr: str) -> list[float]:
    """What the panel would draw: now, or over the last five days."""
    if panel.kind in ("timeseries", "heatmap"):
        end = time.time()
        series = shown.prometheus.query_range(expr, end - 5 * DAY, end, 3600)
        return [float(value) for line in series for _, value in line["values"]]
    return [sample.value for sample in shown.prometheus.query(expr)]


@panels
def test_a_panel_has_figures_in_its_unit_or_says_why_not(shown: Shown, dashboard: Dashboard, panel: Panel) -> None:
    for number, query in enumerate(panel.queries, 1):
        expr = chosen(query.expr, dashboard, node=shown.sweeps[-1].planted.slow)
        figures = [value for value in values(shown, panel, expr) if not math.isnan(value)]
        assert figures or panel.empty not in ("", NONE_HERE), f"nothing for {expr}"  # this fleet has plans
        column = next((column.unit for column in panel.columns if column.query == number), "")
        unit = column or query.unit or panel.unit
        low, high = RANGES[unit]
        assert all(low <= value <= high for value in figures), f"{unit}: {min(figures)} to {max(figures)} from {expr}"


def test_every_rule_is_evaluated_without_an_error(shown: Shown) -> None:
    groups = shown.prometheus.ask("rules")["groups"]
    bad = {rule["name"]: rule.get("lastError") for of in groups for rule in of["rules"] if rule["health"] == "err"}
    assert bad == {}
    assert {rule["name"] for of in groups for rule in of["rules"]} >= set(RECORDED)


EMPTY_HERE = TABLES["empty_here"]


def test_every_recorded_series_has_samples_or_says_why_not(shown: Shown) -> None:
    assert {name for name in RECORDED if not shown.prometheus.query(name)} == set(EMPTY_HERE)
    assert not shown.prometheus.query("precision_node_failed")


def test_two_exporters_count_every_node_once(shown: Shown) -> None:
    assert len(shown.prometheus.query('count by (instance) (precision_pool_nodes{job="precision-exporter"})')) == 2
    (nodes,) = shown.prometheus.query("sum (precision:pool_nodes)")
    assert nodes.value == 24


def test_the_plans_of_the_fleet_are_told_with_their_phases_and_with_what_a_story_costs(shown: Shown) -> None:
    phases = shown.prometheus.query("max by (plan, phase) (precision_plan_phase) == 1")
    assert {(phase.labels["plan"], phase.labels["phase"]) for phase in phases} == {
        (SOLVED, "Solved"),
        (INFEASIBLE, "Infeasible"),
        (BOUND, "Solved"),
    }
    dollars = [float(sweep.plans[0]["status"]["totals"]["dollars"]) for sweep in shown.sweeps]
    assert dollars[-1] > dollars[0], "a hot rack and a worse driver"
    (cost,) = {sample.value for sample in shown.prometheus.query("precision_plan_cost_dollars")}
    assert cost == dollars[-1]


def test_the_overview_tells_each_planted_story(shown: Shown) -> None:
    fleet = DASHBOARDS[0]
    samples = {}
    for panel in fleet.panels:
        if panel.kind in ("stat", "table"):
            samples[panel.title] = shown.prometheus.query(chosen(panel.queries[0].expr, fleet))
    planted = shown.sweeps[-1].planted
    stats = {title: rows[0].value for title, rows in samples.items() if len(rows) == 1 and not rows[0].labels}
    assert stats["Slow nodes"] == 1
    assert stats["Silent fallbacks"] == 1
    assert stats["Throttled nodes"] == len(planted.throttled)
    assert stats["Power not valid"] == 1
    assert stats["Degraded pools"] == 1
    faults = {(sample.labels["node"], sample.labels["fault"]) for sample in samples["Nodes that need a look"]}
    assert faults == {
        (planted.slow, "slow"),
        (planted.fallback, "fallback"),
        (planted.power, "power_invalid"),
        *((node, "throttled") for node in planted.throttled),
    }
    hot = {s.labels.get("nvlink_domain") for s in samples["Nodes that need a look"] if s.labels["fault"] == "throttled"}
    assert hot == {"gb200-rack.2"}
    behind = {sample.labels["pool"]: sample.value for sample in samples["Pools behind their best, by recipe"]}
    assert max(behind, key=lambda pool: behind[pool]) == planted.driver_pool
    assert behind[planted.driver_pool] == pytest.approx(0.04, abs=0.01)


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
