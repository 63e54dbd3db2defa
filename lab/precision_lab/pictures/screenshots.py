"""Draws the dashboards in Chromium: `python -m precision_lab.pictures.screenshots OUT` writes a PNG of each.

What is drawn is made up: sweeps over a simulated fleet with planted stories, put through the real exporter, scraped by
a real Prometheus with the real rules. Perses draws, because Grafana can't be had in the lab.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page

from precision_lab.builds.go_build import say
from precision_lab.fleet.hardware import HARDWARE
from precision_lab.monitoring.backfill import LOOKBACK, Scraped, hourly, import_samples, levels, recorded
from precision_lab.monitoring.perses.build import page as perses_page
from precision_lab.monitoring.perses.site import start_site
from precision_lab.monitoring.prometheus import Prometheus, PrometheusSettings, Target, start_prometheus
from precision_lab.pictures.operator_story import HOUR, MINUTE, Campaign
from precision_lab.pictures.pages import NODES, SHOWN, SWEEPS, chromium, draw_pages
from precision_lab.pictures.sweep_server import serve
from precision_lab.pictures.sweeps import DAY, Planted, Sweep, sweeps
from precision_lab.processes.processes import Processes, launch
from precision_operator.monitoring import rule_file
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.dashboards.fleet import NODE_UID
from precision_operator.monitoring.dashboards.operation import UID as OPERATION_UID
from precision_operator.monitoring.dashboards.panel import Dashboard, bottom

DAYS = 5
WIDTH = 1600
DRAWN_MILLISECONDS = 120_000
JOB = "precision-exporter"
NOTE = "Simulated data, drawn by Perses."


@dataclass(frozen=True)
class Drawn:
    panels: int
    problems: tuple[str, ...]
    """Errors of the browser's console, of requests, and of panels."""
    text: str
    """All the words on the page."""


def draw(
    browser: Browser, url: str, dashboard: Dashboard, choices: Mapping[str, str] | None = None, out: Path | None = None
) -> Drawn:
    """Opens the dashboard and returns when all of its panels are drawn; with `out`, a PNG of the whole page."""
    # more than all rows take: Perses draws what is in view, and scrolls inside the page
    height = 300 + sum(100 + 42 * bottom(row.panels, 0) for row in dashboard.rows)
    page = browser.new_page(viewport={"width": WIDTH, "height": height}, device_scale_factor=1)
    problems: list[str] = []
    page.on("console", lambda message: problems.extend([f"console: {message.text}"] * (message.type == "error")))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("response", lambda reply: problems.extend([f"{reply.status} {reply.url}"] if reply.status >= 400 else []))
    try:
        page.goto(f"{url}/?{urlencode({'dashboard': dashboard.uid, **(choices or {})})}", timeout=DRAWN_MILLISECONDS)
        panels = _wait_until_drawn(page)
        problems.extend(f"panel: {alert}" for alert in page.locator("[role=alert]").all_inner_texts())
        if out:
            page.screenshot(path=out, clip={"x": 0, "y": 0, "width": WIDTH, "height": _end(page)})
        return Drawn(panels, tuple(problems), page.inner_text("body"))
    finally:
        page.close()


def _wait_until_drawn(page: Page) -> int:
    """How many panels there are, once none of them waits for an answer any more."""
    page.locator("[data-testid=panel]").first.wait_for(timeout=DRAWN_MILLISECONDS)
    page.wait_for_load_state("networkidle", timeout=DRAWN_MILLISECONDS)
    waiting = (
        "document.querySelectorAll('[role=progressbar], [aria-label=\"Loading...\"], .MuiSkeleton-root').length === 0"
    )
    page.wait_for_function(waiting, timeout=DRAWN_MILLISECONDS)
    page.wait_for_load_state("networkidle", timeout=DRAWN_MILLISECONDS)
    return page.locator("[data-testid=panel]").count()


def _end(page: Page) -> int:
    y = "Math.max(...[...document.querySelectorAll('[data-testid=panel]')].map(p => p.getBoundingClientRect().bottom))"
    return int(page.evaluate(y)) + 20


@dataclass(frozen=True)
class Shown:
    """A fleet that a Prometheus has seen for days, and a page with its dashboards."""

    url: str
    prometheus: Prometheus
    sweeps: Sequence[Sweep]


def pools_of(sweep: Sweep) -> list[str]:
    """Names of the fleet's pools, in order."""
    return sorted({HARDWARE[node.product].label for node in sweep.nodes})


@contextmanager
def shown_fleet(nodes: int) -> Iterator[Shown]:
    """Dashboards over a fleet that has been swept daily, scraped from two exporters, as in a rolling update."""
    end = time.time()
    history = sweeps(nodes, SWEEPS, start=end - DAYS * DAY, every=DAYS * DAY / SHOWN)[:SHOWN]
    processes = launch()
    try:
        with serve(history[-1]) as exporter, serve(history[-1]) as second:
            targets = tuple(Target(JOB, address, tuple(history[-1].bodies)) for address in (exporter, second))
            prometheus = with_history(processes, history, targets, end)
            prometheus.wait_for('ALERTS{alertstate="firing"}', 240)
            url = start_site(processes, perses_page(), prometheus.url, pools_of(history[-1]))
            yield Shown(url, prometheus, history)
    finally:
        processes.end()


def with_history(processes: Processes, history: Sequence[Sweep], targets: tuple[Target, ...], end: float) -> Prometheus:
    """A Prometheus that has seen all of these sweeps, and scrapes and records from now on."""
    data = processes.run_dir / "prometheus-data"
    labels = {"job": targets[0].job, "instance": targets[0].address}
    import_samples(hourly([Scraped(sweep.at, sweep.body, labels) for sweep in history], end), data)
    import_samples(hourly(list(_operator(len(history[0].nodes), end)), end), data)
    plain = PrometheusSettings(lookback=LOOKBACK, data=data)
    for level in levels():
        prometheus = start_prometheus(processes, plain)
        import_samples(recorded(prometheus, level, history[0].at, end), data)
        prometheus.stop()
    rules = processes.run_dir / "rules.yaml"
    rules.write_text(rule_file.text(interval="5s", lasts="0s"))
    return start_prometheus(
        processes, PrometheusSettings(targets, (rules,), scrape_seconds=5.0, lookback=LOOKBACK, data=data)
    )


def _operator(nodes: int, end: float) -> Iterator[Scraped]:
    """What an operator told of itself in the last half day, each two minutes; its campaign ended two hours ago."""
    campaign = Campaign(nodes, end - 8 * HOUR)
    moments = [end - back * MINUTE for back in range(12 * 60, 0, -2)]
    return (Scraped(at, campaign.text(at), {"job": "precision-operator", "instance": "operator"}) for at in moments)


def take(out: Path, nodes: int = NODES) -> None:
    """Writes PNGs to `out`: one of each dashboard (the node's: one a story), report and plan."""
    out.mkdir(parents=True, exist_ok=True)
    with shown_fleet(nodes) as shown, chromium() as browser:
        draw_pages(browser, shown.sweeps[-1], out)
        shown.prometheus.wait_for('ALERTS{alertstate="firing"} offset 3m', 480)  # tables ask for a round moment
        for name, dashboard, node in _views(shown.sweeps[-1].planted):
            path = out / f"{name}.png"
            choices = {
                "start": "12h" if dashboard.uid == OPERATION_UID else f"{DAYS}d",
                "note": f"{NOTE} {node}".strip(),
                **({"var-node": node} if node else {}),
            }
            drawn = draw(browser, shown.url, dashboard, choices, path)
            say(f"{path}: {drawn.panels} panels{''.join(f', {problem}' for problem in drawn.problems)}")


def _views(planted: Planted) -> Iterator[tuple[str, Dashboard, str]]:
    """File name, dashboard, node."""
    stories = {"slow": planted.slow, "fallback": planted.fallback, "power": planted.power}
    stories["throttled"] = min(planted.throttled)
    for dashboard in DASHBOARDS:
        name = dashboard.uid.removeprefix("precision-")
        if dashboard.uid == NODE_UID:
            yield from ((f"{name}-{story}", dashboard, node) for story, node in stories.items())
        else:
            yield name, dashboard, ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m precision_lab.pictures.screenshots", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nodes", type=int, default=NODES)
    options = parser.parse_args()
    take(options.out, options.nodes)


if __name__ == "__main__":
    main()
